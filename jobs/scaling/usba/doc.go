// Package usba is USBA, the scaling model of jobs of many stages (Li, Duan, Che: "A Unified Scaling Model in the Era of Big Data
// Analytics", HP3C 2019; chapter 3 of Li's dissertation, whose equations are cited).
//
// The one idea: speed-up is a surface over the problem size N and the parallel degree m. The job's time at N = m = 1 is
// split into its launch tau0 and its stages' time; q(m) is how the launch grows, p(N, m) how the stages do. Of the two times
// only the ratio r = tau0/sum(tau_k) matters.
//
// Logarithms are natural, which the printed tables fit and others do not. theta is a real number. Fit fits the surface to speed-ups
// alone, by non-linear regression with p-values.
//
// Guarantees: p(1,1) = q(1) = S(1,1) = 1; same input, same result; a number out of its bounds is an error. The package does
// no I/O.
//
//headroom:apply
package usba
