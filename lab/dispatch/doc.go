// Package dispatch simulates the dispatch of many small tasks on traces, with Pigeon and the
// policies that it is compared with.
//
// The one idea: the simulation makes no decisions. It drives the state machines of
// jobs/dispatch/pigeon, sparrow and eagle, the code of real distributors and masters, and adds
// time: a network delay between any two nodes, task times from the trace, and slots that are slower
// under a power cap. A centralised scheduler is a pigeon.Master that has all workers.
//
// A job ends when its last result has arrived at its distributor; its completion time counts from
// its arrival there. A task that meets an idle worker takes three hops with Pigeon, and four with
// Sparrow or Eagle. Percentiles are exact: over all jobs, interpolated linearly between the two
// nearest, as in numpy. A slowdown is a percentile of completion times divided by the same
// percentile of the times of each job's longest task.
//
// Guarantees: the same Setup and jobs give the same Result. Each task of each job runs once. Memory
// grows with the jobs by a few numbers each, and with the tasks only while they wait or run.
//
// It does no I/O except that Solve, the function of `powerlab solve dispatch`, reads the trace.
package dispatch
