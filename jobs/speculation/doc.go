// Package speculation decides what a job runs next in a free slot: a waiting task, or another copy of a running one.
// The source is GRASS (Ananthanarayanan et al., NSDI 2014): a job has a deadline or an error bound, and a copy that
// saves one task may use the slot that would have run two.
//
// The one idea: every policy ranks the tasks of one [View], and the best of them get the free slots. A rank is a
// class and a number, so that a rule takes two lines and can be reimplemented in an engine's own language. [Decide]
// is a function of the view: what persists between decisions (a job has switched, samples of past jobs) is an
// argument.
//
// Guarantees:
//   - at most one action per free slot;
//   - no task is launched twice in one decision;
//   - policies that use the deadline give no slot to a task that cannot end before it;
//   - ties go to the lowest ID;
//   - the same view gives the same actions.
//
// Missing estimates have a documented fallback, and invalid input is an error with its place.
//
// The package also has the two estimators that the rules need ([Remaining], [Durations]) with their [Accuracy], and
// samples of past jobs ([Samples]). Its tests have the paper's model of Pareto task times. It never reads a clock or
// a random source, starts nothing, and sees no duration before its task has ended: only the policy [Oracle] takes its
// view as exact.
package speculation
