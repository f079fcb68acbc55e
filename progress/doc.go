// Package progress predicts when a job of many tasks will end: now, under another cap, with other containers, and
// without any cap.
//
// The one idea: a job's progress rate, tasks completed per second, is measured and converted to other conditions. The
// policies differ in how. Paper is the filter of CAB (Nabavinejad et al., DATE 2018, equations 1 and 2): the mean of
// the last four rates, each in proportion to cap and containers. Released is what CAB's published code does instead.
// Learned, the default, assumes that the rate is a power of cap and containers. It learns the exponents while the job
// runs, starting from earlier jobs, and returns its confidence.
//
//	t := progress.NewTracker(progress.Learned)
//	_ = t.Observe(progress.Observation{Elapsed: 30 * time.Second, Tasks: 200, Done: 12, ...})
//	f := t.Finish(175*units.Watt, 9, 200) // when 200 map tasks will be done, and then the rest of the job
//
// Guarantees: an unknown result is reported as unknown; no observation gives a rate or a time that is negative,
// infinite or NaN. More power or more containers never make an estimate later. The same observations give the same
// estimates.
//
// The package reads no clock, starts nothing and decides nothing: package containers decides who gets containers,
// package arbiter when a job stops.
package progress
