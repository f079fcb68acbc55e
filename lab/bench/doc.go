// Package bench measures Headroom's performance on this machine: `powerlab bench`.
//
// The one idea: a result is meaningful only next to its goal, to a peer that does the same work in
// the same run, and to the machine's noise. So every benchmark states its goal. Where there is
// another way to do the same work, it is implemented here fairly and measured in turn. A fixed loop
// of arithmetic is timed throughout the run, so that a reader sees which differences come from the
// machine.
//
// There are three kinds of benchmarks: the control law on the emulated plant in virtual time
// (cap-step); pure functions and device reads in this process (sample, plan, arbiter); and real
// processes on loopback: powerd on an emulated node (agent, start), and three coordinators with
// streams that act as nodes (cut, failover).
//
// `powerlab bench node` runs the node's whole control law, including wall power from a slow BMC,
// and the laws of other systems, on the same steps and loads.
//
// `powerlab bench cluster` connects a thousand nodes that run powerd's own exchange to three
// coordinators, and puts as many leases on etcd.
//
// Guarantees: every loop is bounded and a whole run has a deadline. Everything that it starts is
// stopped, by process group. It uses only loopback and leaves no file behind. A value that could
// not be measured is unknown, with the reason, never zero. The package makes no assertions: tests
// check that each result is finite, never that it is good.
package bench
