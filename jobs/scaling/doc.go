// Package scaling fits a curve to measured speed-ups and predicts others, with bounds, to decide how far a job should
// scale out.
//
// The one idea: the model is named, its fit is one call, and the result answers three questions: the speed of the job
// at another degree, its bounds, and the degree at which it is fastest. The models are those of packages ipso and
// usba, including Amdahl's, Gustafson's and Sun-Ni's laws.
//
// In a Point of ipso and of the three laws, N is the scale-out degree, and M may be 0. As in section 2.5.2 of the
// dissertation, points of a job of N tasks on M units are valid too, if they lie on one line: N fixed (fixed size),
// or N/M fixed (fixed time). Then M is the degree, also for the curve. In a Point of usba, N is the problem size and
// M the degree.
//
// [Curve.At] is the same for all: the speed-up of a job of a size on a number of units, for a scheduler.
//
// Guarantees: the same points give the same curve; too few points, collinear ones, and impossible numbers are errors
// with their reason. The package does no I/O.
//
//headroom:apply
package scaling
