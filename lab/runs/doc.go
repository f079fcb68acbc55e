// Package runs holds what comparisons on real programs share: `powerlab arbitrate --engine` and
// `powerlab promises`.
//
// The one idea: variants run one after the other on clusters of their own, forth in one run and back in the next, with the
// same jobs and budgets. What each run shows is a set of named figures, and the first variant is held against the others
// run by run.
//
// Guarantees: a verdict needs two runs, and its bounds hold for all judged figures at once. A figure that a run did not
// show is absent. The package decides nothing that production uses.
package runs
