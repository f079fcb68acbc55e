package hadoop

import (
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

// scratch is the folder of everything that the package makes; TestMain removes it.
func scratch() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("headroom-hadoop-%d", os.Getpid()))
}

// jars are Hadoop's jars, once for all tests.
var jars = sync.OnceValues(func() (hadoop.Jars, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	return hadoop.Fetch(ctx, "")
})

// lab is what the tests share: two emulated nodes, n1 and n2, that own three eighths of
// the host's CPUs each, and a cluster with a NodeManager on each.
type lab struct {
	*hadoop.Cluster
	nodes    string // folder of the emulated nodes
	machines *cluster.Group
	programs []*cluster.Program
}

// theLab starts the lab, once for all tests.
var theLab = sync.OnceValues(func() (l *lab, err error) {
	j, err := jars()
	if err != nil {
		return nil, err
	}
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	powerlab := filepath.Join(bin, "powerlab")
	l = &lab{nodes: filepath.Join(scratch(), "nodes")}
	if l.machines, err = cluster.NewGroup(filepath.Join(scratch(), "logs")); err != nil {
		return nil, err
	}
	var nodes []hadoop.Node
	for _, name := range []string{"n1", "n2"} {
		p, err := l.machines.Start(name, nil, powerlab, "node", name, "--dir", l.nodes, "--nodes", "2", "--no-powerd", "--no-worker")
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.programs = append(l.programs, p)
		nodes = append(nodes, hadoop.Node{Name: name, Wrap: hadoop.OnNode(powerlab, l.nodes, name)})
	}
	if err := cluster.AwaitNodes(l.nodes, "n1", "n2"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.Cluster, err = hadoop.Start(context.Background(), hadoop.Config{Dir: filepath.Join(scratch(), "shared"), Jars: j, Nodes: nodes})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
})

// stopGrace is how long an emulated node may take to stop.
const stopGrace = 10 * time.Second

// Close ends the cluster, then the machines below it.
func (l *lab) Close() error {
	var errs []error
	if l.Cluster != nil {
		errs = append(errs, l.Cluster.Close())
	}
	for _, p := range l.programs {
		p.Stop(stopGrace)
	}
	return errors.Join(append(errs, l.machines.Close())...)
}

// limit sets the package's power limit of an emulated node, as powerd does for a cap.
func (l *lab) limit(t *testing.T, node string, microwatts int64) {
	t.Helper()
	path := filepath.Join(l.nodes, node, "root", "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(f, "%d\n", microwatts)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// closeShared ends the package's lab if there is one.
var closeShared = func() error { return nil }

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

// shared is the package's lab.
func shared(t *testing.T) *lab {
	t.Helper()
	l, err := theLab()
	permitted(t, err)
	closeShared = l.Close
	return l
}

// programs builds the programs as `make build` does, once for all tests, and is their
// folder.
var programs = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch(), "bin")
	return bin, cluster.BuildPrograms(context.Background(), bin)
})

// builtPlugins builds the jars of the hooks, once for all tests, and is their folder.
var builtPlugins = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch(), "plugins")
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	return dir, cluster.BuildHooks(ctx, filepath.Join("..", ".."), dir)
})

// plugins is the folder of the hooks' jars.
func plugins(t *testing.T) string {
	t.Helper()
	dir, err := builtPlugins()
	permitted(t, err)
	return dir
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
	if err := errors.Join(closeShared(), os.RemoveAll(scratch())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
