// Package hadoop tests the lab's Hadoop clusters: real, unmodified processes on this machine. What
// it claims: the answers of the paper's applications are right; a NodeManager on an emulated node
// is really slowed down by that node's cap; jobs survive a killed NodeManager, a killed master and
// a killed ResourceManager; a ResourceManager that requires Kerberos is supported; jobs sprint,
// keep to shares and drop tasks as the coordinators decide; the queues of the fair and of the
// capacity scheduler follow; applications of Spark on YARN are visible and controlled; copies of
// maps start before waiting ones; an application that cannot meet its deadline is refused with the
// numbers; and nothing remains of a cluster, whatever ended it.
//
// The one idea: one cluster serves the whole package, because starting JVMs is most of the work. A
// test gets it from shared and leaves it with all nodes running. Two proofs need another cluster:
// the one with HDFS in parallel to the first, whose holder is killed, and the one that powerlab
// profile starts itself. Only these two run in parallel.
//
// It needs the Debian packages of packages.txt and, the first time, the network. What is missing is
// reported as not run.
package hadoop
