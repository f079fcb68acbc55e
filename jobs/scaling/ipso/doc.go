// Package ipso is IPSO, the scaling model of data-intensive jobs (Li, Duan, Nguyen, Che, Lei, Jiang: "IPSO: A Scaling Model for
// Data-Intensive Applications", ICDCS 2019; chapter 2 of Li's dissertation, whose equations are cited).
//
// The one idea: when a job runs on n units in the place of one, three things scale. The parallel work grows by EX(n), the
// serial work by IN(n), and being spread costs q(n). The speed-up follows from the three. Amdahl's, Gustafson's and
// Sun-Ni's laws are the special cases IN = 1 and q = 0.
//
// Model has the asymptotic form (2.16): EX/IN = alpha*n^delta and q = beta*n^gamma; it gives speed-ups, the type of the
// scaling (I linear, II unbounded, III bounded, IV peaked), the bound and the peak. Factors are fitted to the measured parts of
// a job, Fit to its speed-ups alone.
//
// Where the dissertation contradicts itself: gamma = 0 is taken as q = 0, as its text says, although beta*n^0 = beta. At
// n = 1 there is no overhead and the speed-up is 1, which the asymptotic form misses.
//
// Guarantees: same input, same result; no speed-up is below 0; a number out of its bounds is an error. The package does no
// I/O.
//
//headroom:apply
package ipso
