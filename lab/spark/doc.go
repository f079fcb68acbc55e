// Package spark runs a cluster of real, unmodified Spark processes on this machine, for
// tests and studies: a standalone Master and Workers, and applications as users submit
// them, in client mode, with Headroom's hook or without.
//
// The one idea: a cluster is a group of processes of package cluster. Close ends what belongs
// to it, executors and drivers too, and nothing else; so does the group's guard when the
// process that started a cluster is killed itself.
//
// Two clusters never meet: each has loopback addresses of its own (127.A.B.1 and up for
// its nodes, 127.A.B.254 for the Master, 127.A.B.253 for drivers), and the kernel chooses
// every port. A Worker may run on an emulated node (cluster.OnNode): its executors are then
// processes of that node, and the node's cap really slows them.
//
// The data sets that it writes have answers that are known exactly (CountWords,
// CountTriangles), so that the error of a job that has dropped a part of its input can be
// measured.
//
// It needs a JDK's java and, once, python3 with venv and the network (Fetch); what is
// missing is an error that wraps ErrUnavailable. It never runs on a production node.
package spark
