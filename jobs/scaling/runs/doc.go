// Package runs learns how the jobs of a name scale from their own runs.
//
// The one idea: the container time of a task shows how much a job's containers slow each other down. A run gives one
// such number at one number of containers. Some runs on different numbers give the job's speed-up, to which package
// scaling fits IPSO.
//
//	slowness(n) = container time of a task on n containers / the same on one
//	speed-up(n) = n / slowness(n)
//
// The container time on one container is the intercept of a quadratic fit, which also gives the exponent by which a
// power cap slows tasks.
//
// A curve is used once 6 runs on 3 numbers of containers, the largest at least 1.5 times the least, lie around it
// within a mean of 12 %. It extends as far as runs have held containers. It has a peak only if two runs held 15 %
// more containers than that and the fit's 95 % bounds place their speed-up below that at the peak.
//
// A curve is rejected when three runs in a row differ from it by more than a quarter: all earlier runs are forgotten.
// A job held at its peak would never show that it can use more. So one run in 9 may have half as many containers
// again, if no other job waits for them; and if all runs are alike, one is held at half as many. Both happen only if
// the caller permits a run to explore: none with a deadline should.
//
// Guarantees:
//   - names and runs are bounded; the oldest are forgotten first, and names with a curve last;
//   - the same runs give the same curve;
//   - an invalid run is refused.
//
// The package reads no clock and no file.
package runs
