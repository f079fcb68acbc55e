// Package spark tests Headroom's hook and engine on real Spark: a standalone Master and a
// Worker on each of two emulated nodes, and applications in client mode. What it claims:
// an input that is thinned by theta keeps ceil(n (1 - theta)) of its partitions, the rest
// is never read, answers are scaled and wrong by no more than is told, and are exact at 0;
// lost executors change nothing of the set; and jobs that are submitted to the real
// scheduler are run, killed for higher classes, cancelled, and found again by a scheduler
// that was killed.
//
// The one idea: one cluster serves the tests of the hook, because starting JVMs is most of
// the work. The tests do not run side by side.
//
// It needs the Debian packages of packages.txt and, the first time, the network; what is
// missing is reported as not run.
package spark
