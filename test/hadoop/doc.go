// Package hadoop tests the lab's Hadoop clusters: real, unmodified processes on this
// machine. What it claims: the answers of the paper's applications are right, a
// NodeManager on an emulated node is really slowed by that node's cap, jobs outlive a
// killed NodeManager, a killed master and a killed ResourceManager, a ResourceManager that
// asks for Kerberos is followed, jobs are sprinted, held to shares and made smaller as the
// coordinators decide, the queues of the fair and of the capacity scheduler follow,
// applications of Spark on YARN are seen and obey, copies of maps overtake what waits, an
// application whose deadline cannot be kept is refused with the numbers, and nothing is left of a cluster,
// whatever ended it.
//
// The one idea: one cluster serves the whole package, because starting JVMs is most of
// the work; a test takes it from shared and leaves it with all nodes running. Two proofs
// need another: the one with HDFS beside the first, whose holder is killed, and the one
// that powerlab profile starts itself. Only these two run side by side.
//
// It needs the Debian packages of packages.txt and, the first time, the network; what is
// missing is reported as not run.
package hadoop
