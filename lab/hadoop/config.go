package hadoop

import (
	"errors"
	"fmt"
	"os"
)

var (
	// ErrUnavailable reports that this machine lacks what Hadoop needs: java, or, as
	// long as the jars are not there, Maven or the network.
	ErrUnavailable = errors.New("hadoop: not available on this machine")
	// errConfig reports a folder or a data set that cannot be.
	errConfig = errors.New("hadoop: bad configuration")
	// errNotFound reports an application, a daemon or a container that is not there.
	errNotFound = fmt.Errorf("hadoop: not found: %w", os.ErrNotExist)
)

// FairScheduler is the scheduler class of Hadoop that jobs run on by default. It can lose the container
// of an application's master when a node reports within the application's first request, which a slow machine makes
// likely: the application then waits forever. LiveFairScheduler, of headroom-hadoop.jar, cannot. LiveCapacityScheduler, of the same
// jar, admits applications with deadlines.
const (
	LiveFairScheduler     = "headroom.hadoop.LiveFairScheduler"
	LiveCapacityScheduler = "headroom.hadoop.LiveCapacityScheduler"
	FairScheduler         = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"
)

// Config describes the cluster to start.
type Config struct {
	// Dir is the cluster's folder, which is made. No cluster has run in it.
	Dir string
	// Jars is what Fetch returned.
	Jars Jars
	// Nodes are the machines that a NodeManager (and, with HDFS, a DataNode) runs on.
	Nodes []Node
	// HDFS starts a NameNode and a DataNode per node, and makes it the default file system.
	HDFS bool
	// Queues are the schedulers' queues; Queues3 when there are none.
	Queues []Queue
	// Scheduler is the ResourceManager's scheduler class; FairScheduler when it is empty.
	Scheduler string
	// Plugins are jars that the daemons have on their class path beside Hadoop's.
	Plugins []string
	// Properties win over those of yarn-site.xml.
	Properties map[string]string

	classLists string // folder in which the JVMs list the classes that they load; see Prepare
}

// Node is one machine of the cluster.
type Node struct {
	// Name is the node's host name: letters, digits and dashes.
	Name string
	// MemoryMB and VCores are what the node offers to containers; 0 means 4096 and 4.
	// A map or reduce takes 256 MB, an application master 512 MB, each 1 vcore.
	MemoryMB, VCores int
	// Wrap changes the command line that starts the NodeManager, such as cluster.OnNode; it may be nil.
	Wrap func(argv []string) []string
}

// wrap is the command line that starts a daemon on the node.
func (n Node) wrap(argv []string) []string {
	if n.Wrap != nil {
		return n.Wrap(argv)
	}
	return argv
}

// Nodes returns n nodes, node1 and up, without a Wrap.
func Nodes(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i].Name = fmt.Sprintf("node%d", i+1)
	}
	return nodes
}
