package hadoop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"headroom/hadoop"
	"headroom/internal/testkit"
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

// theCluster is the cluster of the package: three nodes, the last of which is emulated
// nodes' business in no test but those that say so.
var theCluster = sync.OnceValues(func() (*hadoop.Cluster, error) {
	j, err := jars()
	if err != nil {
		return nil, err
	}
	return hadoop.Start(context.Background(), hadoop.Config{Dir: filepath.Join(scratch(), "shared"), Jars: j, Nodes: hadoop.Nodes(2)})
})

// closeShared ends the package's cluster if there is one.
var closeShared = func() error { return nil }

// permitted ends the test as not run where the machine lacks what Hadoop needs.
func permitted(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, hadoop.ErrUnavailable) {
		testkit.NotRun(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shared is the package's cluster.
func shared(t *testing.T) *hadoop.Cluster {
	t.Helper()
	c, err := theCluster()
	permitted(t, err)
	closeShared = c.Close
	return c
}

// programs builds the programs as `make build` does, once for all tests, and is their
// folder.
var programs = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch(), "bin")
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", bin + "/"}
	for _, p := range []string{"powerd", "coordinator", "scheduler", "powerlab"} {
		args = append(args, "headroom/cmd/"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
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
