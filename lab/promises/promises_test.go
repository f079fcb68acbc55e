// Claims: every seed has jobs of all kinds with the promises that were drawn, the same for all variants, which run forth and
// back; the scheduler takes their files; figures are what looks at the scheduler showed, count refused jobs as missed, and
// leave out what is not known; ours that is behind is said to be; what cannot run is refused with a way out.
package promises

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/lab/arbitration"
	"headroom/lab/papers"
	"headroom/lab/runs"
	"headroom/ledger"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
)

const second = time.Second

func TestJobs(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{true, false} {
		l := localLoad(quick)
		sizes := map[string]int{}
		for seed := range uint64(50) {
			jobs := l.jobs(seed)
			if len(jobs) < 40 || !slices.Equal(jobs, l.jobs(seed)) || slices.Equal(jobs, l.jobs(seed+1)) {
				t.Fatalf("seed %d: %d jobs that differ between calls, or do not between seeds", seed, len(jobs))
			}
			checkKinds(t, &l, jobs)
			for i := range jobs {
				sizes[l.size(jobs[i].tasks)]++
			}
		}
		if sizes["small"] <= sizes["medium"] || sizes["medium"] <= sizes["large"] || sizes["large"] == 0 {
			t.Errorf("sizes %v: they follow no power law", sizes)
		}
	}
}

func checkKinds(t *testing.T, l *load, jobs []job) {
	t.Helper()
	count, before := map[kind]int{}, time.Duration(0)
	for i := range jobs {
		j := &jobs[i]
		count[j.kind]++
		bad := j.arrival < before || j.arrival >= l.within || j.tasks < l.least || j.tasks > l.most || j.need() < 1 || j.need() > j.tasks
		if ideal := l.ideal(j.tasks, l.slots, 1); (j.deadline > 0) != j.kind.due() || j.deadline > 0 && (j.deadline < ideal || j.deadline > 4*ideal+second) {
			bad = true
		}
		if (j.error > 0) != (j.kind == bounded) || j.error > 0 && (j.error < 0.05 || j.error > 0.30) || j.kind == exact && j.terms() != "" {
			bad = true
		}
		if bad {
			t.Fatalf("%+v after %v", j, before)
		}
		before = j.arrival
	}
	for _, k := range []kind{exact, bounded} {
		if count[k] != len(jobs)/3 {
			t.Errorf("%d of %d jobs are %s", count[k], len(jobs), k)
		}
	}
	if count[strict] != count[partial] {
		t.Errorf("%v", count)
	}
}

// What a job may end on is counted as the scheduler counts it.
func TestNeed(t *testing.T) {
	t.Parallel()
	for want, j := range map[int]job{10: {kind: exact, tasks: 10}, 9: {kind: strict, tasks: 9}, 2: {kind: partial, tasks: 11}, 7: {kind: bounded, tasks: 8, error: 0.15}} {
		if j.need() != want {
			t.Errorf("%+v: %d tasks", j, j.need())
		}
	}
}

// The caps leave watts for sprints; the second node is always held harder.
func TestSteps(t *testing.T) {
	t.Parallel()
	for i, s := range steps(5 * time.Minute) {
		if len(s.caps) != nodes || s.caps[1] >= s.caps[0] || s.budget() > 1 || math.Abs(s.budget()-margin-(s.caps[0]+s.caps[1])/2) > 1e-9 {
			t.Errorf("step %d: %+v", i, s)
		}
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	order, e := "", engine{variants: localVariants()}
	for run := range 3 {
		for _, v := range runs.Turn(e.variants, run) {
			order += string("ABCD"[slices.IndexFunc(e.variants, func(x variant) bool { return x.name == v.name })])
		}
	}
	if order != "ABCDDCBAABCD" {
		t.Error(order)
	}
}

// The scheduler takes every variant's configuration and every job's file.
func TestSchedulerTakes(t *testing.T) {
	t.Parallel()
	for _, v := range localVariants() {
		path := t.TempDir() + "/scheduler.yaml"
		testkit.WriteFile(t, path, "dev: true\nlisten: \"127.0.0.1:0\"\ndir: /tmp/s\ncoordinators: [\"127.0.0.1:1\"]\n"+v.configuration)
		c := testkit.Need(scheduler.LoadConfig(path))(t)
		if len(c.Classes) != 2 || c.Classes[0].Name != bounded.class() || c.Classes[1].Name != exact.class() || !slices.Contains(ledger.ContainerPolicies(), v.policy) || !strings.Contains(v.configuration, "speculation: {policy: "+c.Speculation.Policy+"}") {
			t.Errorf("%+v: %+v", v, c)
		}
	}
	l := localLoad(true)
	r := &papers.Real{Options: &papers.Options{}, Dir: "/tmp/a run", Folder: "/opt/head room"}
	for _, j := range l.jobs(1) {
		f := testkit.Need(jobfile.Parse("/tmp/run/job.yaml", localSpec(&j, r, "/tmp/a run/draws", 7), []string{"promised", "exact"}))(t)
		if f.Name != j.name || (f.Deadline != "") != j.kind.due() || (f.Error != "") != (j.kind == bounded) || (f.MinTasks != "") != (j.kind == partial) ||
			f.Slots != min(8, j.tasks) || f.Map.Command[0] != "/opt/head room/powerlab" || !slices.Contains(f.Map.Command, "--slow=/tmp/a run/draws") {
			t.Errorf("%+v: %+v", j, f)
		}
	}
}

// look is one look at a scheduler that says this of the job a.
func look(t *testing.T, w *watch, at time.Duration, state headroomv1.JobState, p *headroomv1.JobProgress) {
	t.Helper()
	testkit.Check(t, w.look(at, &headroomv1.ListResponse{Jobs: []*headroomv1.Job{{Id: "a", State: state, Progress: p}, {Id: "another", Progress: &headroomv1.JobProgress{Done: 99}}}}))
}

const (
	runningState = headroomv1.JobState_JOB_STATE_RUNNING
	doneState    = headroomv1.JobState_JOB_STATE_DONE
)

// watched is a job of ten tasks of which a task ends each second from the third second on, on four slots.
func watched(t *testing.T, j job, end time.Duration) *watch {
	t.Helper()
	j.tasks = 10
	w := newWatch([]job{j})
	w.submit(0, "a", 2*second)
	at := 2 * second
	for ; at < 2*second+end; at += second {
		look(t, w, at, runningState, &headroomv1.JobProgress{Done: uint32(max(0, (at-2*second)/second-2)), Containers: 4, WastedS: 1.5})
	}
	look(t, w, at, doneState, &headroomv1.JobProgress{Done: uint32(max(0, (at-2*second)/second-2)), WastedS: 1.5})
	return w
}

func TestFigures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job  job
		end  time.Duration
		want map[string]float64
	}{
		"a deadline that is met":           {job{kind: strict, deadline: 13 * second}, 12 * second, map[string]float64{figureSDR: 1, figurePTR: 1, figureWasted: 1.5, figureRefused: 0}},
		"one that is missed":               {job{kind: strict, deadline: 11 * second}, 12 * second, map[string]float64{figureSDR: 0, figurePTR: 0, figureWasted: 44, figureRefused: 0}},
		"a job that returns what is done":  {job{kind: partial, deadline: 7 * second}, 7 * second, map[string]float64{figureSDR: 1, figurePTR: 1, figureAccuracy: 0.5, figureRan: 0.5, figureWasted: 1.5, figureRefused: 0}},
		"one that is too late":             {job{kind: partial, deadline: 2 * second}, 4 * second, map[string]float64{figureSDR: 0, figurePTR: 0, figureAccuracy: 0, figureRan: 0, figureWasted: 12, figureRefused: 0}},
		"what comes after does not count":  {job{kind: partial, deadline: 7 * second}, 12 * second, map[string]float64{figureSDR: 1, figurePTR: 1, figureAccuracy: 0.5, figureRan: 0.5, figureWasted: 1.5, figureRefused: 0}},
		"an error bound":                   {job{kind: bounded, error: 0.3}, 12 * second, map[string]float64{figureBound: 9, figureWasted: 1.5}},
		"an engine that ends at the bound": {job{kind: bounded, error: 0.3}, 8 * second, map[string]float64{figureBound: 8, figureWasted: 1.5}},
		"an exact job":                     {job{kind: exact}, 12 * second, map[string]float64{figureExact: 12, figureWasted: 1.5}},
	} {
		got := watched(t, c.job, c.end).figures()
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for figure, want := range c.want {
			if x, known := got[figure]; !known || math.Abs(x-want) > 1e-9 {
				t.Errorf("%s: %s is %v, want %v", name, figure, x, want)
			}
		}
	}
}

// A refused job has met nothing; one that waited in vain is one, too. Any other end that is not good is an error.
func TestRefused(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("promises: submit: %w", rpc.Refuse(connect.CodeFailedPrecondition, "refused", cli.ExitRefused, "no slots", "wait"))
	w := newWatch([]job{{kind: partial, tasks: 4, deadline: second}, {kind: strict, tasks: 4, deadline: second}})
	testkit.Check(t, w.hand([]runs.Handed{{Job: 0, Err: refused}, {Job: 1, ID: "a"}}))
	if err := w.hand([]runs.Handed{{Job: 1, Err: errors.New("no scheduler")}}); err == nil {
		t.Error("no scheduler counts as a refusal")
	}
	cancelled := headroomv1.JobState_JOB_STATE_CANCELLED
	bad := &headroomv1.ListResponse{Jobs: []*headroomv1.Job{{Id: "a", State: cancelled, Outcome: "by mia"}}}
	if err := w.look(second, bad); err == nil || !strings.Contains(err.Error(), "by mia") {
		t.Errorf("a cancelled job: %v", err)
	}
	bad.Jobs[0].Admission = &headroomv1.Admission{Decision: "queued"}
	testkit.Check(t, w.look(second, bad))
	testkit.Check(t, w.look(2*second, bad))
	if !strings.Contains(w.outcomes[0].why, "no slots") {
		t.Errorf("refused for %q", w.outcomes[0].why)
	}
	f := w.figures()
	if _, known := f[figureRan]; known || w.over != 2 || f[figureSDR] != 0 || f[figureAccuracy] != 0 || f[figureRefused] != 1 {
		t.Errorf("%v, %d over", f, w.over)
	}
	if _, known := f[figurePTR]; known {
		t.Errorf("without work a part of it is known: %v", f)
	}
}

// found is a report of as many runs, in which ours meets so many more deadlines than the others.
func found(count int, more float64) *report {
	e := &engine{name: "local", load: localLoad(true), variants: localVariants()}
	var results []result
	for run := range count {
		for _, v := range runs.Turn(e.variants, run) {
			w := newWatch(e.load.jobs(uint64(run)))
			f := map[string]float64{figureSDR: 0.5 + 0.01*float64(run), figureAccuracy: 0.7, figureBound: 9, figureWasted: 40, figureEnergy: 9000}
			if v.name == ours {
				f[figureSDR] += more + 0.001*float64(run%2)
			}
			results = append(results, result{runs.Result{Variant: v.name, Run: run, Figures: f}, w})
		}
	}
	return reportOf(e, 7, results)
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs int
		more float64
		want arbitration.Standing
		exit int
	}{
		"ahead":   {5, 0.1, arbitration.Ahead, cli.ExitOK},
		"behind":  {5, -0.1, arbitration.Behind, cli.ExitDegraded},
		"one run": {1, -0.1, runs.Unknown, cli.ExitOK},
	} {
		r := found(c.runs, c.more)
		exit := cli.ExitOK
		if e, ok := errors.AsType[*cli.Error](r.verdict()); ok {
			exit = e.Exit
		}
		if d := r.Differences[0]; d.Figure != figureSDR || d.Verdict != c.want || exit != c.exit || math.Abs(d.Behind.Mean+c.more) > 0.01 {
			t.Errorf("%s: %+v, exit code %d", name, d, exit)
		}
	}
}

// Tables, JSON and files show all figures, and - for what is unknown.
func TestReportShows(t *testing.T) {
	t.Parallel()
	r := found(5, 0.1)
	var text, data bytes.Buffer
	testkit.Check(t, r.print(&text, &cli.Output{}))
	for _, want := range []string{"5 runs of each, seeds from 7", "SDR", "stock-best", "ahead -10.0", "70.0 ± 0.0", "42 jobs of 2 to 16 tasks"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	testkit.Check(t, r.print(&data, &cli.Output{Format: "json"}))
	var got struct {
		Engine   string
		Runs     int
		Variants []struct {
			Name    string
			Figures map[string]struct{ Mean, Low, High *float64 }
		}
		Differences []struct{ Figure, Verdict, Alone string }
	}
	testkit.Check(t, json.Unmarshal(data.Bytes(), &got))
	if got.Engine != "local" || got.Runs != 5 || len(got.Variants) != 4 || got.Variants[0].Figures["sdr"].Low == nil || len(got.Differences) != 7*3 {
		t.Errorf("%s", &data)
	}
	for name, lines := range map[string]int{"figures.csv": 1 + 5*4*5, "jobs.csv": 1 + 5*4*42} {
		text.Reset()
		testkit.Check(t, r.files()[name](&text))
		if n := strings.Count(text.String(), "\n"); n != lines {
			t.Errorf("%s has %d lines, want %d:\n%s", name, n, lines, &text)
		}
	}
	text.Reset()
	testkit.Check(t, r.files()["promises.svg"](&text))
	if !strings.Contains(text.String(), "stock-best") {
		t.Errorf("%s", &text)
	}
}

func execute(t *testing.T, args ...string) error {
	t.Helper()
	cmd := NewCommand()
	var notes bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&notes)
	cmd.SetErr(&notes)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.ExecuteContext(t.Context())
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`unknown engine "abacus"`:          {"--engine", "abacus"},
		"--engine local needs coordinator": {"--bin", t.TempDir()},
		"--engine yarn needs":              {"--engine", "yarn", "--bin", t.TempDir()},
		"--engine spark needs":             {"--engine", "spark", "--bin", t.TempDir()},
		"unknown command":                  {"now"},
	} {
		err := execute(t, args...)
		e, ok := errors.AsType[*cli.Error](err)
		if err == nil || !strings.Contains(err.Error(), want) && !(ok && strings.Contains(e.Message, want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
		if ok && e.Hint == "" {
			t.Errorf("%q: no way out", args)
		}
	}
	if err := execute(t, "--quick", "--bin", testkit.Programs(t)); err == nil || !strings.Contains(err.Error(), "time a task") {
		t.Errorf("programs that do not run: %v", err)
	}
}
