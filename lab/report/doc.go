// Package report is the form of the lab's results: targets of a paper with bounds and verdicts, as a
// table, as JSON, as Markdown and as a plot.
//
// The one idea: a number is a mean of independent runs with 95 % bounds, and a target compares it with
// a number of a paper by the same rule in every study.
//
// Guarantees: the same values give the same bytes. A number that was
// not measured is absent, and never reproduces anything. Exit code 8 means that a target is short.
package report
