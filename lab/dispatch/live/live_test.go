// Claims: a job's time counts from when the trace submits it; a replay ends at the first failure, and what it showed is
// kept when it is broken off; a quantile is judged by its own tolerance, and one of a replay that was broken off is not;
// options that cannot be are refused.
package live

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"


	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/emulator"
	"headroom/lab/papers"
	"headroom/lab/traces"
)

// ideal is a system without queues: a job takes as long as its longest task, and adds so much.
type ideal struct {
	adds  time.Duration
	fails int // job, from 1
}

var errPlanned = errors.New("planned")

func (s *ideal) run(ctx context.Context, _, job int, j *traces.Job, _ bool) error {
	if job+1 == s.fails {
		return errPlanned
	}
	longest := 0.0
	for _, t := range j.Times {
		longest = max(longest, t)
	}
	if !pause.For(ctx, seconds(longest)+s.adds) {
		return ctx.Err()
	}
	return nil
}

func (s *ideal) doors() int { return 3 }

func (s *ideal) close() error { return nil }

// small is a load of short and long jobs, one a second.
func small(n int) *load {
	l := &load{percent: 50, cutoff: 1}
	for i := range n {
		j := traces.Job{Arrival: float64(i), Mean: 0.5, Times: []float64{0.25, 0.75}}
		if i%4 == 3 {
			j.Mean, j.Times = 10, []float64{5, 15}
		}
		l.jobs = append(l.jobs, j)
	}
	return l
}

func TestReplayCountsFromTheTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, began := small(40), time.Now()
		took := map[int]time.Duration{}
		done, err := replay(t.Context(), l, &ideal{adds: 10 * time.Millisecond}, func(s served) error {
			took[s.job] = s.took
			if s.late != 0 {
				t.Errorf("job %d was %v late on a machine that never is", s.job, s.late)
			}
			return nil
		})
		testkit.Check(t, err)
		if done != 40 || len(took) != 40 || took[0] != 760*time.Millisecond || took[3] != 15010*time.Millisecond {
			t.Errorf("%d done: %v", done, took)
		}
		if got := time.Since(began); got != l.takes()+10*time.Millisecond {
			t.Errorf("the replay took %v, and the trace takes %v", got, l.takes())
		}
	})
}

func TestReplayEndsAtAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done, err := replay(t.Context(), small(40), &ideal{fails: 6}, func(served) error { return nil })
		if !errors.Is(err, errPlanned) || !strings.Contains(err.Error(), "job 6 ") || done != 4 {
			t.Errorf("%d done, %v", done, err)
		}
	})
}

// What has ended is in the file of jobs when a replay is broken off, and it is not judged.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		l, r := small(40), &Replay{Policy: "pigeon", Load: 50, Jobs: 40}
		o := &Options{Out: dir, Seed: 1}
		took, err := o.replay(ctx, l, &ideal{}, r, io.Discard)
		if !errors.Is(err, context.DeadlineExceeded) || r.Ended != 8 || doneOf(took) != 8 {
			t.Errorf("%d ended, %v", r.Ended, err)
		}
		for _, c := range compare(figuresOf(l, took), spreadOf([]figures{{cell{false, 0.5}: 0.75}, {cell{false, 0.5}: 0.75}}), r.Ended == r.Jobs) {
			if c.Verdict != papers.NotRun || (c.Measured == nil) != (c.Class == "long") {
				t.Errorf("%+v", c)
			}
		}
	})
	rows := testkit.Need(csv.NewReader(bytes.NewReader(testkit.Need(os.ReadFile(filepath.Join(dir, "jobs-pigeon-50.csv")))(t))).ReadAll())(t)
	if len(rows) != 1+8 || rows[0][0] != "job" || rows[1][6] != "0.750000" {
		t.Errorf("%v", rows)
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	l := &load{cutoff: 1}
	var took []float64
	for i := range 200 {
		l.jobs = append(l.jobs, traces.Job{Mean: 0.1 + float64(i%2)})
		took = append(took, float64(1+i/2+1000*(i%2)))
	}
	took[198] = math.NaN() // has not ended: short jobs took 1 to 99
	want := figures{{false, 0.5}: 50, {false, 0.9}: 89.2, {false, 0.99}: 98.02, {true, 0.5}: 1050.5, {true, 0.9}: 1090.1, {true, 0.99}: 1099.01}
	got := figuresOf(l, took)
	for c, x := range want {
		if math.Abs(got[c]-x) > 1e-9 {
			t.Errorf("%+v is %g, want %g", c, got[c], x)
		}
	}
	if got := figuresOf(small(3), []float64{1, 1, 1}); len(got) != len(quantiles()) {
		t.Errorf("without long jobs: %v", got)
	}
}

func TestJudging(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cell
		x    float64
		want papers.Verdict
	}{
		"short, 14 % longer":  {cell{false, 0.5}, 1.14, papers.Met},
		"short, 14 % shorter": {cell{false, 0.9}, 0.86, papers.Met},
		"short, 16 % longer":  {cell{false, 0.9}, 1.16, papers.Short},
		"long, 4 %":           {cell{true, 0.9}, 1.04, papers.Met},
		"long, 6 %":           {cell{true, 0.9}, 1.06, papers.Short},
		"tail, 2 sd":          {cell{false, 0.99}, 1.4, papers.Met},
		"tail, 4 sd":          {cell{true, 0.99}, 1.8, papers.Short},
	} {
		if got := c.judge(c.x, spread{1, 0.2, 10}); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	s := spreadOf([]figures{{cell{true, 0.5}: 1, cell{false, 0.5}: 7}, {cell{true, 0.5}: 3}})
	if got := s[cell{true, 0.5}]; got.mean != 2 || math.Abs(got.sd-math.Sqrt2) > 1e-12 || got.seeds != 2 || len(s) != 1 {
		t.Errorf("%+v", s)
	}
}

// reported is a report of all policies with a mistake of so many percent in each measured value.
func reported(percent float64) *Report {
	r := &Report{}
	for _, policy := range Policies() {
		measured, simulated := figures{}, map[cell]spread{}
		for i, c := range cells() {
			simulated[c] = spread{float64(1 + i), 0.1, 20}
			measured[c] = float64(1+i) * (1 + percent/100)
		}
		r.Replays = append(r.Replays, Replay{Policy: policy, Load: 50, Jobs: 3, Ended: 3, Cells: compare(measured, simulated, true)})
	}
	return r
}

func TestReport(t *testing.T) {
	t.Parallel()
	for percent, want := range map[float64]papers.Verdict{0: papers.Met, 60: papers.Short} {
		r := reported(percent)
		all := r.Targets()
		if len(all) != 18 {
			t.Fatalf("%d targets", len(all))
		}
		for i := range all {
			if all[i].Verdict != want || all[i].Got == nil || !strings.Contains(all[i].Note, "simulated") {
				t.Errorf("%+v", all[i])
			}
		}
		for name, write := range r.files() {
			var b bytes.Buffer
			testkit.Check(t, write(&b))
			switch filepath.Ext(name) {
			case ".json":
				testkit.Check(t, json.Unmarshal(b.Bytes(), &Report{}))
			case ".svg":
				if err := xml.Unmarshal(b.Bytes(), new(any)); err != nil && !errors.Is(err, io.EOF) || !strings.Contains(b.String(), "eagle, long jobs") {
					t.Errorf("%v: %s", err, &b)
				}
			case ".md":
				if got := strings.Count(b.String(), "\n"); got != 2+18 {
					t.Errorf("%d lines:\n%s", got, &b)
				}
			}
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	fine := Options{Policies: Policies(), Loads: Loads(), Out: "out", Scale: 1}
	testkit.Check(t, fine.Check())
	for want, change := range map[string]func(*Options){
		`--policy "hawk"`:     func(o *Options) { o.Policies = []string{"hawk"} },
		"--load 55":           func(o *Options) { o.Loads = []int{55} },
		"at least one policy": func(o *Options) { o.Policies = nil },
		"--real needs --out":  func(o *Options) { o.Out = "" },
		"--scale NaN":         func(o *Options) { o.Scale = math.NaN() },
		"--scale 2":           func(o *Options) { o.Scale = 2 },
		"--jobs -1":           func(o *Options) { o.Jobs = -1 },
	} {
		o := fine
		change(&o)
		e, ok := errors.AsType[*cli.Error](o.Check())
		if !ok || !strings.Contains(e.Message, want) || e.Exit != cli.ExitUsage {
			t.Errorf("want %q: %v", want, e)
		}
	}
}

func TestLoadOfATrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Check(t, os.MkdirAll(filepath.Join(dir, "pigeon"), 0o755))
	path := filepath.Join(dir, "pigeon", "NGO_trace70")
	testkit.WriteFile(t, path, "0.5 2 0.75 0.5 1\n1.5 1 4 4\n2 1 0.1 0.1\n")
	from := &papers.Traces{Dir: dir}
	l := testkit.Need(readLoad(from, 70, 2, 0.5))(t)
	if len(l.jobs) != 2 || l.tasks() != 3 || l.jobs[0].Times[1] != 0.5 || l.jobs[1].Arrival != 0.75 || l.long(0) || !l.long(1) || l.takes() != 2750*time.Millisecond {
		t.Errorf("%v, takes %v: %+v", l, l.takes(), l.jobs)
	}
	if _, err := readLoad(from, 50, 0, 1); err == nil || !strings.Contains(fmt.Sprint(err), "load 50") {
		t.Errorf("no such trace: %v", err)
	}
	testkit.WriteFile(t, path, "0.5 2 0.75 0.5 1\n1.5 1 4 -4\n")
	if _, err := readLoad(from, 70, 0, 1); err == nil || !strings.Contains(err.Error(), "NGO_trace70:2:") {
		t.Errorf("a negative time: %v", err)
	}
}

// The gain is judged run by run, and only by bounds.
func TestCappedTarget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		learned, even []float64
		want          papers.Verdict
	}{
		"better in all runs": {[]float64{1, 1.1, 0.9}, []float64{2, 2.1, 1.9}, papers.Met},
		"better in some":     {[]float64{1, 2, 1}, []float64{2, 1, 1}, papers.Short},
		"one run":            {[]float64{1}, []float64{2}, papers.NotRun},
		"half a run":         {[]float64{1, 1}, []float64{2}, papers.NotRun},
	} {
		took := map[string][]float64{"learned": c.learned, "even": c.even}
		if got := cappedTarget(took); got.Verdict != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if rows := cappedRows(took); len(rows) != 1+len(c.learned)+len(c.even) {
			t.Errorf("%s: %v", name, rows)
		}
	}
}

// Both splits get the same jobs; different runs do not.
func TestCappedJobs(t *testing.T) {
	t.Parallel()
	a, b, other := cappedJobsOf(1, 2), cappedJobsOf(1, 2), cappedJobsOf(2, 2)
	if len(a.jobs) != cappedJobs || a.jobs[9].Arrival != b.jobs[9].Arrival || a.jobs[9].Arrival == other.jobs[9].Arrival || a.tasks() != cappedJobs*cappedFan {
		t.Errorf("%v, %v, %v", a.jobs[9], b.jobs[9], other.jobs[9])
	}
	work := 0.0
	for i := range a.jobs {
		work += a.jobs[i].Work()
	}
	if part := work / a.jobs[cappedJobs-1].Arrival / (2 * emulator.HostShare); math.Abs(part/cappedLoad-1) > 0.4 {
		t.Errorf("the load is %.2f, want about %.2f", part, cappedLoad)
	}
	if got := cappedParts(); len(got) != cappedNodes || got[0] != 1 || got[cappedNodes-1] != cappedPart {
		t.Errorf("%v", got)
	}
}
