// Claims, with a straggler that sleeps longer than any test may take: a job with a deadline ends with what is done, its floor
// at the least, and the hook reports how much that is; a job that must do all of its tasks and has a deadline runs a copy of the
// straggler on the other node, which counts, and the straggler is killed; the same jar ends a stage at an
// error bound of its owner's, without a scheduler.
package spark

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/spark"
	"headroom/scheduler/sparkapp"
)

// sleeps is how long a straggler sleeps, seconds: longer than a test may take.
const sleeps = "900"

// partial is the line PARTIAL of testdata/straggle.py.
type partial struct {
	Done        float64
	Kept, Total int
	Seconds     float64
}

func readPartial(output string) (p partial, err error) {
	_, line, ok := strings.Cut(output, "PARTIAL ")
	if !ok {
		return p, fmt.Errorf("no line PARTIAL in %s", output)
	}
	return p, json.NewDecoder(strings.NewReader(line)).Decode(&p)
}

// straggle is a program whose map tasks these straggle.
func straggle(t *testing.T, stragglers string) (script string, args []string) {
	t.Helper()
	return testkit.Need(filepath.Abs(filepath.Join("testdata", "straggle.py")))(t), []string{"20", "0.2", sleeps, stragglers}
}

// promise runs a job with a deadline to its end.
func (r *rounds) promise(ctx context.Context, dir, job, stragglers string, floor float64, deadline time.Duration) (partial, sparkapp.Progress) {
	r.t.Helper()
	run := r.run(dir, job, "", nil)
	run.Spec.Application, run.Spec.Args = straggle(r.t, stragglers)
	run.Floor, run.Submitted, run.Deadline = floor, time.Now(), deadline
	testkit.Check(r.t, r.Start(run))
	testkit.Eventually(r.t, patience, job+" ends", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.ended[job].Outcome != "" || ctx.Err() != nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended[job].OK {
		r.t.Fatalf("%s: %+v", job, r.ended[job])
	}
	text := testkit.Need(os.ReadFile(filepath.Join(run.Folder, "stdout")))(r.t)
	p := testkit.Need(readPartial(string(text)))(r.t)
	r.t.Logf("%s: %+v, all %v", job, p, time.Since(run.Submitted).Round(100*time.Millisecond))
	return p, r.last[job]
}

func TestPromises(t *testing.T) {
	l, ctx := shared(t), within(t)
	dir := t.TempDir()
	r := newRounds(t, l, l.Cluster, dir)
	// Two of twenty straggle, one on each node in the end: its floor of 90 % is all that can be done.
	p, told := r.promise(ctx, dir, "late", "1,19", 0.9, 5*time.Second)
	if p.Done != 18 || p.Kept != 18 || p.Total != 20 || told.Dropped != 2 {
		t.Errorf("a deadline: %+v, %+v", p, told)
	}
	p, told = r.promise(ctx, dir, "whole", "19", 1, time.Hour)
	if p.Done != 20 || p.Kept != 20 || told.Dropped != 0 {
		t.Errorf("a copy: %+v, %+v", p, told)
	}
	ownBound(ctx, t, l.Cluster)
}

// ownBound ends a stage by its owner's own word.
func ownBound(ctx context.Context, t *testing.T, c *spark.Cluster) {
	t.Helper()
	script, args := straggle(t, "19")
	r, err := c.Run(ctx, spark.Job{Name: "bounded", Application: script, Args: args, Conf: map[string]string{"spark.headroom.error": "5%"}})
	if err != nil {
		t.Fatal(err)
	}
	p := testkit.Need(readPartial(r.Output))(t)
	t.Logf("an error bound: %+v, all %v", p, r.Elapsed)
	if p.Done != 19 || p.Kept != 19 || p.Total != 20 {
		t.Errorf("an error bound: %+v", p)
	}
}
