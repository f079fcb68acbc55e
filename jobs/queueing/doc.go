// Package queueing computes how long jobs wait and stay in a cluster that serves one job at a time by priority: the
// MMAP[K]/PH[K]/1 queue, whose services are phase-type (PH) distributions and whose arrivals are Poisson streams or a
// marked Markovian process. The source is DIAS (sections 4.1 and 4.2), which computes latencies this way before it
// drops tasks or sprints.
//
// The one idea: for Poisson arrivals every transform of a priority queue is a short rational expression of two
// vectors that one back substitution yields, because the jobs' PH are triangular. Written without differences of
// close numbers, it gives moments as power series with positive terms and distributions by inversion along a vertical
// line, both in milliseconds at 62 phases a class. Other arrivals are solved by matrix-analytic methods.
//
// Guarantees:
//   - answers are exact up to rounding (means and moments to 1e-9, percentiles to 1e-7 up to 0.999), or there is an
//     error with numbers and a hint;
//   - never NaN, never a bound instead of a value.
//
// Preemptive repeat has no such solution and is simulated: [SimulateRepeat] returns intervals.
//
// The package reads no clock, file or random source. Times are in any unit, rates are per that unit, and classes are
// ordered from LOWEST to HIGHEST priority.
package queueing
