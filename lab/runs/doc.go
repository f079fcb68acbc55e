// Package runs contains what the comparisons on real programs share: `powerlab arbitrate --engine`
// and `powerlab promises`.
//
// The one idea: variants run one after the other, each on its own cluster, in alternating order,
// with the same jobs and budgets. Each run yields a set of named results, and the first variant is
// compared with the others run by run.
//
// Guarantees: a verdict needs two runs, and its bounds hold for all judged results at once. A
// result that a run did not yield is absent. Production code does not use the package.
package runs
