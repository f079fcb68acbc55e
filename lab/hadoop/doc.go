// Package hadoop runs a cluster of real, unmodified Hadoop processes on this machine for tests and
// studies: a ResourceManager, NodeManagers and optionally HDFS.
//
// The one idea: a cluster is a group of processes of package cluster, which end together, also the
// containers of a killed NodeManager, and two never interfere: each has its own ranges of loopback
// addresses and ports, and host names come from a file of the cluster instead of /etc/hosts. A
// NodeManager may run on an emulated node (cluster.OnNode); the node's cap then really slows its
// containers. If something is missing on this machine, the error wraps ErrUnavailable.
package hadoop
