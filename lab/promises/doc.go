// Package promises runs jobs with deadlines and error bounds on real programs, with and without what keeps their promises:
// `powerlab promises`.
//
// The one idea: coordinators, the scheduler and powerd are the programs that production runs, on emulated nodes of this
// machine, one of them capped harder than the other; tasks are real programs, of the scheduler itself, an unmodified Hadoop or
// Spark, and some are slow. All ways to decide about admission and copies get the same jobs at the same moments and the same
// budgets, one after the other on clusters of their own, forth and back.
//
// Guarantees: what a job has reached by its deadline is what looks at the scheduler showed by then, and joules are those of
// the nodes' counters. Figures count all submitted jobs: a refused job has met nothing. What was not measured is absent, and
// one run has no bounds. The package starts programs on loopback addresses only and ends all of them. It decides nothing
// that production uses.
package promises
