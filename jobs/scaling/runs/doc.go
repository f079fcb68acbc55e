// Package runs learns how the jobs of a name scale from their own runs.
//
// The one idea: the container time of a task shows how much a job's containers slow each other down. A run gives one such
// number at one number of containers; some runs on different numbers of containers give the job's speed-up, to which
// package scaling fits IPSO.
//
//	slowness(n) = container time of a task on n containers / the same on one
//	speed-up(n) = n / slowness(n)
//
// The container time on one container is the intercept of a quadratic fit, by the same fit the exponent by which a power cap
// slows tasks.
//
// A curve counts once 6 runs on 3 numbers of containers, of which the largest is half as large again as the least, lie
// around it within a mean of 12 %. It is drawn as far as runs have held containers. It has a peak only where two runs held
// 15 % more containers than that and the fit's 95 % bounds place their speed-up below that at the peak: what has not been
// seen to slow a job down bounds nothing.
//
// What is learned is contradicted when three runs in a row lie off the curve by more than a quarter: all runs before them are
// forgotten. A job held at its peak would never show that it can use more by now. So one run
// in 9 may have half as many containers again, if nobody else waits for them; and where no run differs from the
// others, one is held at half as many. Both only where the caller lets a run explore: none with a deadline should.
//
// Guarantees: names and runs are bounded, the oldest are forgotten first; the same runs give the same curve; an odd
// run is refused. The package reads no clock and no file.
package runs
