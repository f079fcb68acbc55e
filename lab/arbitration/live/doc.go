// Package live compares the arbiter with simple rules under a mixed load on real programs:
// `powerlab arbitrate --engine`.
//
// The one idea: it measures what the simulated comparison assumes. Coordinators, the scheduler and
// powerd are the production programs, on emulated nodes of this machine. Tasks are real programs of
// the scheduler's own workers, of a real Hadoop or of a real Spark, and caps really slow them down.
// All policies get the same jobs at the same times, the same budgets and the same sprint joules.
// They run one after the other, each on its own cluster, in alternating order.
//
// Guarantees: results have the names and the meaning of the simulated ones. Latencies are those
// seen by a client of the scheduler, joules come from the nodes' own counters, and the speed-up by
// sprints is measured in the same runs. A value that was not measured is absent, and a single run
// has no bounds. The package starts programs only on loopback addresses and stops all of them.
// Production code does not use it.
package live
