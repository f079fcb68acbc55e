// Package spark runs a cluster of real, unmodified Spark processes on this machine for tests and
// studies: a standalone Master and Workers, and applications as users submit them, in client mode,
// with or without Headroom's hook.
//
// The one idea: a cluster is a group of processes of package cluster. Close ends everything that
// belongs to it and nothing else, including executors and drivers. The group's guard does the same
// if the process that started the cluster is killed itself.
//
// Two clusters never interfere: each has its own loopback addresses (127.A.B.1 and up for its
// nodes, 127.A.B.254 for the Master, 127.A.B.253 for drivers), and the kernel chooses every port. A
// Worker may run on an emulated node (cluster.OnNode). Its executors are then processes of that
// node, and the node's cap really slows them down.
//
// The generated data sets have exactly known answers (CountWords, CountTriangles), so the error of
// a job that dropped part of its input can be measured.
//
// It needs a JDK's java and, the first time, python3 with venv and the network (Fetch). If
// something is missing, the error wraps ErrUnavailable. It never runs on a production node.
package spark
