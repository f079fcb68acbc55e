// Package spark runs a cluster of real, unmodified Spark processes on this machine for tests and
// studies: a standalone Master and Workers, and applications as users submit them, in client mode,
// with or without Headroom's hook.
//
// The one idea: a cluster is a group of processes of package cluster, which end together, and two
// never interfere: each has its own loopback addresses, and the kernel chooses every port. A Worker
// may run on an emulated node (cluster.OnNode); the node's cap then really slows its executors.
//
// The generated data sets have exactly known answers, so the error of a job that dropped part of its
// input can be measured. If something is missing on this machine, the error wraps ErrUnavailable.
package spark
