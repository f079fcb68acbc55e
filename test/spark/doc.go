// Package spark tests Headroom's hook and engine on real Spark: a standalone Master and a
// Worker on each of two emulated nodes of a small site (one coordinator, powerd on each
// node), and applications in client mode. What it claims: an input that is thinned by theta
// keeps ceil(n (1 - theta)) of its partitions, the rest is never read, answers are scaled
// and wrong by no more than is told, and are exact at 0; lost executors change nothing of
// the set; and jobs that are submitted to the real scheduler are run, killed for higher
// classes, cancelled, and found again by a scheduler that was killed; a job with a deadline
// ends without its stragglers, or with copies of them; tasks run on slots that masters of groups grant.
//
// The one idea: one site and one Spark on it serve the whole package, because starting
// JVMs is most of the work; only the other version of Spark is started for itself, beside
// the proof of a killed executor. The other tests do not run side by side.
//
// It needs the Debian packages of packages.txt and, the first time, the network; what is
// missing is reported as not run.
package spark
