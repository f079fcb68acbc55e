// Package dias repeats the experiments of DIAS (Birke et al., "Differential
// Approximation and Sprinting for Multi-Priority Big Data Engines"): latencies and
// energy of prioritised jobs when lower classes give up tasks and higher ones sprint,
// instead of killing each other, for `powerlab paper dias`.
//
// The one idea: a cluster that runs one job at a time, in virtual time, under package
// buffers, the very dispatcher of the scheduler. What differs from a real cluster is
// only how long a job takes. Every policy of one experiment gets the same arrivals and
// the same tasks, so differences between policies are differences of policies.
//
// Guarantees: the same seeds give the same bytes, on any number of cores; bounds are
// those of Student's t over the seeds; each target is judged by one rule, whatever came
// out; the queueing model predicts the same experiments and is held against them.
//
// It never kills or sprints by itself: it carries out what the dispatcher says.
package dias
