// Claims: a second cluster, one with HDFS, runs beside the first: a word count from HDFS
// to HDFS is right, with maps where their data is. When the process that holds that
// cluster is killed, nothing is left of it, neither its daemons nor the containers of the
// job that runs.
package hadoop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/hadoop"
)

// holdIn is the environment variable that makes this test program the holder of a cluster
// in the folder that it names, with the words to count in the folder of that name and .in.
const holdIn = "HEADROOM_TEST_HOLD"

// held is what the holder prints once its second job runs.
type held struct {
	Error     string
	Succeeded bool  // of the word count, which has a history
	Local     int64 // its maps that were local to their data
}

// hold starts a cluster, counts words on it, starts a job that does not end, prints a line
// and does not return.
func hold(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	line, err := holdCluster(ctx, dir)
	cancel()
	if err != nil {
		line.Error = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(line)
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until it is killed
	os.Exit(1)
}

func holdCluster(ctx context.Context, dir string) (line held, err error) {
	j, err := jars()
	if err != nil {
		return line, err
	}
	c, err := hadoop.Start(ctx, hadoop.Config{Dir: dir, Jars: j, Nodes: hadoop.Nodes(2), HDFS: true})
	if err != nil {
		return line, err
	}
	if err := c.Put(ctx, "/data", dir+".in"); err != nil {
		return line, err
	}
	r, err := c.Run(ctx, hadoop.Job{Program: "wordcount", Queue: "q2", Args: []string{"/data/" + filepath.Base(dir) + ".in", "/out"}})
	if err != nil || r.History == nil {
		return line, fmt.Errorf("%+v: %w", r, err)
	}
	line.Succeeded = r.Succeeded()
	line.Local, _ = r.History.Counters.Get("org.apache.hadoop.mapreduce.JobCounter", "DATA_LOCAL_MAPS")
	if err := c.Get(ctx, "/out", dir+".out"); err != nil {
		return line, err
	}
	job, err := c.Submit(ctx, c.Sleep("q1", 1, time.Hour))
	if err != nil {
		return line, err
	}
	return line, job.AwaitContainers(ctx, 2) // its master and its map
}

// namedBy are the processes whose command line has this text. It queries the kernel, not the
// package under test.
func namedBy(t *testing.T, text string) (found []string) {
	t.Helper()
	paths := testkit.Need(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(text)) {
			found = append(found, path)
		}
	}
	return found
}

// Clusters start and run beside another one; two that start at once on two CPUs
// outlast each other's patience.
func TestClustersBesideTheFirst(t *testing.T) {
	testkit.Engines(t, "hadoop "+release())
	l := shared(t)
	t.Run("HDFS", func(t *testing.T) { countsInHDFS(t, l) })
}

func countsInHDFS(t *testing.T, first *lab) {
	t.Helper()
	ctx := within(t)
	dir := filepath.Join(t.TempDir(), "held")
	text := hadoop.Text{Files: 4, Bytes: 20_000, Seed: 3}
	if _, err := text.Write(dir + ".in"); err != nil {
		t.Fatal(err)
	}
	want := testkit.Need(hadoop.CountWords(dir + ".in"))(t)
	holder := exec.CommandContext(ctx, os.Args[0])
	holder.Env = append(os.Environ(), holdIn+"="+dir)
	_, inErr := holder.StdinPipe()
	out, err := holder.StdoutPipe()
	if err != nil || inErr != nil {
		t.Fatal(err, inErr)
	}
	testkit.Check(t, holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill() })
	var line held
	if err := json.NewDecoder(out).Decode(&line); err != nil || line.Error != "" || !line.Succeeded {
		t.Fatalf("the holder says %+v, %v", line, err)
	}
	if got, err := readCounts(dir + ".out"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%d words counted, %d are right, %v", len(got), len(want), err)
	}
	if line.Local == 0 {
		t.Error("no map was local to its data")
	}
	if nodes, err := first.States(ctx); err != nil || len(nodes) != 2 || nodes[0].Name != "n1" {
		t.Errorf("the first cluster's nodes: %+v, %v", nodes, err)
	}

	if n := len(namedBy(t, dir)); n < 9 { // six daemons, the client, two containers
		t.Errorf("%d processes of the cluster are found: the test looks wrong", n)
	}
	testkit.Check(t, holder.Process.Kill())
	_ = holder.Wait() // "signal: killed"
	for len(namedBy(t, dir)) > 0 {
		if !pause.For(ctx, 100*time.Millisecond) {
			t.Fatalf("left of the cluster: %v", namedBy(t, dir))
		}
	}
}

// readCounts reads a job's output: the lines "KEY TAB NUMBER" of part-r-* in dir.
func readCounts(dir string) (map[string]int64, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "part-r-*"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("part-r-* in %s: %w", dir, cmp.Or(err, os.ErrNotExist))
	}
	counts := map[string]int64{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			key, number, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: line %.60q: %w", path, line, err)
			}
			counts[key] += n
		}
	}
	return counts, nil
}
