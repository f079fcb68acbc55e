// Package bench measures Headroom's performance on this machine: `powerlab bench`.
//
// The one idea: a result is meaningful only next to its goal, to a peer that does the same work in
// the same run, and to the machine's noise, which a fixed loop of arithmetic shows throughout the run.
//
// figures.go is the table of all figures; a benchmark is a function that measures some of them, in
// virtual time, in this process or with real processes on loopback. ranges.yaml has what was
// measured, in which runs, and the range that each figure is expected in: `powerlab bench --check`
// compares a result with it, and docs/benchmarks.md is generated from it.
//
// Guarantees: a whole run has a deadline. Everything that it starts is stopped, and it leaves no
// file behind. A value that could not be measured is unknown, with the reason, never zero.
package bench
