// Package promises compares policies of admission and of copies of stragglers on real programs,
// with jobs that have deadlines and error bounds: `powerlab promises`.
//
// The one idea: coordinators, the scheduler and powerd are the production programs, on emulated
// nodes of this machine, one of them with a lower cap than the other. Tasks are real programs of
// the scheduler itself, of an unmodified Hadoop or of Spark, and some are slow. All policies get
// the same jobs at the same times and the same budgets. They run one after the other, each on its
// own cluster, in alternating order.
//
// Guarantees: the result of a job at its deadline is what samples of the scheduler showed by then,
// and joules come from the nodes' counters. Results count all submitted jobs: a refused job has met
// nothing. A value that was not measured is absent, and a single run has no bounds. The package
// starts programs only on loopback addresses and stops all of them. Production code does not use
// it.
package promises
