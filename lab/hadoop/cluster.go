package hadoop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"headroom/lab/cluster"
)

// Main classes of the daemons.
const (
	mainRM       = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
	mainNode     = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
	mainNameNode = "org.apache.hadoop.hdfs.server.namenode.NameNode"
	mainDataNode = "org.apache.hadoop.hdfs.server.datanode.DataNode"
)

const (
	// heapRM and heapNode are the most that a daemon's heap grows to.
	heapRM, heapNode = "256m", "192m"
	// startMost bounds the start of a cluster: many times what it takes on a machine that is not busy.
	startMost = 2 * time.Minute
	// look is the pause between two looks at a daemon or a job.
	look = 100 * time.Millisecond
)

// Cluster is a running cluster. Its methods may be called from any goroutine.
type Cluster struct {
	config    Config
	addresses *addresses
	group     *cluster.Group
	java      string
	classes   string // the JVMs' option for the archive of classes

	mu      sync.Mutex
	daemons map[string]*cluster.Program

	jobs atomic.Int32 // clients started, to name their logs
}

// Start starts a cluster and returns when all its nodes are RUNNING. On an error nothing
// is left running; the logs stay in the folder logs below Config.Dir.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	dir, err := filepath.Abs(config.Dir)
	if err != nil || strings.ContainsAny(dir, " \t\n:;,<>&\"'") {
		return nil, fmt.Errorf("%w: folder %q: a name with blanks, quotes or any of :;,<>& cannot be in a class path", errors.Join(errConfig, err), dir)
	}
	config.Dir, config.Nodes, config.Scheduler = dir, slices.Clone(config.Nodes), cmp.Or(config.Scheduler, FairScheduler)
	for i, n := range config.Nodes {
		config.Nodes[i].MemoryMB, config.Nodes[i].VCores = cmp.Or(n.MemoryMB, 4096), cmp.Or(n.VCores, 4)
	}
	if len(config.Queues) == 0 {
		config.Queues = Queues3()
	}
	c := &Cluster{config: config, daemons: map[string]*cluster.Program{}}
	if c.java, err = cluster.Java(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.classes = config.Jars.archiveOption(c.java, config.classLists)
	if c.addresses, err = claimAddresses(); err != nil {
		return nil, err
	}
	if c.group, err = cluster.NewGroup(c.path("logs")); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startMost)
	defer cancel()
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.writeSite(); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(c.path("tmp"), 0o755), os.MkdirAll(c.path("staging"), 0o755)); err != nil {
		return fmt.Errorf("hadoop: folder of the cluster: %w", err)
	}
	if c.config.HDFS {
		if err := c.startHDFS(ctx); err != nil {
			return err
		}
	}
	if err := c.StartRM(); err != nil {
		return err
	}
	var names []string
	for _, n := range c.config.Nodes {
		if err := c.startNode(n); err != nil {
			return err
		}
		names = append(names, n.Name)
	}
	return c.AwaitNodes(ctx, names...)
}

// Close ends every process of the cluster, the jobs' containers too, and waits for it.
// The folder stays. A second call has no effect.
func (c *Cluster) Close() error { return c.group.Close() }

// Dir is the cluster's folder.
func (c *Cluster) Dir() string { return c.config.Dir }

// RM is the address of the ResourceManager's REST interface: http://HOST:PORT.
func (c *Cluster) RM() string { return "http://" + c.addresses.server(portRMWeb) }

// fileSystem is the default file system: file:/// or that of HDFS.
func (c *Cluster) fileSystem() string {
	if c.config.HDFS {
		return "hdfs://" + c.addresses.on(serverHost, portNameNode)
	}
	return "file:///"
}

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.config.Dir}, parts...)...)
}

// daemonOption marks the command line of a daemon's JVM.
const daemonOption = "-Dheadroom.daemon="

// command is the command line of a daemon or a client.
func (c *Cluster) command(name, heap, classPath, main string, args ...string) []string {
	argv := append([]string{c.java, "-Xmx" + heap}, c.jvm()...)
	argv = append(argv, "--add-opens=java.base/java.lang=ALL-UNNAMED", daemonOption+name, "-cp", classPath, main)
	return append(argv, args...)
}

// environment is what a daemon or a client has beside this process's environment.
func (c *Cluster) environment() []string {
	return []string{"HADOOP_CONF_DIR=" + c.path("conf"), "JAVA_HOME=" + filepath.Dir(filepath.Dir(c.java))}
}

// Shell is a shell script that starts the program whose main class and arguments are its
// arguments, such as org.apache.hadoop.yarn.client.cli.ApplicationCLI application -list, as a client of
// the cluster.
func (c *Cluster) Shell() string {
	var words []string
	for _, w := range slices.Concat([]string{"env"}, c.environment(), []string{c.java, "-Xmx256m"}, c.jvm(), []string{"-cp", c.classPath()}) {
		words = append(words, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return "#!/bin/sh\nexec " + strings.Join(words, " ") + " \"$@\"\n"
}

func (c *Cluster) startDaemon(name string, argv []string) error {
	p, err := c.group.Start(name, c.environment(), argv...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.daemons[name] = p
	return nil
}

func (c *Cluster) startNode(n Node) error {
	return c.startDaemon(n.Name, n.wrap(c.command(n.Name, heapNode, c.classPath(c.path(n.Name, "conf")), mainNode)))
}

// running is nil, or names the daemon that has ended without being killed.
func (c *Cluster) running() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.daemons {
		if err := p.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// kill ends a daemon's JVM, not what it has started, and forgets it.
func (c *Cluster) kill(name string) error {
	c.mu.Lock()
	p, runs := c.daemons[name]
	delete(c.daemons, name)
	c.mu.Unlock()
	if !runs {
		return fmt.Errorf("%w: daemon %s does not run", errNotFound, name)
	}
	c.group.Kill(func(q cluster.Process) bool { return q.Is(c.java, daemonOption+name) })
	<-p.Done() // what wrapped it ends with it
	return nil
}

// KillRM ends the ResourceManager as kill -9 does.
func (c *Cluster) KillRM() error { return c.kill(serverHost) }

// StartRM starts the ResourceManager. It takes up the jobs that it had.
func (c *Cluster) StartRM() error {
	return c.startDaemon(serverHost, c.command(serverHost, heapRM, c.classPath(), mainRM))
}

// ReplaceScheduler ends the ResourceManager as kill -9 does and starts it again with this
// scheduler class and these further properties. No job may be submitted meanwhile.
func (c *Cluster) ReplaceScheduler(class string, more map[string]string) error {
	c.config.Scheduler, c.config.Properties = class, properties(c.config.Properties).with(more)
	if err := errors.Join(c.KillRM(), c.write(c.yarn().xml(), "conf", "yarn-site.xml")); err != nil {
		return err
	}
	return c.StartRM()
}

// KillNode ends a NodeManager as kill -9 does. Its containers go on, as they do on a real
// machine; KillContainers ends them.
func (c *Cluster) KillNode(name string) error { return c.kill(name) }

// StartNode starts a NodeManager again; AwaitNodes waits for it.
func (c *Cluster) StartNode(name string) error {
	return c.startNode(c.config.Nodes[slices.IndexFunc(c.config.Nodes, func(n Node) bool { return n.Name == name })])
}

// KillContainers ends all containers of a node by SIGKILL and returns how many processes
// there were.
func (c *Cluster) KillContainers(node string) int {
	return c.group.Kill(func(p cluster.Process) bool { return p.Has("NM_HOST=" + node) })
}

// tool runs one of Hadoop's command line programs to its end.
func (c *Cluster) tool(ctx context.Context, name, main string, args ...string) error {
	p, err := c.group.Start(fmt.Sprintf("%s-%d", name, c.jobs.Add(1)), c.environment(), c.command(name, "128m", c.classPath(), main, args...)...)
	if err != nil {
		return err
	}
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("hadoop: %w", err)
	}
	return nil
}

// Put copies a file or folder of this machine into a folder of the default file system, which is
// made.
func (c *Cluster) Put(ctx context.Context, to, from string) error {
	if err := c.tool(ctx, "mkdir", mainShell, "-mkdir", "-p", to); err != nil {
		return err
	}
	return c.tool(ctx, "put", mainShell, "-put", from, to)
}

// Get copies a folder or a file of the default file system, whose name may be a pattern,
// to this machine; a folder's copy must not exist yet.
func (c *Cluster) Get(ctx context.Context, from, to string) error {
	return c.tool(ctx, "get", mainShell, "-get", from, to)
}

const mainShell = "org.apache.hadoop.fs.FsShell"
