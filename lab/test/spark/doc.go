// Package spark tests Headroom's hook and engine on real Spark: a standalone Master and a Worker on
// each of two emulated nodes of a small site (one coordinator, powerd on each node), and
// applications in client mode. What it claims: an input with the drop ratio theta keeps ceil(n (1 -
// theta)) of its partitions and the rest is never read; answers are scaled, have an error within
// the reported one, and are exact at 0; lost executors do not change the set; jobs that are
// submitted to the real scheduler are run, killed for higher classes, cancelled, and found again by
// a restarted scheduler; a job with a deadline ends without its stragglers, or with copies of them;
// tasks run on slots that masters of groups grant; plans whose results a sample would falsify are
// computed exactly.
//
// The one idea: one site with one Spark, the newest, serves the whole package, because starting
// JVMs is most of the work. Older releases are left to make engines. Tests do not run in parallel.
//
// It needs the Debian packages of packages.txt and, the first time, the network. What is missing is
// reported as not run.
package spark
