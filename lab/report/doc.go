// Package report is the form of every result of the lab: targets of a paper with verdicts, and
// comparisons of variants with bounds, as a table, as JSON, as files and as a plot.
//
// The one idea: a number is a mean of independent runs with 95 % bounds, and each verdict follows
// from the bounds by the same rule everywhere. A Target compares a number with one of a paper. A
// Comparison compares the first of several variants with the others, run by run, with bounds that
// hold for all judged figures at once.
//
// Guarantees: the JSON of a report only grows. The same values give the same bytes. A number that was
// not measured is absent, and never reproduces anything. Exit code 8 means that a verdict is short.
package report
