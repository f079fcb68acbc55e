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

// newest is the release that the tests share.
var newest = sync.OnceValues(func() (spark.Release, error) { return fetch(spark.Newest) })

func fetch(version string) (spark.Release, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	return spark.Fetch(ctx, version, "", func(text string) { fmt.Fprintln(os.Stderr, text) })
}

// nodeNames are the emulated nodes of the lab, which own three eighths of the host's CPUs each.
var nodeNames = []string{"n1", "n2"}

// lab is what the tests share: a coordinator, two emulated nodes with powerd at the full
// budget, and one Spark with a Worker on each node. A test starts the scheduler if it
// needs one.
type lab struct {
	*spark.Cluster
	site *cluster.Site
	bin  string // folder of the programs
	apps string // headroom-spark-apps.jar
	hook string // headroom-spark.jar
}

// theLab starts the lab, once for all tests.
var theLab = sync.OnceValues(func() (l *lab, err error) {
	release, err := newest()
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		return nil, err
	}
	l = &lab{bin: filepath.Join(root, "bin")}
	l.apps, l.hook = filepath.Join(l.bin, "headroom-spark-apps.jar"), filepath.Join(l.bin, "headroom-spark.jar")
	ctx, cancel := context.WithTimeout(context.Background(), fetchMost)
	defer cancel()
	if err := errors.Join(cluster.BuildHooks(ctx, root, l.bin), cluster.BuildPrograms(ctx, l.bin)); err != nil {
		return nil, err
	}
	if l.site, err = cluster.NewSite(cluster.Config{Dir: filepath.Join(scratch(), "site"), Bin: l.bin, Coordinators: 1, Nodes: len(nodeNames)}); err != nil {
		return nil, err
	}
	if err := l.site.Start(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := cluster.AwaitNodes(l.site.NodeDir(), nodeNames...); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	var nodes []spark.Node
	for _, name := range nodeNames {
		nodes = append(nodes, spark.Node{Name: name, Wrap: cluster.OnNode(filepath.Join(l.bin, "powerlab"), l.site.NodeDir(), name)})
	}
	l.Cluster, err = spark.Start(ctx, spark.Config{Dir: filepath.Join(scratch(), "shared"), Release: release, Nodes: nodes, Plugin: l.hook})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
})

// Close ends the cluster, then the site below it.
func (l *lab) Close() error {
	var err error
	if l.Cluster != nil {
		err = l.Cluster.Close()
	}
	return errors.Join(err, l.site.Close())
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
