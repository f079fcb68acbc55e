// Package bench measures the figures that Headroom is judged by, on the machine
// it runs on: `powerlab bench`.
//
// The one idea: a figure means something only beside its goal, beside a peer that
// does the same work in the same run, and beside the noise of the machine that
// made it. So every figure names its goal; where another way of doing the same
// exists it is written here, honestly, and measured in turn; and a fixed loop of
// arithmetic is timed all through the run, so that a reader sees how much of a
// difference is the machine's.
//
// Three kinds of figure: the control law on the emulated plant in virtual time
// (cap-step), pure functions and device reads in this process (sample, plan, arbiter), and
// real processes on loopback: powerd on an emulated node (agent, start) and a group
// of three coordinators with streams that act as nodes (cut, failover).
//
// `powerlab bench node` tries the node's whole control law, wall power by a slow BMC
// included, beside the laws of other systems on the same steps and loads.
//
// `powerlab bench cluster` puts a thousand nodes that run powerd's own exchange on a
// group of three coordinators, and as many leases on etcd.
//
// Guarantees: every loop is bounded and a whole run has a deadline; everything it
// starts it ends, by process group; it listens and connects on loopback only and
// leaves no file behind. A figure that could not be measured is unknown, with the
// reason, never zero. The package asserts nothing: tests check that each figure
// comes out finite, and never that it is good.
package bench
