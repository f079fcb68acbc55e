// Package quality tells how good a job's result is when it ran on only a part of its
// map tasks.
//
// The one idea: it is measured, never assumed. A Profile holds, for some parts of a
// job's tasks, how near the results came to the exact one (CAB, Nabavinejad et al.,
// Fig. 1), as the mean and the extremes of several runs with other tasks left out.
// From it follows the least part of the tasks that keeps a promise, which is the
// quality floor of the job or of its queue.
//
// Guarantees: a profile is monotone, more tasks are never worse: where the runs say
// otherwise, by chance, neighbours are pooled and it is told which. All tasks give
// accuracy 1. Between the points lines are drawn; the least part for an accuracy goes
// by the worst run, not by the mean.
//
// The package runs nothing and reads no file: `powerlab profile` does.
//
//headroom:apply
package quality
