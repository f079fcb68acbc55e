// Package dispatch simulates the dispatch of many small tasks on traces: Pigeon and what it is compared with.
//
// The one idea: the simulation decides nothing. It drives the state machines of jobs/dispatch/pigeon, sparrow and eagle, the same code that real
// distributors and masters run, and adds time: a hop between any two nodes, tasks that run as long as the trace says, and slots
// that are slower under a power cap. A centralised scheduler is a pigeon.Master that has all workers.
//
// A job ends when its last result has arrived at its distributor; its completion time counts from its arrival there. A task of Pigeon that
// meets an idle worker takes three hops, one of Sparrow or Eagle four. Percentiles are exact: of all jobs, interpolated linearly between the
// two nearest, as numpy does. A slowdown is a percentile of completion times over that percentile of the times of each job's longest
// task.
//
// Guarantees: the same Setup and jobs give the same Result; each task of each job runs once; memory grows with the jobs by a few
// numbers each, and with the tasks only while they wait or run.
//
// It does no I/O beyond its command, `powerlab dispatch`.
package dispatch
