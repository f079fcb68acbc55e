// Package eagle dispatches short and long jobs side by side, as Eagle does (Delgado et al. 2016): it is what Headroom's own dispatch is
// compared with.
//
// The one idea: long jobs are placed by a central scheduler that knows how long each worker's queue is, short ones by probes as in Sparrow, and
// short ones never wait behind long ones. A part of the workers, the short partition, takes no long tasks. A worker with a long task
// rejects a short probe and answers with its View, the bits that say which workers have long tasks; the scheduler probes again
// elsewhere (succinct state sharing), and after Rounds rounds in the short partition.
//
// Central places long tasks, Prober chooses workers for short probes, a Node is a worker. Tasks are held and bound late by package sparrow's
// Jobs. With sticky batch probing (SBP) a worker asks for more tasks of a short job before it serves the next probe; with
// shortest remaining processing time (SRPT) it serves the job with the least work left, but delays no probe more than the multiple of its
// task time that DelayMost says. The Eagle that Li compares Pigeon with has neither.
//
// Guarantees: no short probe is queued at a worker that has a long task; no long task goes to the short partition; a View is never changed
// once it is given out.
//
// The package reads no clock, draws no random numbers of its own and does no I/O. Times are in seconds.
package eagle
