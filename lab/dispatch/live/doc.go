// Package live replays traces of many small tasks on real programs, and compares the completion
// times of jobs with the simulation: the experiment of Li's Fig. 4.11, run by `powerlab paper
// pigeon --real`.
//
// The one idea: a task of a trace is a sleep of a known length, so a cluster of 120 workers fits on
// one machine, and the only difference from the simulation is the overhead of the programs and
// their calls. The workers are 120 processes of the production worker, with one slot each; they
// start /bin/sleep for each task. Pigeon's masters are the production processes. Sparrow and Eagle,
// which Headroom does not offer, exist only here: their distributors and node monitors drive the
// same pure decisions as the simulation and use RPC on loopback addresses, with the same workers.
//
// Guarantees: a job's time counts from the moment at which the trace submits it, even if the
// machine was late. Replayed jobs are on disk when they end, and verdicts are written after each
// trace; an interrupted trace has no verdict. The package uses only loopback, stops every process
// that it started, and is not used by production code.
package live
