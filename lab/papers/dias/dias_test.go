// Claims: the simulated queue is the one of the closed forms, with the numbers that Table 2
// implies; sprints last as long as timer and joules permit, and every joule is
// counted; killed time is what the formula gives; the same seeds give the same bytes;
// the report has every target of DIAS, and each notices a mistake.
package dias

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/jobs/deflation"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// small is a study of three seeds and short runs, done once for all tests.
var small = sync.OnceValues(func() (*study, error) {
	return run(context.Background(), experiments(), 1, 3, 5000, io.Discard)
})

func smallStudy(t *testing.T) *study {
	t.Helper()
	return testkit.Need(small())(t)
}

// about reports whether two numbers are the same but for a part.
func about(got, want, part float64) bool { return math.Abs(got/want-1) <= part }

// cobham are the mean waits without preemption of jobs that take fixed times: W0 over
// the products of what the classes above, and they with this one, leave of the server.
func cobham(rates, times []float64) []float64 {
	w0 := 0.0
	for i := range rates {
		w0 += rates[i] * times[i] * times[i] / 2
	}
	var waits []float64
	above := 0.0
	for i := range rates {
		before := 1 - above
		above += rates[i] * times[i]
		waits = append(waits, w0/(before*(1-above)))
	}
	return waits
}

// Table 2 without noise (A16): at 0.006079 jobs a second its execution times, taken as fixed, give
// queues of 68.5 and 367.9 s, 61.5 and 272.4 s, 55.7 and 213.4 s, by the closed form and by
// the simulation.
func TestTable2Fixed(t *testing.T) {
	t.Parallel()
	for by, want := range map[string][2]float64{"NPS": {68.5, 367.9}, "DIAS(0,10)": {61.5, 272.4}, "DIAS(0,20)": {55.7, 213.4}} {
		row := paperTable2()[by]
		times := []float64{row[high][1], row[low][1]}
		e := experiment{name: "fixed", policies: []policy{nonPreemptive()}}
		for class, share := range []float64{0.3, 0.7} {
			e.classes = append(e.classes, fixedClass(share*completeRate, times[class]))
		}
		closed := cobham([]float64{0.3 * completeRate, 0.7 * completeRate}, times)
		s := testkit.Need(run(context.Background(), []experiment{e}, 1, 8, 20_000, io.Discard))(t)
		for class := range closed {
			if math.Abs(closed[class]-want[class]) > 0.06 {
				t.Errorf("%s: closed form %.2f s, want %v", by, closed[class], want[class])
			}
			if q := s.of("fixed", "NP", queueOf(class)); !about(q.Mean, closed[class], 0.05) {
				t.Errorf("%s, class %d: simulated wait %.1f s (%.1f to %.1f), closed form %.1f", by, class, q.Mean, q.Low, q.High, closed[class])
			}
		}
	}
}

// fixedClass is a class of jobs that take a fixed time.
func fixedClass(rate, length float64) class {
	return class{"fixed", rate, fixed(func(float64) float64 { return length })}
}

// A job of 148.5 s that sprints 2.5 times as fast after 65 s takes 98.4 s, 33.9 % of it sprinted (A15).
func TestSprintExactly(t *testing.T) {
	t.Parallel()
	j := one(t, sprinted(limitedBudget), 148.5, arrival{0, high}).jobs[0]
	if math.Abs(j.exec-98.4) > 1e-6 || math.Abs(j.fast-33.4) > 1e-6 || math.Abs(j.joules-(180*98.4+90*33.4)) > 1e-3 {
		t.Errorf("%+v, want 98.4 s, of which 33.4 s sprinted, at 180 and 270 W", j)
	}
	if j := one(t, sprinted(unlimitedBudget), 148.5, arrival{0, low}).jobs[0]; j.exec != 148.5 || j.fast != 0 {
		t.Errorf("a low job sprints: %+v", j)
	}
}

// one runs jobs of fixed length that arrive at given seconds.
func one(t *testing.T, p policy, length float64, arrivals ...arrival) *outcome {
	t.Helper()
	w := fixed(func(float64) float64 { return length })
	tr := &trace{classes: []class{{"high", 1, w}, {"low", 1, w}}, jobs: arrivals}
	return testkit.Need(simulate(tr, p, faults{}))(t)
}

// A sprint ends when its joules are spent, what it leaves goes back, and the budget refills: 900 J
// are ten seconds of sprint.
func TestSprintBudget(t *testing.T) {
	t.Parallel()
	p := sprinted(limitedBudget)
	p.after = 20 * time.Second
	p.pot = func() *pot { return &pot{capacity: 900, refill: 9, balance: 900} }
	o := one(t, p, 100, arrival{0, high}, arrival{1000 * time.Second, high}, arrival{1000 * time.Second, high})
	// 20 s, then 10 s at 2.5, and the other 55 s of work at base frequency; c has what came in
	// from b's dispatch + 20 s on for 85 s: 765 J, 8.5 s of sprint.
	for i, want := range []struct{ exec, fast float64 }{{85, 10}, {85, 10}, {100 - 1.5*8.5, 8.5}} {
		if j := o.jobs[i]; math.Abs(j.exec-want.exec) > 1e-6 || math.Abs(j.fast-want.fast) > 1e-6 {
			t.Errorf("job %d: %v s, sprinted %v s; want %+v", i, j.exec, j.fast, want)
		}
	}
	short := one(t, p, 25, arrival{0, high}, arrival{25 * time.Second, high})
	// 5 s of work are left at the timer: 2 s of sprint, 180 J; the rest goes back.
	for i := range short.jobs {
		if j := short.jobs[i]; math.Abs(j.fast-2) > 1e-6 {
			t.Errorf("short job %d sprinted %v s, want 2", i, j.fast)
		}
	}
}

// Every joule belongs to a job: those of all jobs are those of the server, killed runs
// and sprints included.
func TestJoulesAddUp(t *testing.T) {
	t.Parallel()
	s := &study{experiments: experiments()}
	e := s.experiments[s.index(complete)]
	tr := arrive(3, 0, e.classes, 2000)
	for _, p := range e.policies {
		o := testkit.Need(simulate(tr, p, faults{}))(t)
		sum, fast, runs := 0.0, 0.0, 0
		for _, j := range o.jobs {
			sum, fast, runs = sum+j.joules, fast+j.fast, runs+j.runs
		}
		if want := busyWatts*o.busy + extraWatts*fast; !about(sum, want, 1e-9) {
			t.Errorf("%s: jobs took %v J, the server %v", p.name, sum, want)
		}
		if killed := runs > len(o.jobs); killed != (p.discipline == buffers.P) {
			t.Errorf("%s: %d runs of %d jobs", p.name, runs, len(o.jobs))
		}
		if !about(o.waste.Total.Seconds(), o.busy, 1e-9) {
			t.Errorf("%s: the dispatcher counts %v of machine time, the server %v s", p.name, o.waste.Total, o.busy)
		}
	}
}

// What P wastes (A1) is what Poisson kills of fixed jobs come to: a low job of S seconds is killed
// exp(rate S) - 1 times, for (exp(rate S) - 1)/rate - S seconds in all.
func TestWasteByFormula(t *testing.T) {
	t.Parallel()
	w := func(s float64) work { return fixed(func(float64) float64 { return s }) }
	classes := loaded(usualLoad, class{"high", 1, w(53)}, class{"low", 9, w(125)})
	s := testkit.Need(run(context.Background(), []experiment{{name: "p", classes: classes, policies: []policy{preemptive()}}}, 1, 6, 20_000, io.Discard))(t)
	lost := classes[low].rate * ((math.Exp(classes[high].rate*125)-1)/classes[high].rate - 125)
	want := 100 * lost / (usualLoad + lost)
	if got := s.of("p", "P", wasteOf); !about(got.Mean, want, 0.03) {
		t.Errorf("waste %.3f %% (%.3f to %.3f), by the formula %.3f %%", got.Mean, got.Low, got.High, want)
	}
}

// Without preemption nothing is killed, and deflated jobs run the paper's number of tasks.
func TestKept(t *testing.T) {
	t.Parallel()
	if kept(50, 0.1) != 45 || kept(3, 1) != 1 || kept(50, 0.33) != 34 {
		t.Errorf("kept: %d, %d, %d; want 45, 1, 34", kept(50, 0.1), kept(3, 1), kept(50, 0.33))
	}
	for mean, w := range map[float64]work{lowMean: words(lowMean), highMean: words(highMean), 148.5: triangles()} {
		if got := profile(w, 0).mean; !about(got, mean, 0.005) {
			t.Errorf("a job of %v s takes %v s", mean, got)
		}
	}
	s := smallStudy(t)
	for i, e := range s.experiments {
		for p, x := range e.policies {
			for _, r := range s.trials[i] {
				if x.discipline != buffers.P && r[p].waste != 0 {
					t.Errorf("%s, %s: waste %v", e.name, x.name, r[p].waste)
				}
			}
		}
	}
}

// A study that has measured nothing meets nothing.
func TestNotMeasured(t *testing.T) {
	t.Parallel()
	s := &study{experiments: experiments(), trials: make([][]trial, len(experiments()))}
	for _, x := range s.targets() {
		if x.Verdict != report.Short || x.Got != nil || x.Note != "not measured" {
			t.Errorf("%+v", x)
		}
	}
}

// The record of real runs is whole, has what the model is fitted to apart from what it is judged on, and the model of waves
// comes nearer than one in proportion to the kept tasks.
func TestRecord(t *testing.T) {
	t.Parallel()
	r := testkit.Need(recorded())(t)
	if len(r.Runs) != 40 {
		t.Errorf("%d runs", len(r.Runs))
	}
	for _, class := range classNames() {
		for _, x := range r.of(class, calibrate) {
			if x.Percent != 0 && x.Percent != 90 { // the ratios of the paper's profiling (section 4.3)
				t.Errorf("the model is fitted to a run at %d %%", x.Percent)
			}
		}
		for _, percent := range ratios() {
			if got := len(r.at(class, judged, percent)); got != 2 {
				t.Errorf("%s: %d runs are judged at %g %%", class, got, percent)
			}
		}
	}
	for _, x := range testkit.Need((theory{}).validate(t.Context(), 1, 1, 1000))(t) {
		if x.Verdict == report.Short || x.Got == nil {
			t.Errorf("%s: %+v", x.ID, x)
		}
	}
}

// The controller's input is what production learns from the same runs, and nothing of the classes themselves.
func TestControllerAsksWhatProductionLearns(t *testing.T) {
	t.Parallel()
	question := testkit.Need(asks(experiments()[0]))(t)
	var notes [2]noted
	now := testkit.Need(question.note(&notes, 0, 1, da(0, 20)))(t)
	p := testkit.Need((&controller{}).question(question, &notes, now))(t)
	lows, _ := notes[low].ended()
	model, known := deflation.Learn(lows)
	if !known || len(notes[low].runs) != lessonRuns {
		t.Fatalf("%d runs were noted", len(notes[low].runs))
	}
	for _, theta := range p.Classes[0].Jobs.Ratios {
		want, _ := model.Moments(theta)
		if ph := testkit.Need(p.Classes[0].Jobs.Time(theta))(t); !about(ph.Mean(), want, 1e-9) {
			t.Errorf("%v: asked with %v s, learned were %v", theta, ph.Mean(), want)
		}
	}
	if rate := p.Classes[0].Rate; rate == question.classes[low].rate || !about(rate, question.classes[low].rate, 0.2) {
		t.Errorf("asked with a rate of %v, jobs came at %v", rate, question.classes[low].rate)
	}
}

// command runs `powerlab paper dias`.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := papers.NewCommand(newCommand(1500))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(append([]string{"dias"}, args...))
	err := cmd.Execute()
	return out.String(), err
}

// exit is the exit code that an error carries; -1 where it carries none.
func exit(err error) int {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Exit
	}
	return -1
}

// ids are all targets of DIAS.
func ids() []string {
	all := []string{"A1", "A2", "A3/high", "A3/low", "A3/order", "A4", "A5", "A6/mean", "A6/p95", "A7", "A8", "A9", "A10", "A10/high", "A11/low", "A11/high", "A12/DA(0,10,20)", "A12/DA(0,20,40)", "A13/mean", "A13/tail", "A14", "A15/exec", "A15/share"}
	for _, policy := range []string{"NPS", "DIAS(0,10)", "DIAS(0,20)"} {
		for _, class := range []string{"high", "low"} {
			all = append(all, "A16/"+policy+"/"+class+"/queue", "A16/"+policy+"/"+class+"/exec")
		}
	}
	for _, budget := range []string{"limited", "unlimited"} {
		all = append(all, "A17/NPS/"+budget)
		for _, policy := range []string{"DIAS(0,10)", "DIAS(0,20)"} {
			all = append(all, "A17/"+policy+"/"+budget, "A18/"+policy+"/"+budget+"/high", "A18/"+policy+"/"+budget+"/low")
		}
	}
	return append(all, "V1/high", "V1/low", "V2", "V3/high", "V3/low", "B1/error", "B1/high", "B2/error", "B2/high", "B2/low")
}

// The report has every target once, in the documented form; the same seed gives the same
// bytes, to the last file; exit code 8 exactly where one falls short.
func TestCommand(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	args := []string{"--seeds", "1", "--seed", "5", "-o", "json", "--out"}
	first, err := command(t, append(args, a)...)
	second, _ := command(t, append(args, b)...)
	if first != second {
		t.Error("the same seed gave other bytes")
	}
	var r report.Report
	if jerr := json.Unmarshal([]byte(first), &r); jerr != nil || r.Paper != "dias" || r.Seed != 5 {
		t.Fatalf("%v: %.200s", jerr, first)
	}
	var got []string
	short := false
	for _, x := range r.Targets {
		if x.Verdict == report.NotRun { // a campaign measures it
			continue
		}
		got, short = append(got, x.ID), short || x.Verdict == report.Short
		if x.Note == "" || x.What == "" || x.Verdict != report.Short && x.Got == nil {
			t.Errorf("%+v", x)
		}
	}
	want := ids()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("targets %v\nwant %v", got, want)
	}
	if (err != nil) != short || err != nil && exit(err) != cli.ExitDegraded {
		t.Errorf("short %v, error %v", short, err)
	}
	same(t, a, b)
}

// same reports whether two folders have the same files, and that none is empty.
func same(t *testing.T, a, b string) {
	t.Helper()
	files, err := os.ReadDir(a)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		x, errX := os.ReadFile(filepath.Join(a, f.Name()))
		y, errY := os.ReadFile(filepath.Join(b, f.Name()))
		if errX != nil || errY != nil || !bytes.Equal(x, y) || len(x) == 0 || strings.Contains(string(x), "NaN") {
			t.Errorf("%s differs, is empty or has no number: %v, %v", f.Name(), errX, errY)
		}
	}
}

// Flags that cannot be are refused by name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--seeds", "0"}, {"--seeds", "1001"}} {
		if _, err := command(t, args...); exit(err) != cli.ExitUsage || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: %v", args, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	testkit.Check(t, os.WriteFile(file, nil, 0o600))
	if _, err := command(t, "--seeds", "1", "--out", file); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("%v", err)
	}
}

// An interrupted study ends with the interruption.
func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := run(ctx, experiments(), 1, 1, 500, io.Discard); err == nil {
		t.Error("a cancelled study has results")
	}
}

// fixed takes the same time always, by drop ratio.
type fixed func(theta float64) float64

func (f fixed) job(theta float64, _ *rand.Rand) course {
	return course{maps: f(theta), tasks: 1, kept: 1}
}
