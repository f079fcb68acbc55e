// Package bench measures Headroom's figures on the machine at hand and prints
// them beside their goals: `powerlab bench`.
//
// The one idea: a number means little without the machine it was measured on
// and something to compare it with. So every figure that has a peer (bare
// system calls, a plain integrator, a bisection) is measured together with it in
// the same run, by turns, and shown as a ratio; and a fixed piece of work is
// timed around every figure, so that the reader sees how much the machine itself
// varied meanwhile.
//
// Figures that need processes start the built programs, or coordinators inside
// this process, on loopback addresses and in a folder of their own, and end all
// of them. The package asserts nothing: a figure that misses its goal is a row
// that says so, and the exit code stays 0. What cannot be measured here is a row
// that says why.
package bench
