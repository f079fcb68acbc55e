// Claims: the generated jobs have the moments of the paper's TR1; a trace gives the same jobs to all seeds; without a trace
// its targets are not run; the study is the same for the same seeds; mistakes of the doors are noticed; the flags and the traces are checked.
package pythia

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
	"headroom/lab/admit"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// Table I and section IV: 58 % of the jobs have one task and 0.1 % of the time; 13 % are large and have 98 % of it.
func TestGeneratedHasTheMoments(t *testing.T) {
	t.Parallel()
	const n = 50_000
	jobs := generated(n).draw(7)
	var one, few, large, work, workOne, workLarge float64
	for i := range jobs {
		j := &jobs[i]
		work += j.Work
		switch {
		case j.Tasks == 1:
			one++
			workOne += j.Work
		case j.Tasks > 1000/scale:
			large++
			workLarge += j.Work
		}
		if j.Tasks < 10 {
			few++
		}
	}
	for name, x := range map[string]struct{ got, want, by float64 }{
		"one task":             {one / n, tr1One, 0.01},
		"fewer than ten":       {few / n, tr1Ten, 0.01},
		"large":                {large / n, tr1Large, 0.01},
		"time of one task":     {workOne / work, tr1OneT, 0.0003},
		"time of large":        {workLarge / work, tr1LargeT, 0.005},
		"load of paper's 2250": {work / (jobs[n-1].Arrival * 2250 / scale), tr1Hours * 3600. / tr1Span / 2250, 0.1},
	} {
		if math.Abs(x.got-x.want) > x.by {
			t.Errorf("%s: %.4f, want %.4f", name, x.got, x.want)
		}
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	jobs := []admit.Job{{Tasks: 1, Arrival: 10}, {Tasks: 2, Arrival: 11}, {Tasks: 3, Arrival: 16}, {Tasks: 4, Arrival: 18}}
	seen := map[int]bool{}
	for seed := range uint64(20) {
		out := rotate(jobs, seed)
		seen[out[0].Tasks] = true
		sum := 0
		for i, j := range out {
			sum += j.Tasks
			if i > 0 && j.Arrival < out[i-1].Arrival {
				t.Errorf("seed %d: arrivals go back: %+v", seed, out)
			}
		}
		if out[0].Arrival != 0 || sum != 10 {
			t.Errorf("seed %d: %+v", seed, out)
		}
	}
	if len(seen) != 4 || jobs[0].Arrival != 10 {
		t.Errorf("begins at %v; the trace is now %+v", seen, jobs)
	}
}

func TestPeak(t *testing.T) {
	t.Parallel()
	var d demand
	d.add(0, 2, 5)
	d.add(4, 1, 5)
	d.add(5, 2, 1)
	if got := d.peak(); got != 3 {
		t.Errorf("peak %d", got)
	}
}

// few jobs show that everything works.
const few = 500

func TestSameSeedsSameTrials(t *testing.T) {
	t.Parallel()
	run := func() string {
		trials, err := (&study{source: generated(few), door: honest}).run(context.Background(), 5, 1)
		testkit.Check(t, err)
		f := &figures{source: generated(few), trials: trials}
		out, err := json.Marshal(f.targets())
		testkit.Check(t, err)
		return string(out)
	}
	if a, b := run(), run(); a != b {
		t.Error("the same seed gives other figures")
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	_, stdout, stderr := testkit.Run(t, newCommand(few), "", "--seeds", "1", "--out", out, "-o", "json")
	var got struct {
		Paper   string
		Targets []struct {
			ID, Verdict string
			Met         *bool
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got.Paper != "pythia" {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	for _, x := range got.Targets {
		if onTrace := strings.Count(x.ID, "/") == 2; onTrace != (x.Verdict == "not_run") || onTrace != (x.Met == nil) {
			t.Errorf("%+v", x)
		}
	}
	for _, name := range []string{"targets.md", "targets.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A trace that is there is run, its mistakes have file and line, and what is not there is not run.
func TestTraces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Check(t, os.MkdirAll(filepath.Join(dir, "hawk-format"), 0o755))
	path := filepath.Join(dir, "hawk-format", "YH1_sub.tr")
	testkit.Check(t, os.WriteFile(path, []byte("1 2 3 2 4\n2 1 5 5\n3 3 1 1 1 1\n"), 0o600))
	_, stdout, stderr := testkit.Run(t, newCommand(few), "", "--seeds", "1", "--traces", dir, "-o", "csv")
	if !strings.Contains(stdout, "B6/yahoo1/spread") || strings.Count(stdout, dir+" does not have it") != 3*8 {
		t.Errorf("%s%s", stdout, stderr)
	}
	testkit.Check(t, os.WriteFile(path, []byte("1 2 3 2 4\n0 1 5 5\n"), 0o600))
	if exit, _, stderr := testkit.Run(t, newCommand(few), "", "--seeds", "1", "--traces", dir); exit != 2 || !strings.Contains(stderr, "YH1_sub.tr:2: arrival 0 is before 1") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
	for _, args := range [][]string{{"--seeds", "0"}, {"--traces", t.TempDir()}, {"--traces", "nowhere"}} {
		if exit, _, stderr := testkit.Run(t, NewCommand(), "", args...); exit != 2 || !strings.Contains(stderr, args[0]) {
			t.Errorf("%v: exit %d: %s", args, exit, stderr)
		}
	}
}
