// Package bench measures Headroom's performance on this machine: `powerlab bench`.
//
// The one idea: a result is meaningful only next to its goal, to a peer that does the same work in
// the same run, and to the machine's noise. So every figure states its goal. Where there is another
// way to do the same work, it is implemented here fairly and measured in turn. A fixed loop of
// arithmetic is timed throughout the run, so that a reader sees which differences come from the
// machine.
//
// figures.go is the table of all figures. A benchmark is a function that measures some of them: the
// control law on the emulated plant in virtual time; pure functions and device reads in this
// process; and real processes on loopback. ranges.yaml has the measured value of each figure, the
// runs it came from and the range that it is expected in; `powerlab bench --check` compares a
// result with it, and docs/benchmarks.md is generated from it.
//
// `powerlab bench cluster` connects a thousand nodes that run powerd's own exchange to three
// coordinators, and puts as many leases on etcd.
//
// Guarantees: every loop is bounded and a whole run has a deadline. Everything that it starts is
// stopped, by process group. It uses only loopback and leaves no file behind. A value that could
// not be measured is unknown, with the reason, never zero. No test asserts a timing.
package bench
