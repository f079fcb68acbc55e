// Claims: all variants get the same jobs, budgets and joules, in alternating order; a job file is
// one that the scheduler takes; latencies, drops and the speed-up by sprints are what looks at the scheduler show, and
// what they do not show is absent; one run has no bounds; an arbiter that is behind is said to be; what cannot run is
// refused with a way out.
package live

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/arbitration"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/runs"
	"headroom/ledger"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/yarn"
)

const second = time.Second

// Each seed has its own jobs, the same at each call, and at least one of each stream, however short the run is.
func TestArrivals(t *testing.T) {
	t.Parallel()
	for engine, p := range plans() {
		for seed := range uint64(50) {
			for _, quick := range []bool{true, false} {
				checkArrivals(t, engine, &p, seed, within(quick))
			}
		}
		if p.drain < usual || brief >= usual {
			t.Errorf("%s: %+v", engine, p)
		}
	}
}

func plans() map[string]plan {
	return map[string]plan{"local": localPlan(), "yarn": yarnPlan(), "spark": sparkPlan()}
}

func checkArrivals(t *testing.T, engine string, p *plan, seed uint64, within time.Duration) {
	t.Helper()
	jobs, again, other := p.arrivals(seed, within), p.arrivals(seed, within), p.arrivals(seed+1, within)
	if !slices.Equal(jobs, again) || slices.Equal(jobs, other) {
		t.Fatalf("%s, seed %d: the jobs differ between calls, or do not between seeds", engine, seed)
	}
	count, before := map[string]int{}, time.Duration(0)
	for _, j := range jobs {
		count[j.stream]++
		if j.Arrival < before || j.Arrival >= within || j.Tasks < 1 || (j.Deadline > 0) != (j.Class == arbitration.Urgent) {
			t.Fatalf("%s, seed %d: %+v after %v", engine, seed, j, before)
		}
		before = j.Arrival
	}
	for _, s := range p.streams {
		if count[s.name] == 0 {
			t.Errorf("%s, seed %d, %v: no job of stream %s", engine, seed, within, s.name)
		}
	}
}

// The budget leaves watts for sprints at every step, and never more than there are.
func TestSteps(t *testing.T) {
	t.Parallel()
	within := usual
	all := steps(within)
	for i, s := range all {
		if s.each+margin > 1 || s.each <= 0 || i > 0 && (s.at <= all[i-1].at || s.each == all[i-1].each) || s.at >= within {
			t.Errorf("step %d: %+v", i, s)
		}
	}
	full := cluster.Rated() * nodes
	if capacity, refills := runs.Pot(full); capacity.Joules() < 10*margin*full.Watts() || refills <= 0 || refills >= full {
		t.Errorf("a pot of %v that refills at %v: the shortest sprint of all nodes takes %.0f J", capacity, refills, 10*margin*full.Watts())
	}
	if all[0].at != 0 {
		t.Errorf("the first budget holds from %v", all[0].at)
	}
}

// Runs go through the variants in alternating order.
func TestTurns(t *testing.T) {
	t.Parallel()
	var order string
	p := localPlan()
	for run := range 4 {
		for _, v := range runs.Turn(p.variants, run) {
			order += string("ABC"[slices.Index(p.variants, v)])
		}
	}
	if order != "ABCCBAABCCBA" {
		t.Error(order)
	}
}

// The scheduler takes every variant's configuration on every engine; the highest class is the urgent one.
func TestSchedulerTakesVariants(t *testing.T) {
	t.Parallel()
	sections := map[string]func(v *variant) string{
		"local": func(*variant) string { return "" },
		"yarn": func(v *variant) string {
			return yarnSection("http://127.1.2.254:8088", "127.0.0.1:7411", v.exact, yarnPlan().streams)
		},
		"spark": func(*variant) string {
			return "spark: {home: /opt/spark, master: \"spark://127.1.2.254:7077\", plugin: /opt/hook.jar}\n"
		},
	}
	for engine, p := range plans() {
		for i, v := range p.variants {
			path := filepath.Join(t.TempDir(), "scheduler.yaml")
			testkit.WriteFile(t, path, "dev: true\nlisten: \"127.0.0.1:0\"\ndir: /tmp/s\ncoordinators: [\"127.0.0.1:1\"]\n"+v.configuration+sections[engine](&v))
			c := testkit.Need(scheduler.LoadConfig(path))(t)
			if len(c.Classes) != 2 || c.Classes[0].Name != "urgent" || c.Classes[1].Name != "tolerant" || !slices.Contains(ledger.ContainerPolicies(), v.policy) {
				t.Errorf("%s: %+v: %+v", engine, v, c)
			}
			if timer := c.Classes[0].SprintAfter; (timer != "") != (i == 2) || c.Classes[1].SprintAfter != "" || v.exact != (v.name != ours) {
				t.Errorf("%s, %s: sprint timer %q, exact %v", engine, v.name, timer, v.exact)
			}
			switch {
			case engine == "yarn":
				checkQueues(t, &v, &c.Yarn)
			case v.name != ours && engine == "local" && c.Width < 2*len(p.arrivals(1, usual)):
				t.Errorf("%s: %d jobs at once", v.name, c.Width)
			}
		}
	}
}

// checkQueues: each class has a queue, and only the arbiter's may give tasks up.
func checkQueues(t *testing.T, v *variant, c *yarn.Config) {
	t.Helper()
	if len(c.Queues) != 2 || c.Hooks == "" {
		t.Fatalf("%+v", c)
	}
	for _, q := range c.Queues {
		least := 1.0
		if q.Class == "tolerant" && v.name == ours {
			least = 0.6
		}
		if q.Name != "root."+q.Class || math.Abs(float64(q.Guarantee)-least) > 1e-9 {
			t.Errorf("%s: %+v, want a guarantee of %g", v.name, q, least)
		}
	}
}

// The scheduler takes the job files.
func TestSchedulerTakesJobs(t *testing.T) {
	t.Parallel()
	classes := []string{"urgent", "tolerant"}
	for engine, p := range plans() {
		for _, a := range p.arrivals(1, brief) {
			least, due := fmt.Sprintf("%.0f%%", 100*a.Floor), ""
			if a.Deadline > 0 {
				due = a.Deadline.String()
			}
			if engine == "yarn" {
				job := yarnJob(&a, hadoop.Hooks{Jar: "/opt/hook.jar", Address: "127.0.0.1:7411", MasterMB: 256}, "/tmp/in", "/tmp/out")
				if got := job.Properties["headroom.deadline"]; strings.TrimSuffix(got, "0s") != strings.TrimSuffix(due, "0s") || job.Queue != string(a.Class) || job.Properties["headroom.early-stop"] == "" || job.LibJars[0] != "/opt/hook.jar" {
					t.Errorf("%+v: %+v", a, job)
				}
				continue
			}
			text, slots := localSpec(&a, "/tmp/a run/in", "/opt/head room/powerlab", "/tmp/a run/out", 7), localSlots
			if engine == "spark" {
				text, slots = sparkSpec(&a, "/opt/head room/apps.jar", "/tmp/a run/in.xml"), nodes*sparkCores
			}
			f := testkit.Need(jobfile.Parse("/tmp/run/job.yaml", text, classes))(t)
			if f.Name != a.stream || f.Class != string(a.Class) || f.MinTasks != least || f.Deadline != due || f.Slots != slots {
				t.Errorf("%+v: %+v", a, f)
			}
			checkProgram(t, engine, &a, f)
		}
	}
}

func checkProgram(t *testing.T, engine string, a *arrival, f *jobfile.File) {
	t.Helper()
	if engine == "spark" {
		if f.Spark == nil || f.Spark.Application != "/opt/head room/apps.jar" || f.Spark.Args[0] != "/tmp/a run/in.xml" || f.Spark.Args[1] != fmt.Sprint(a.Tasks) || f.Spark.Conf["spark.decommission.enabled"] != "true" {
			t.Errorf("%+v", f.Spark)
		}
		return
	}
	if f.Map.Input != "/tmp/a run/in/"+a.stream+"/*.txt" || !slices.Contains(f.Map.Command, "--passes=7") || f.Map.Command[0] != "/opt/head room/powerlab" {
		t.Errorf("%+v: %+v", a, f)
	}
}

// looked is what a scheduler says of one job.
func looked(state headroomv1.JobState, done, running uint32, sprint ...string) *headroomv1.ListResponse {
	run := &headroomv1.RunDetail{Id: "a"}
	if len(sprint) > 0 {
		run.Sprint = &headroomv1.Sprinting{Nodes: sprint}
	}
	return &headroomv1.ListResponse{
		Jobs: []*headroomv1.Job{{Id: "a", State: state, Progress: &headroomv1.JobProgress{Done: done, RunningOn: map[string]uint32{"n1": 4, "n2": running}}}, {Id: "another", Progress: &headroomv1.JobProgress{Done: 99}}},
		Runs: []*headroomv1.RunDetail{run},
	}
}

// A job counts from its submission to the look that shows its end, and what it has not computed then it has given up.
func TestWatchJobs(t *testing.T) {
	t.Parallel()
	j := arrival{arbitration.Job{Class: arbitration.Tolerant, Arrival: 4 * second, Tasks: 10, Floor: 0.6}, "bulk"}
	w := newWatch([]arrival{j}, 1)
	w.submit(0, "a", 5*second)
	running, done := headroomv1.JobState_JOB_STATE_RUNNING, headroomv1.JobState_JOB_STATE_DONE
	for _, x := range []struct {
		at time.Duration
		l  *headroomv1.ListResponse
	}{{6 * second, looked(running, 0, 10)}, {8 * second, looked(running, 3, 2, "n1")}, {30 * second, looked(done, 7, 0)}, {40 * second, looked(done, 7, 0)}} {
		testkit.Check(t, w.look(x.at, x.l))
	}
	if s := w.served[0]; w.done != 1 || s.Took != 25*second || s.Done != 7 || s.Dropped != 3 || s.Class != arbitration.Tolerant || !w.sprinted[0] {
		t.Errorf("%+v, %d done, sprinted %v", s, w.done, w.sprinted)
	}
	f := arbitration.FiguresOf(w.served)
	if _, known := f[arbitration.UrgentMean]; known || f[arbitration.TolerantMean] != 25 || f[arbitration.TolerantQuality] != 0.7 {
		t.Errorf("%v", f)
	}
	w = newWatch([]arrival{j}, 1)
	w.submit(0, "a", 0)
	if err := w.look(second, looked(headroomv1.JobState_JOB_STATE_FAILED, 0, 0)); err == nil || !strings.Contains(err.Error(), "job a") {
		t.Errorf("a failed job: %v", err)
	}
}

// An engine may count more tasks than its input has, and say itself what it dropped.
func TestWatchDropsOfEngines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ seen, dropped, done int }{
		"all, and those of later stages":    {18, 0, 10},
		"some dropped, and of later stages": {14, 4, 6},
		"nobody says what was dropped":      {7, 0, 7},
		"both say it":                       {7, 3, 7},
		"more than there are":               {0, 99, 0},
	} {
		w := newWatch([]arrival{{arbitration.Job{Tasks: 10}, "bulk"}}, 1)
		w.seen[0] = c.seen
		w.end(0, second, c.dropped)
		if s := w.served[0]; s.Done != c.done || s.Done+s.Dropped != 10 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// watched is a watch of a cluster that does 2 tasks a second, fast times as many while all nodes sprint: each second a
// look. mode says of each second whether none, one or all nodes sprint, or the cluster has too little to do.
func watched(t *testing.T, fast float64, mode string) *watch {
	t.Helper()
	w := newWatch([]arrival{{arbitration.Job{Tasks: 1 << 20}, "bulk"}}, 2)
	w.submit(0, "a", 0)
	done := 0.0
	for i, m := range mode {
		running, sprint, rate := uint32(2), []string(nil), 2.0
		switch m {
		case 'o':
			sprint = []string{"n1"}
		case 's':
			sprint, rate = []string{"n1", "n2"}, 2*fast
		case 'i':
			running, rate = 1, 0.5
		case '|':
			w.each = 1 - w.each
		}
		testkit.Check(t, w.look(time.Duration(i)*second, looked(headroomv1.JobState_JOB_STATE_RUNNING, uint32(done+0.5), running, sprint...)))
		done += rate
	}
	return w
}

// The speed-up is that of the same budget, on a cluster that is full, with all nodes in a sprint against none.
func TestSpeedUp(t *testing.T) {
	t.Parallel()
	base, fast := strings.Repeat(".", 30), strings.Repeat("s", 30)
	for name, c := range map[string]struct {
		mode string
		want float64
	}{
		"sprints":                     {base + fast, 1.5},
		"a sprint of one node":        {base + strings.Repeat("o", 30) + fast, 1.5},
		"idle times":                  {base + strings.Repeat("i", 60) + fast + strings.Repeat("i", 60), 1.5},
		"no sprint":                   {base + base, 0},
		"a short one":                 {base + "ssss", 0},
		"always":                      {fast + fast, 0},
		"under different budgets":     {base + "|" + fast, 0},
		"more sprints in the second":  {base + fast + "|" + base + fast + fast, 1.5},
		"nothing in the first budget": {"|" + base + fast, 1.5},
		"the same budget again":       {base + "|iii|" + fast, 1.5},
		"nothing at all":              {"", 0},
	} {
		got, known := watched(t, 1.5, c.mode).speedUp()
		if known != (c.want > 0) || math.Abs(got-c.want) > 0.05 {
			t.Errorf("%s: %v, %v; want %v", name, got, known, c.want)
		}
	}
}

// What an engine tells of running tasks counts, and from next to no work no speed-up is told.
func TestSpeedUpByParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sprint float64 // work a second in sprints
		want   float64
	}{"parts of tasks": {0.6, 1.5}, "next to no work in sprints": {0.05, 0}} {
		w := newWatch([]arrival{{arbitration.Job{Tasks: 100}, "bulk"}}, 2)
		w.submit(0, "a", 0)
		work := 0.0
		for i := range 60 {
			l, rate := looked(headroomv1.JobState_JOB_STATE_RUNNING, 0, 2), 0.4
			if i >= 30 {
				l, rate = looked(headroomv1.JobState_JOB_STATE_RUNNING, 0, 2, "n1", "n2"), c.sprint
			}
			l.Jobs[0].Progress.Work = new(work)
			testkit.Check(t, w.look(time.Duration(i)*second, l))
			work += rate
		}
		got, known := w.speedUp()
		if known != (c.want > 0) || math.Abs(got-c.want) > 0.05 {
			t.Errorf("%s: %v, %v; want %v", name, got, known, c.want)
		}
	}
}

// found is a report of as many runs, in which the arbiter's urgent jobs are by so many seconds slower than the others'.
func found(count int, slower float64) *report {
	e := &engine{name: "local", plan: localPlan()}
	var results []result
	for run := range count {
		for _, v := range runs.Turn(e.variants, run) {
			w := newWatch([]arrival{{arbitration.Job{Class: arbitration.Urgent, Tasks: 4, Deadline: 20 * second}, "small"}, {arbitration.Job{Class: arbitration.Tolerant, Tasks: 8, Floor: 0.5}, "bulk"}}, 1)
			took := 20 + float64(run)
			if v.name == ours {
				took += slower + 0.1*float64(run%2)
			}
			for i := range w.jobs {
				w.submit(i, fmt.Sprint(i), 0)
				w.seen[i] = 4
				w.end(i, time.Duration(took*float64(second)), 0)
			}
			r := result{v.name, run, arbitration.FiguresOf(w.served), w.jobs, w}
			r.figures[arbitration.EnergyJ], r.figures[arbitration.SprintJ] = 1000, 0
			if v.name == ours {
				r.figures[speedUp] = 1.3
			}
			results = append(results, r)
		}
	}
	return reportOf(e, 7, "the load", results)
}

// exit is the exit code of an error.
func exit(err error) int {
	e, ok := errors.AsType[*cli.Error](err)
	switch {
	case err == nil:
		return cli.ExitOK
	case ok:
		return e.Exit
	}
	return cli.ExitFailed
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs   int
		slower float64
		want   arbitration.Standing
		alone  arbitration.Standing
		exit   int
	}{
		"ahead":        {5, -3, arbitration.Ahead, arbitration.Ahead, cli.ExitOK},
		"behind":       {5, 3, arbitration.Behind, arbitration.Behind, cli.ExitDegraded},
		"level":        {5, -0.05, arbitration.Level, arbitration.Level, cli.ExitOK},
		"behind alone": {5, 0.05, arbitration.Level, arbitration.Behind, cli.ExitOK},
		"one run":      {1, 3, runs.Unknown, runs.Unknown, cli.ExitOK},
	} {
		r := found(c.runs, c.slower)
		got := r.Differences[0]
		if got.Figure != arbitration.UrgentMean || got.Verdict != c.want || got.Alone != c.alone || exit(r.verdict()) != c.exit || (got.Behind.Low == nil) != (c.runs == 1) || math.Abs(got.Behind.Mean-c.slower) > 0.06 {
			t.Errorf("%s: %+v, %v", name, got, r.verdict())
		}
	}
	if got := found(5, 0).Differences; len(got) != 16 {
		t.Errorf("%d figures are judged", len(got))
	}
	if got := reportOf(&engine{name: "local", plan: localPlan()}, 1, "", nil); got.Differences[0].Verdict != runs.Unknown || got.verdict() != nil {
		t.Errorf("without a run: %+v", got.Differences)
	}
}

// The JSON has the fields of the simulated comparison, each figure with its bounds; of one run they are null.
func TestReportJSON(t *testing.T) {
	t.Parallel()
	for runs, bounds := range map[int]bool{1: false, 5: true} {
		var out bytes.Buffer
		testkit.Check(t, found(runs, -3).print(&out, &cli.Output{Format: "json"}))
		var got struct {
			Engine   string
			Seed     uint64
			Runs     int
			Variants []struct {
				Name    string
				Figures map[string]struct {
					Mean      *float64
					Low, High *float64
				}
			}
			Differences []struct{ Figure, Verdict, Alone string }
		}
		testkit.Check(t, json.Unmarshal(out.Bytes(), &got))
		if got.Engine != "local" || got.Seed != 7 || got.Runs != runs || len(got.Variants) != 3 || got.Variants[0].Name != "arbiter" || got.Variants[1].Name != "urgent-first-fair" || got.Variants[2].Name != "urgent-first-fair-sprint" || len(got.Differences) == 0 || got.Differences[0].Alone == "" {
			t.Fatalf("%s", &out)
		}
		for _, name := range []string{"urgent_mean_s", "urgent_p95_s", "urgent_missed", "tolerant_mean_s", "tolerant_p95_s", "tolerant_quality", "energy_j", "sprint_j", "weighted_s"} {
			for _, v := range got.Variants {
				if f := v.Figures[name]; f.Mean == nil || (f.Low != nil) != bounds || (f.High != nil) != bounds {
					t.Errorf("%d runs, %s: %s is %+v", runs, v.Name, name, f)
				}
			}
		}
		if _, known := got.Variants[1].Figures["speed_up"]; known || got.Variants[0].Figures["speed_up"].Mean == nil {
			t.Errorf("the speed-up of whoever never sprinted is known, or that of the arbiter is not: %s", &out)
		}
	}
}

// Tables and files show all figures, and - for what is unknown.
func TestReportShows(t *testing.T) {
	t.Parallel()
	r := found(5, -3)
	var out bytes.Buffer
	testkit.Check(t, r.print(&out, &cli.Output{}))
	for _, want := range []string{"5 runs of each, seeds from 7", "SPEED-UP", "1.30 ± 0.00", "AGAINST", "ahead -3.0", "50.0 ± 0.0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if fields := strings.Fields(out.String()); !slices.Contains(fields, "-") {
		t.Errorf("the other's speed-up is not unknown:\n%s", &out)
	}
	for name, lines := range map[string]int{"figures.csv": 1 + 5*(11+10+10), "jobs.csv": 1 + 5*3*2} {
		out.Reset()
		testkit.Check(t, r.files()[name](&out))
		if got := strings.Count(out.String(), "\n"); got != lines {
			t.Errorf("%s has %d lines, want %d:\n%s", name, got, lines, &out)
		}
	}
	out.Reset()
	testkit.Check(t, r.files()["latency.svg"](&out))
	if err := xml.Unmarshal(out.Bytes(), new(any)); err != nil && !errors.Is(err, io.EOF) || !strings.Contains(out.String(), localPlan().variants[1].name) {
		t.Errorf("%v: %s", err, &out)
	}
}

// execute runs the command.
func execute(t *testing.T, args ...string) error {
	t.Helper()
	cmd := arbitration.NewCommand(Engines())
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
		"--engine yarn needs headroom-hadoop.jar":      {"--engine", "yarn", "--bin", testkit.Programs(t)},
		"--engine spark needs headroom-spark-apps.jar": {"--engine", "spark", "--quick", "--bin", testkit.Programs(t, jarSpark)},
		`unknown engine "abacus"`:                      {"--engine", "abacus"},
		"cannot be combined with --load":               {"--engine", "local", "--load", "heavy"},
		"cannot be combined with --seeds":              {"--engine", "local", "--seeds", "3"},
		"cannot be combined with --optimum":            {"--engine", "local", "--optimum"},
		"--quick and --bin need":                       {"--quick"},
		"--engine local needs coordinator":             {"--engine", "local", "--bin", t.TempDir()},
	} {
		err := execute(t, args...)
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || !strings.Contains(e.Message+e.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
		if strings.Contains(want, "engine") && ok && e.Hint == "" {
			t.Errorf("%q: no way out", args)
		}
	}
}

// A run whose programs do not run says so.
func TestEngineErrorEnds(t *testing.T) {
	t.Parallel()
	bin := testkit.Programs(t)
	if err := execute(t, "--engine", "local", "--quick", "--bin", bin); err == nil || !strings.Contains(err.Error(), "time a task") {
		t.Errorf("%v", err)
	}
	if err := execute(t, "--engine", "local", "--quick", "--bin", bin, "--out", filepath.Join(bin, "powerd", "out")); exit(err) != cli.ExitFailed || !strings.Contains(err.Error(), "--out") {
		t.Errorf("an output folder that cannot be: %v", err)
	}
}
