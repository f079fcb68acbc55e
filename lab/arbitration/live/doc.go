// Package live runs a mixed load on real programs, as the arbiter decides and by simple rules:
// `powerlab arbitrate --engine`.
//
// The one idea: what the simulated comparison assumes is measured here. Coordinators, the scheduler and powerd are the
// programs that production runs, on emulated nodes of this machine; tasks are real programs, which caps really slow: of the
// scheduler's own workers, of a real Hadoop or of a real Spark.
// All ways to decide get the same jobs at the same moments, the same budgets and the same joules for sprints, one after
// the other on clusters of their own, forth and back.
//
// Guarantees: figures have the names and the meaning of the simulated ones; latencies are those that a client of the
// scheduler sees, joules those that the nodes' own counters show, and by how much sprints speed the cluster up is
// measured in the same runs. What was not measured is absent, and one run has no bounds. The package starts programs on
// loopback addresses only and ends all of them. It decides nothing that production uses.
package live
