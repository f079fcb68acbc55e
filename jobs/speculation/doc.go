// Package speculation decides what a job runs next in a free slot: a task that waits, or
// another copy of one that runs. The source is GRASS (Ananthanarayanan et al., NSDI 2014):
// a job has a promise to keep, a deadline or an error bound, and a copy that saves one
// task may cost the slot that would have run two.
//
// The one idea: every policy ranks the tasks of one [View], and the best of them get the
// free slots. A rank is a class and a number, so that a rule fits in two lines and can be
// written anew in an engine's own language. [Decide] is a function of the view: what lasts
// from one decision to the next (a job has switched, samples of past jobs) is passed in.
//
// Guarantees: at most one action a free slot; no task is launched twice in one decision;
// no task that cannot end before the deadline gets a slot, by the policies that know the
// deadline; ties go to the lowest ID; the same view gives the same actions. Missing
// estimates have a stated fallback, and what makes no sense is an error with its place.
//
// The package also holds the two estimators that the rules need ([Remaining],
// [Durations]) with their [Accuracy], samples of past jobs ([Samples]), and the paper's
// model of Pareto task times ([Pareto], [Model]). It never reads a clock or a random
// source, starts nothing, and sees no duration before its task has ended: only the policy
// [Oracle] takes its view as the truth.
package speculation
