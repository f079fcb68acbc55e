package spark

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
	"headroom/lab/spark"
)

// patience bounds one test's work: many times what it takes on a machine that is not busy.
const patience = 4 * time.Minute

// fetchMost bounds the first run's fetching.
const fetchMost = 9 * time.Minute

// scratch is the folder of everything that the package makes; TestMain removes it.
func scratch() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("headroom-spark-%d", os.Getpid()))
}

// releases gets a release, once for all tests.
var releases = map[string]func() (spark.Release, error){
	spark.Version:  sync.OnceValues(func() (spark.Release, error) { return fetch(spark.Version) }),
	spark.Version4: sync.OnceValues(func() (spark.Release, error) { return fetch(spark.Version4) }),
}

func fetch(version string) (spark.Release, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	return spark.Fetch(ctx, version, "", func(text string) { fmt.Fprintln(os.Stderr, text) })
}

// nodeNames are the emulated nodes of the lab, which own three eighths of the host's CPUs each.
var nodeNames = []string{"n1", "n2"}

// lab is what the tests share: two emulated nodes with a Worker on each.
type lab struct {
	*spark.Cluster
	apps     string // headroom-spark-apps.jar
	machines *cluster.Group
	programs []*cluster.Program
}

// theLab starts the lab, once for all tests.
var theLab = sync.OnceValues(func() (l *lab, err error) {
	release, err := releases[spark.Version]()
	if err != nil {
		return nil, err
	}
	jars, err := builtJars()
	if err != nil {
		return nil, err
	}
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	powerlab, folder := filepath.Join(bin, "powerlab"), filepath.Join(scratch(), "nodes")
	l = &lab{apps: filepath.Join(jars, "headroom-spark-apps.jar")}
	if l.machines, err = cluster.NewGroup(filepath.Join(scratch(), "logs")); err != nil {
		return nil, err
	}
	var nodes []spark.Node
	for _, name := range nodeNames {
		p, err := l.machines.Start(name, nil, powerlab, "node", name, "--dir", folder, "--nodes", "2", "--no-powerd", "--no-worker")
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.programs = append(l.programs, p)
		nodes = append(nodes, spark.Node{Name: name, Cores: 2, Wrap: spark.OnNode(powerlab, folder, name)})
	}
	if err := cluster.AwaitNodes(folder, nodeNames...); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.Cluster, err = spark.Start(context.Background(), spark.Config{
		Dir: filepath.Join(scratch(), "shared"), Release: release, Nodes: nodes, Plugin: filepath.Join(jars, "headroom-spark.jar"),
	})
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

// closeShared ends the package's lab if there is one.
var closeShared = func() error { return nil }

// permitted ends the test as not run where the machine lacks what Spark needs.
func permitted(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, spark.ErrUnavailable) || errors.Is(err, cluster.ErrUnable) {
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

// programs builds the programs as `make build` does, once for all tests, and is their folder.
var programs = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch(), "bin")
	return bin, cluster.BuildPrograms(context.Background(), bin)
})

// builtJars builds the hook and its applications, once for all tests, and is their folder.
var builtJars = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch(), "jars")
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	return dir, cluster.BuildHooks(ctx, filepath.Join("..", ".."), dir)
})

// within is the context of a test's work.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := errors.Join(closeShared(), os.RemoveAll(scratch())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
