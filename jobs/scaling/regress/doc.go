// Package regress fits the parameters of a model to measurements by least squares, with confidence.
//
// The one idea: a number that was fitted is worth as much as its bounds. Each parameter comes with its 95 % confidence
// interval and its p-value by Student's t, from the covariance at the best fit (Gauss-Newton, as Mathematica's
// NonlinearModelFit has it), and so does each prediction.
//
// Guarantees: the search starts from all given starting points, stays within the parameters' bounds, takes a bounded
// number of steps and gives the same result for the same input. Parameters that the measurements cannot tell apart are an
// error that names them, and so are too few measurements.
//
// The package knows no model, does no I/O and starts nothing.
//
//headroom:apply
package regress
