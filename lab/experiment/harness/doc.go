// Package harness runs a small cluster of real programs under a load and records what happened to each
// job: the part that all experiments on real programs share.
//
// The one idea: a Setup has a site of emulated nodes, an engine for the tasks, a variant of policies, caps
// that step, and jobs that arrive. Serve starts all of it, submits the jobs when they are due, watches them
// to their ends, and returns an Outcome for each. The demonstration uses Start, and plays its own story.
//
// Guarantees: times are those that a client of the scheduler sees, and joules come from the nodes' own
// counters. A value that was not measured is absent. Everything that was started is stopped. The package
// listens on loopback addresses only and makes no decisions.
package harness
