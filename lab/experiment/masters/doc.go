// Package masters replays jobs of many small tasks on real programs: Pigeon's masters, and distributors and
// node monitors of Sparrow and Eagle, which Headroom does not offer.
//
// The one idea: a task is a sleep of a known length, so a cluster of 120 workers fits on one machine, and
// the only difference from the simulation is the overhead of the programs and their calls. The workers are
// processes of the production worker with one slot each. Pigeon's masters are the production processes.
// Sparrow's and Eagle's parts drive the same pure decisions as the simulation, and talk over TCP on
// loopback addresses.
//
// Guarantees: a job's time counts from the moment at which the load submits it. A job that fails ends the
// replay. Every process that was started is stopped. Production code does not use the package.
package masters
