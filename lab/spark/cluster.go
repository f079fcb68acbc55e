package spark

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"headroom/internal/pause"
	"headroom/lab/cluster"
)

const (
	mainExecutor = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
	// startMost bounds the start of a cluster: many times what it takes on a machine that is not busy.
	startMost = 2 * time.Minute
	// look is the pause between two looks at a daemon.
	look = 100 * time.Millisecond
	// lastMaster and lastDriver are the last parts of the addresses of the Master and of the drivers.
	lastMaster, lastDriver = 254, 253
	// memoryLeast is what a Worker offers at least, MiB: an executor's heap and what is beside it.
	memoryLeast = 768
)

// Config describes the cluster to start.
type Config struct {
	// Dir is the cluster's folder, which is made. No cluster has run in it.
	Dir string
	// Release is the result of Fetch.
	Release Release
	// Nodes are the machines that a Worker runs on.
	Nodes []Node
	// Plugin is headroom-spark.jar; empty for a cluster without hook.
	Plugin string
}

// Node is one machine of the cluster.
type Node struct {
	// Name is the node's name.
	Name string
	// Cores and MemoryMB are what its Worker offers; 0 means 1 and 768. Each application has one
	// executor on it, with all cores.
	Cores, MemoryMB int
	// Wrap changes the command line that starts the Worker, such as cluster.OnNode; it may be nil.
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

// Cluster is a running cluster. Its methods may be called from any goroutine.
type Cluster struct {
	config Config
	group  *cluster.Group
	a, b   int // of its addresses, 127.a.b.x
	master string
	web    string
	jobs   atomic.Int32
}

// Start starts a cluster and returns when all its Workers are alive. On an error nothing
// is left running; the logs stay in the folder logs below Config.Dir.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	dir, err := filepath.Abs(config.Dir)
	if err != nil || strings.ContainsAny(dir, " ,:\t") {
		return nil, fmt.Errorf("%w: folder %q: Spark's class paths bear no blanks, commas or colons", errors.Join(errConfig, err), dir)
	}
	if _, err := cluster.Java(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	config.Dir = dir
	c := &Cluster{config: config, a: 64 + rand.IntN(128), b: rand.IntN(256)}
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
	if err := c.writeDefaults(); err != nil {
		return fmt.Errorf("spark: configuration of the cluster: %w", err)
	}
	host := c.address(lastMaster)
	master, err := c.group.Start("master", c.daemonEnv(), c.daemon("org.apache.spark.deploy.master.Master", "--host", host, "--port", "0", "--webui-port", "0")...)
	if err != nil {
		return err
	}
	if c.master, err = c.awaitLine(ctx, master, regexp.MustCompile(`Starting Spark master at (spark://[0-9.]+:[0-9]+)`)); err != nil {
		return err
	}
	port, err := c.awaitLine(ctx, master, regexp.MustCompile(`MasterWebUI.* started at http://[^ ]+:([0-9]+)`))
	if err != nil {
		return err
	}
	c.web = "http://" + net.JoinHostPort(host, port) // it listens on all addresses, and names one that may be another's
	daemons := []*cluster.Program{master}
	for i, n := range c.config.Nodes {
		argv := c.daemon("org.apache.spark.deploy.worker.Worker", "--host", c.address(i+1), "--port", "0", "--webui-port", "0", "-c", fmt.Sprint(max(1, n.Cores)), "-m", fmt.Sprintf("%dm", max(memoryLeast, n.MemoryMB)), "-d", c.path(n.Name), c.master)
		if n.Wrap != nil {
			argv = n.Wrap(argv)
		}
		p, err := c.group.Start(n.Name, c.daemonEnv(), argv...)
		if err != nil {
			return err
		}
		daemons = append(daemons, p)
	}
	return await(ctx, "the workers are not alive", daemons, func() bool {
		state, err := c.state(ctx)
		return err == nil && state.Alive == len(c.config.Nodes) // the page may not answer yet
	})
}

// daemon is the command line of a daemon.
func (c *Cluster) daemon(words ...string) []string {
	return append([]string{filepath.Join(c.config.Release.Home, "bin", "spark-class")}, words...)
}

// jvm are the options of every JVM: short jobs on few cores gain from less compiling.
const jvm = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

func (c *Cluster) daemonEnv() []string {
	return []string{
		"SPARK_HOME=" + c.config.Release.Home, "SPARK_DAEMON_MEMORY=192m", "SPARK_DAEMON_JAVA_OPTS=" + jvm, "SPARK_CONF_DIR=" + c.path("daemons"),
		"SPARK_LOCAL_DIRS=" + c.path("scratch"), "SPARK_NO_DAEMONIZE=1",
	}
}

// awaitLine waits for a line of a daemon's log and is its first group.
func (c *Cluster) awaitLine(ctx context.Context, p *cluster.Program, line *regexp.Regexp) (found string, err error) {
	err = await(ctx, p.Name+" does not say where it listens", []*cluster.Program{p}, func() bool {
		text, _ := os.ReadFile(p.Log) // it is there from the start
		if m := line.FindSubmatch(text); m != nil {
			found = string(m[1])
		}
		return found != ""
	})
	return found, err
}

// await polls until done returns true or one of the daemons has ended.
func await(ctx context.Context, not string, daemons []*cluster.Program, done func() bool) error {
	for !done() {
		for _, p := range daemons {
			if err := p.Ended(); err != nil {
				return err
			}
		}
		if !pause.For(ctx, look) {
			return fmt.Errorf("spark: %s: %w", not, ctx.Err())
		}
	}
	return nil
}

// masterState is the state on the Master's page.
type masterState struct {
	Alive  int `json:"aliveworkers"`
	Active []struct {
		Name  string
		Cores int
	} `json:"activeapps"`
}

func (c *Cluster) state(ctx context.Context) (s masterState, err error) {
	err = cluster.Request(ctx, http.MethodGet, c.web+"/json/", "", &s)
	return s, err
}

// Cores returns the cores of each running application by its name.
func (c *Cluster) Cores(ctx context.Context) (map[string]int, error) {
	s, err := c.state(ctx)
	cores := map[string]int{}
	for _, a := range s.Active {
		cores[a.Name] += a.Cores
	}
	return cores, err
}

// Close ends every process of the cluster, executors and drivers too, and waits for it.
// The folder stays. A second call has no effect.
func (c *Cluster) Close() error { return c.group.Close() }

// Master returns the address for applications, spark://HOST:PORT.
func (c *Cluster) Master() string { return c.master }

// Web is the address of the Master's page, http://HOST:PORT.
func (c *Cluster) Web() string { return c.web }

// Release is what runs.
func (c *Cluster) Release() Release { return c.config.Release }

// ConfDir returns the SPARK_CONF_DIR for drivers.
func (c *Cluster) ConfDir() string { return c.path("conf") }

// Hosts are the names of the nodes by their Workers' hosts.
func (c *Cluster) Hosts() map[string]string {
	hosts := make(map[string]string)
	for i, n := range c.config.Nodes {
		hosts[c.address(i+1)] = n.Name
	}
	return hosts
}

// KillExecutors ends the executors of a node as kill -9 does and returns how many there were.
func (c *Cluster) KillExecutors(node string) int {
	i := slices.IndexFunc(c.config.Nodes, func(n Node) bool { return n.Name == node })
	return c.group.Kill(func(p cluster.Process) bool { return i >= 0 && p.Called(mainExecutor, c.address(i+1)) })
}

// Executors is the number of executors on all nodes.
func (c *Cluster) Executors() int {
	return c.group.Count(func(p cluster.Process) bool { return p.Called(mainExecutor) })
}

func (c *Cluster) address(last int) string { return fmt.Sprintf("127.%d.%d.%d", c.a, c.b, last) }

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.config.Dir}, parts...)...)
}
