// Package scaling tells how far a job should scale out: it fits a curve to measured speed-ups and predicts others, with bounds.
//
// The one idea: the model is named, its fit is one call, and what is fitted answers three questions: how fast is the job at
// another degree, within which bounds, and at which degree is it fastest. The models are those of packages ipso and usba,
// with Amdahl's, Gustafson's and Sun-Ni's laws among them.
//
// In a Point of ipso and of the three laws, N is the scale-out degree, and M may be left 0. As in section 2.5.2 of the dissertation,
// points of a job of N tasks on M units may be given too, if they lie on one line: N fixed (fixed size), or N/M fixed (fixed time). M is
// the degree then, and so it is in what the curve is asked. In a Point of usba, N is the problem size and M the degree.
//
// [Curve.At] is the same for all: the speed-up of a job of a size on so many units, which is what a scheduler asks.
//
// Guarantees: same points, same curve; too few points, collinear ones, and numbers that cannot be are errors with their
// reason. The package does no I/O.
//
//headroom:apply
package scaling
