// Package dias repeats the experiments of DIAS (Birke et al., "Differential Approximation and
// Sprinting for Multi-Priority Big Data Engines") for `powerlab paper dias`: latencies and energy
// of prioritised jobs when lower classes drop tasks and higher ones sprint, instead of killing each
// other.
//
// The one idea: it simulates a cluster that runs one job at a time, in virtual time, with the
// scheduler's own dispatcher, package buffers. Only the duration of jobs is simulated. Every policy
// of an experiment gets the same arrivals and the same tasks, so differences in the results come
// from the policies.
//
// Guarantees: the same seeds give the same bytes, on any number of cores. Bounds are Student's t
// over the seeds. Each target has one fixed rule. The queueing model predicts the same experiments
// and is compared with them.
//
// It never kills or sprints by itself: it applies the decisions of the dispatcher.
package dias
