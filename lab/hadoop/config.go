package hadoop

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
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
	// Dir is the cluster's folder, which is made. One that a cluster has run in is
	// refused; so is one whose name holds blanks or colons, which class paths cannot.
	Dir string
	// Jars is what Fetch returned.
	Jars Jars
	// Nodes are the machines that a NodeManager (and, with HDFS, a DataNode) runs on.
	Nodes []Node
	// HDFS starts a NameNode and a DataNode per node, and makes it the default file
	// system. Without it that is the machine's own.
	HDFS bool
	// Queues are the schedulers' queues; Queues3 when there are none.
	Queues []Queue
	// Scheduler is the ResourceManager's scheduler class; FairScheduler when it is empty.
	Scheduler string
	// Plugins are jars that the daemons have on their class path beside Hadoop's.
	Plugins []string
	// Properties are added to yarn-site.xml of the ResourceManager and of all nodes, and
	// win over what is written there.
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
	// Wrap makes the command line that starts the NodeManager out of the NodeManager's
	// own; nil runs it as it is. See cluster.OnNode: its containers are then on that node too.
	Wrap func(argv []string) []string
}

// Nodes returns n nodes, node1 and up, without a Wrap.
func Nodes(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i].Name = fmt.Sprintf("node%d", i+1)
	}
	return nodes
}

// heartbeat is how often nodes report and the scheduler looks.
const heartbeat = 200 * time.Millisecond

// The defaults of a Config.
const (
	memoryMB = 4096
	vcores   = 4
)

// nodesMost is how many addresses 127.A.B.1 and up a cluster gives to nodes.
const nodesMost = 200

var (
	hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	pathName = regexp.MustCompile(`^[^\s:;,<>&"']+$`)
)

// complete checks the configuration and fills in the defaults.
func (c *Config) complete() (err error) {
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("hadoop: folder of the cluster: %w", err)
	}
	if !pathName.MatchString(c.Dir) {
		return fmt.Errorf("%w: folder %q: a name with blanks, quotes or any of :;,<>& cannot be in a class path", errConfig, c.Dir)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "conf")); err == nil {
		return fmt.Errorf("%w: %s holds another cluster: name a new folder", errConfig, c.Dir)
	}
	if len(c.Jars.names) == 0 {
		return fmt.Errorf("%w: no jars: Fetch gets them", errConfig)
	}
	c.Nodes = slices.Clone(c.Nodes)
	if err := c.completeNodes(); err != nil {
		return err
	}
	if len(c.Queues) == 0 {
		c.Queues = Queues3()
	}
	c.Scheduler = cmp.Or(c.Scheduler, FairScheduler)
	c.Properties = maps.Clone(c.Properties)
	return nil
}

func (c *Config) completeNodes() error {
	if len(c.Nodes) < 1 || len(c.Nodes) > nodesMost {
		return fmt.Errorf("%w: %d nodes: a cluster has 1 to %d", errConfig, len(c.Nodes), nodesMost)
	}
	names := map[string]bool{serverHost: true, "localhost": true}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if !hostName.MatchString(n.Name) || names[n.Name] {
			return fmt.Errorf("%w: node name %q is taken, or not made of letters, digits and dashes", errConfig, n.Name)
		}
		names[n.Name] = true
		if n.MemoryMB <= 0 {
			n.MemoryMB = memoryMB
		}
		if n.VCores <= 0 {
			n.VCores = vcores
		}
	}
	return nil
}
