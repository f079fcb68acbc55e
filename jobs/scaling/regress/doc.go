// Package regress fits the parameters of a model to measurements by least squares, with confidence intervals.
//
// The one idea: a fitted number is only useful with its bounds. Each parameter has its 95 % confidence interval and
// its p-value by Student's t, from the covariance at the best fit (Gauss-Newton, like Mathematica's
// NonlinearModelFit), and so does each prediction.
//
// Guarantees: the search starts from all given starting points, stays within the parameters' bounds, takes a bounded
// number of steps and gives the same result for the same input. Parameters that the measurements do not separate are
// an error that names them, and so are too few measurements.
//
// The package knows no model, does no I/O and starts nothing.
//
//headroom:apply
package regress
