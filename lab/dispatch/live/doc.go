// Package live runs traces of many small tasks on real programs, and compares how long their jobs take with what the
// simulation says: the experiment of Li's Fig. 4.11, by `powerlab paper pigeon --real`.
//
// The one idea: a task of a trace is a sleep of a known length, so a cluster of 120 workers fits on one machine, and all
// that differs from the simulation is what the programs and their calls add. The workers are 120 processes of the worker
// that production runs, with one slot each; they start /bin/sleep for each task. Pigeon's masters are the processes that
// production runs. Sparrow and Eagle, which Headroom does not offer, exist here only: their distributors and node monitors
// drive the same pure decisions as the simulation and talk by RPC on loopback addresses, and their workers are the same program.
//
// Guarantees: a job's time counts from the moment at which the trace submits it, also where the machine was late; what was
// replayed is on disk after each job's end, and verdicts are written after each trace; what was broken off has no verdict.
// The package listens and connects on loopback only, ends every process that it has started, and decides nothing that
// production uses.
package live
