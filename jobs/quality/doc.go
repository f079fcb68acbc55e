// Package quality is about the accuracy of a job's result from only a part of its map tasks.
//
// The one idea: accuracy is measured, never assumed. For some fractions of a job's tasks, a Profile has the distance
// of the results to the exact one (CAB, Nabavinejad et al., Fig. 1), as the mean and the extremes of several runs
// with different tasks. It gives the minimum fraction of the tasks that keeps a promise, which is the quality floor
// of the job or of its queue.
//
// Guarantees: a profile is monotone: if more tasks are worse in the runs, by chance, neighbours are pooled and a
// warning names them. All tasks give accuracy 1. Values between the points are interpolated; the minimum fraction for
// an accuracy is by the worst run, not by the mean.
//
// The package runs nothing and reads no file: `scheduler profile` does.
//
//headroom:apply
package quality
