package hadoop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
)

// patience bounds one test's work: many times what it takes on a machine that is not busy.
const patience = 4 * time.Minute

// fetchMost bounds the first run's fetching.
const fetchMost = 7 * time.Minute

// jars are Hadoop's jars, once for all tests.
var jars = sync.OnceValues(func() (hadoop.Jars, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	return hadoop.FetchRelease(ctx, release(), "")
})

// releaseSet is the variable that names another release than the newest.
const releaseSet = "HEADROOM_HADOOP"

// release is the Hadoop that the tests run: the newest; make engines proves the older one.
func release() string { return cmp.Or(os.Getenv(releaseSet), hadoop.Newest) }

// lab is what the tests share: two emulated nodes, n1 and n2, that own three eighths of
// the host's CPUs each, and a cluster with a NodeManager on each.
type lab struct {
	*hadoop.Cluster
	bin      string // folder of the programs
	dir      string // of everything below
	plugin   string // headroom-hadoop.jar
	apps     string // headroom-apps.jar
	nodes    string // folder of the emulated nodes
	hooks    *hooks // where the ResourceManager's plug-in sends its queries
	machines *cluster.Group
	programs []*cluster.Program
}

// theLab is the lab while it runs, or why it cannot; nil before the first test needs it.
var theLab func() (*lab, error)

// shared is the package's lab. It starts once, until a test closes it.
func shared(t *testing.T) *lab {
	t.Helper()
	if theLab == nil {
		theLab = sync.OnceValues(startLab)
	}
	l, err := theLab()
	permitted(t, err)
	return l
}

// closeShared closes the package's lab if it runs.
func closeShared() error {
	if theLab == nil {
		return nil
	}
	l, err := theLab()
	theLab = nil
	if err != nil {
		return nil // a test has reported it
	}
	return l.Close()
}

func startLab() (l *lab, err error) {
	j, err := jars()
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headroom-hadoop-")
	if err != nil {
		return nil, err
	}
	l = &lab{dir: dir, bin: filepath.Join(root, "bin"), nodes: filepath.Join(dir, "nodes")}
	l.plugin, l.apps = filepath.Join(l.bin, "headroom-hadoop.jar"), filepath.Join(l.bin, "headroom-apps.jar")
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	if err := j.Prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err) // it takes longer without
	}
	if err := l.start(ctx, root, j); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// start builds what the lab runs as `make build` and `make hooks` do, and starts it.
func (l *lab) start(ctx context.Context, root string, j hadoop.Jars) (err error) {
	if err := errors.Join(cluster.BuildHooks(ctx, root, l.bin), cluster.BuildPrograms(ctx, l.bin)); err != nil {
		return err
	}
	if l.machines, err = cluster.NewGroup(filepath.Join(l.dir, "logs")); err != nil {
		return err
	}
	powerlab := filepath.Join(l.bin, "powerlab")
	var nodes []hadoop.Node
	for _, name := range []string{"n1", "n2"} {
		p, err := l.machines.Start(name, nil, powerlab, "node", name, "--dir", l.nodes, "--nodes", "2", "--domain", "rack/r1", "--no-powerd", "--no-worker")
		if err != nil {
			return err
		}
		l.programs = append(l.programs, p)
		nodes = append(nodes, hadoop.Node{Name: name, Wrap: cluster.OnNode(powerlab, l.nodes, name)})
	}
	if err := cluster.AwaitNodes(l.nodes, "n1", "n2"); err != nil {
		return err
	}
	l.hooks = newHooks()
	l.Cluster, err = hadoop.Start(ctx, hadoop.Config{
		Dir: filepath.Join(l.dir, "shared"), Jars: j, Nodes: nodes, Plugins: []string{l.plugin}, Scheduler: hadoop.LiveFairScheduler,
		Properties: map[string]string{"headroom.url": l.hooks.server.URL},
	})
	return err
}

// stopGrace is how long an emulated node may take to stop.
const stopGrace = 10 * time.Second

// Close ends the cluster, then the machines below it, and removes their folder.
func (l *lab) Close() error {
	var errs []error
	if l.Cluster != nil {
		errs = append(errs, l.Cluster.Close())
	}
	for _, p := range l.programs {
		p.Stop(stopGrace)
	}
	if l.hooks != nil {
		l.hooks.server.Close()
	}
	if l.machines != nil {
		errs = append(errs, l.machines.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// packageLimit is the file of a package's power limit, below a node's root.
const packageLimit = "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"

// limit sets the package's power limit of an emulated node, as powerd does for a cap.
func (l *lab) limit(t *testing.T, node string, microwatts int64) {
	t.Helper()
	path := filepath.Join(l.nodes, node, "root", packageLimit)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(f, "%d\n", microwatts)
	testkit.Check(t, errors.Join(err, f.Close()))
}

// permitted ends the test as not run where the machine lacks what Hadoop needs.
func permitted(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, hadoop.ErrUnavailable) || errors.Is(err, cluster.ErrUnable) {
		testkit.NotRun(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// within is the context of a test's work.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdIn); dir != "" {
		hold(dir)
	}
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
