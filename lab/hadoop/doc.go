// Package hadoop runs a cluster of real, unmodified Hadoop processes on this machine:
// a ResourceManager, NodeManagers and, where it is wanted, HDFS, for tests and studies.
//
// The one idea: a cluster is a group of processes of package cluster. Close ends what belongs
// to it, and nothing else: the containers of a NodeManager that was killed too. So does the
// group's guard when the process that started a cluster is killed itself.
//
// Two clusters never meet. Each has a range of loopback addresses (127.A.B.1 and up for
// its nodes, 127.A.B.254 for the servers) and a range of ports of its own, and host names
// come from a file of the cluster instead of from /etc/hosts. What Hadoop itself binds to
// every address, the shuffle and the application masters, has ports of the kernel's choice.
//
// A NodeManager may run on an emulated node (cluster.OnNode): its containers are then processes of
// that node, and the node's cap really slows them.
//
// It needs a JDK's java and, once, Maven and the network (Fetch); what is missing is an
// error that wraps ErrUnavailable. It never runs on a production node.
package hadoop
