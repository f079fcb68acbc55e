// Package pigeon is `powerlab paper pigeon`: the experiments of Pigeon (Li's dissertation, chapter
// 4; Wang, Li et al., SoCC 2019), a scheduler that splits the tasks of a job over groups of
// workers, each with a master and a queue per priority.
//
// The one idea: only messages and tasks are simulated. The policies are those of the packages below
// jobs/dispatch, driven by package dispatch of the lab, as in powerlab solve dispatch and in real
// masters. The closed forms are those of package theory. All policies get the same jobs.
//
// Guarantees: the same seeds and traces give the same bytes. A target on a missing trace is
// not_run; an error in a trace is reported with file and line. Percentiles are those of package
// quantiles, within 0.1 %. Nothing is written outside the folder of --out.
package pigeon
