// Claims: a second cluster, one with HDFS, runs beside the first: a word count from HDFS
// to HDFS is right, with maps where their data is; and Close leaves nothing of it, neither
// the containers of a killed NodeManager nor those of a job that runs.
package hadoop

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/lab/hadoop"
)

// namedBy are the processes whose command line has this text. It asks the kernel, not the
// package under test.
func namedBy(t *testing.T, text string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(text)) {
			found = append(found, path)
		}
	}
	return found
}

func TestHDFSBesideAnotherCluster(t *testing.T) {
	first, ctx := shared(t), within(t)
	j, err := jars()
	permitted(t, err)
	dir := filepath.Join(scratch(), "hdfs")
	c, err := hadoop.Start(ctx, hadoop.Config{Dir: dir, Jars: j, Nodes: hadoop.Nodes(2), HDFS: true})
	permitted(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	in, out, want := words(t, hadoop.Text{Files: 4, Bytes: 20_000, Seed: 3})
	if err := c.Put(ctx, "/data", in); err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(ctx, hadoop.Job{Program: "wordcount", Queue: "q2", Args: []string{"/data/in", "/out"}})
	if err != nil || !r.Succeeded() || r.History == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := c.Get(ctx, "/out", out); err != nil {
		t.Fatal(err)
	}
	if got, err := hadoop.ReadCounts(out); err != nil || !maps.Equal(got, want) {
		t.Errorf("%d words counted, %d are right, %v", len(got), len(want), err)
	}
	if n, _ := r.History.Counters.Get("org.apache.hadoop.mapreduce.JobCounter", "DATA_LOCAL_MAPS"); n == 0 {
		t.Error("no map was local to its data")
	}
	if nodes, err := first.States(ctx); err != nil || len(nodes) != 2 || nodes[0].Name != "n1" {
		t.Errorf("the first cluster's nodes: %+v, %v", nodes, err)
	}
	closesWhole(t, c)
}

// closesWhole closes a cluster while a job runs whose containers have lost a NodeManager.
func closesWhole(t *testing.T, c *hadoop.Cluster) {
	t.Helper()
	ctx := within(t)
	j, err := c.Submit(ctx, c.Sleep("q1", 6, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 3; { // its master and two maps
		if n, err = j.Containers(ctx); err != nil || ctx.Err() != nil {
			t.Fatal(err, ctx.Err())
		}
	}
	if err := c.KillNode("node1"); err != nil {
		t.Fatal(err)
	}
	if len(namedBy(t, c.Dir())) == 0 {
		t.Fatal("no process of the cluster is found: the test looks wrong")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left := namedBy(t, c.Dir()); len(left) > 0 {
		t.Errorf("left of the cluster: %v", left)
	}
}
