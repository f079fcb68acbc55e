// Package hadoop runs a cluster of real, unmodified Hadoop processes on this machine for tests and
// studies: a ResourceManager, NodeManagers and optionally HDFS.
//
// The one idea: a cluster is a group of processes of package cluster. Close ends everything that
// belongs to it and nothing else, including the containers of a killed NodeManager. The group's
// guard does the same if the process that started the cluster is killed itself.
//
// Two clusters never interfere. Each has its own range of loopback addresses (127.A.B.1 and up for
// its nodes, 127.A.B.254 for the servers) and its own range of ports, and host names come from a
// file of the cluster instead of /etc/hosts. The parts that Hadoop binds to every address, the
// shuffle and the application masters, have ports chosen by the kernel.
//
// A NodeManager may run on an emulated node (cluster.OnNode). Its containers are then processes of
// that node, and the node's cap really slows them down.
//
// It needs a JDK's java and, the first time, Maven and the network (Fetch). If something is
// missing, the error wraps ErrUnavailable. It never runs on a production node.
package hadoop
