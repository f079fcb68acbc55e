// Package sparrow dispatches tasks without any central state, as Sparrow does (Ousterhout et al. 2013): it is what Headroom's own
// dispatch is compared with.
//
// The one idea: a scheduler probes twice as many random workers as a job has tasks (batch sampling). A worker queues probes, not tasks. When
// a probe's turn comes, the worker asks its scheduler for a task (late binding), so that the tasks go to the workers that are free first; the
// probes that are left get none.
//
// A scheduler is a Sampler, which chooses the workers, and Jobs, which hold the tasks that no worker has asked for. A worker is a Node. Package
// eagle builds on both.
//
// Guarantees: each task is given out once; the workers of a job's probes are distinct as long as there are enough; a worker that
// asks for a job without tasks left is told so.
//
// The package reads no clock, draws no random numbers of its own and does no I/O.
package sparrow
