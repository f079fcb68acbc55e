// Claims: a load file is read strictly, with the place of what is wrong; no bytes panic; the command names loads, and prints
// figures and verdicts whose names and structure stay.
package arbitration

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
)

const tiny = `{"containers": 8, "for_s": 120, "budget": [{"at_s": 0, "w": 80}, {"at_s": 60, "w": 55.5}],
 "jobs": [{"class": "tolerant", "arrival_s": 0, "tasks": 40, "task_s": 5, "deadline_s": null, "floor": 0.5},
          {"class": "tolerant", "arrival_s": 1, "tasks": 40, "task_s": 5, "floor": 0.5},
          {"class": "urgent", "arrival_s": 10.5, "tasks": 8, "task_s": 4, "deadline_s": 20, "floor": 1},
          {"class": "urgent", "arrival_s": 4, "tasks": 6, "task_s": 4, "deadline_s": 20, "floor": 1}]}`

func TestReadLoad(t *testing.T) {
	t.Parallel()
	l, err := readLoad(strings.NewReader(tiny), "-")
	if err != nil {
		t.Fatal(err)
	}
	jobs := l.Jobs(1)
	if l.Containers != 8 || l.For != 2*time.Minute || len(l.Budget) != 2 || l.Budget[1].Budget.Watts() != 55.5 || len(jobs) != 4 {
		t.Errorf("%+v", l)
	}
	if j := jobs[2]; j.Class != Urgent || j.Arrival != 4*time.Second || j.Tasks != 6 || j.Task != 4*time.Second || j.Deadline != 20*time.Second || j.Floor != 1 || jobs[0].Deadline != 0 || jobs[0].Floor != 0.5 {
		t.Errorf("%+v", jobs)
	}
	for name, x := range map[string]struct{ from, to, want string }{
		"no containers":        {`"containers": 8`, `"containers": 0`, "stdin: containers is 0: must be from 1 to 1000"},
		"text":                 {`"containers": 8`, `"containers": "8"`, "stdin:1:18: containers cannot be a string"},
		"unknown field":        {`"for_s"`, `"for"`, `stdin:1:19: unknown field "for"`},
		"no time":              {`"for_s": 120`, `"for_s": 0`, "for_s is 0: must be from 1 to 86400"},
		"a late first step":    {`"at_s": 0`, `"at_s": 5`, "budget[0].at_s is 5: must be from 0 to 0"},
		"steps out of order":   {`"at_s": 60`, `"at_s": 0`, "budget[1].at_s is 0: must be from 0.001 to 86400"},
		"no watts":             {`, "w": 55.5`, ``, "budget[1].w is 0: must be from 1"},
		"negative watts":       {`"w": 55.5`, `"w": -1`, "budget[1].w is -1: must be from 1 to 1e+06"},
		"no such class":        {`{"class": "urgent", "arrival_s": 4`, `{"class": "rush", "arrival_s": 4`, `jobs[3].class "rush": must be urgent or tolerant`},
		"late arrival":         {`"arrival_s": 10.5`, `"arrival_s": 121`, "jobs[2].arrival_s is 121: must be from 0 to 120"},
		"no tasks":             {`"tasks": 8`, `"tasks": 0`, "jobs[2].tasks is 0: must be from 1 to 100000"},
		"too many tasks":       {`"tasks": 8`, `"tasks": 100000`, "the number of tasks of all jobs is 100086: must be from 1 to 100000"},
		"instant tasks":        {`"tasks": 8, "task_s": 4`, `"tasks": 8, "task_s": 0`, "jobs[2].task_s is 0: must be from 0.001 to 3600"},
		"a deadline at once":   {`"deadline_s": 20, "floor": 1}]`, `"deadline_s": 0, "floor": 1}]`, "jobs[3].deadline_s is 0"},
		"a floor of nothing":   {`"floor": 0.5},`, `"floor": 0},`, "jobs[0].floor is 0: must be from 0.001 to 1"},
		"cut short":            {`"floor": 1}]}`, `"floor": 1}`, "it ends too early"},
		"a number beyond all":  {`"w": 55.5`, `"w": 1e999`, "stdin:1:"},
		"a second document":    {`"floor": 1}]}`, `"floor": 1}]} {}`, "a second document"},
		"jobs of another kind": {`"jobs": [`, `"jobs": 5, "x": [`, "jobs cannot be a number"},
	} {
		text := strings.Replace(tiny, x.from, x.to, 1)
		_, err := readLoad(strings.NewReader(text), "-")
		e, ok := errors.AsType[*cli.Error](err)
		if text == tiny || !ok || e.Exit != cli.ExitUsage || !strings.Contains(e.Message, x.want) || e.Hint == "" {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}
}

func FuzzReadLoad(f *testing.F) {
	f.Add(tiny)
	f.Add(`{"containers": 1, "for_s": 1, "budget": [{"at_s": 0, "w": 1}], "jobs": [{"class": "urgent", "arrival_s": 0, "tasks": 1, "task_s": 1}]}`)
	f.Add(`{"jobs": [{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := readLoad(strings.NewReader(text), "-")
		if err != nil {
			if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || e.Hint == "" {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		tasks, arrival := 0, time.Duration(0)
		for _, j := range l.Jobs(1) {
			tasks += j.Tasks
			if j.Arrival < arrival || j.Tasks < 1 || j.Task <= 0 || j.Deadline < 0 || !(j.Floor > 0 && j.Floor <= 1) {
				t.Errorf("%q: %+v", text, j)
			}
			arrival = j.Arrival
		}
		if tasks > 2000 || l.For > time.Hour {
			return
		}
		r := newRun(&l, 1, member(3*time.Second, usual).decide())
		if r.run() && len(r.live) > 0 {
			t.Errorf("%q: %d jobs have not ended", text, len(r.live))
		}
	})
}

// execute runs the command.
func execute(t *testing.T, stdin string, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := NewCommand()
	var out, notes bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"--seeds", "1"}, "bounds need more than one"},
		{[]string{"--seeds", "1001"}, "bounds need more than one"},
		{[]string{"--load", "stedy"}, `unknown --load "stedy"`},
		{[]string{"--load", t.TempDir()}, "--load: read"},
	} {
		_, err := execute(t, "", x.args...)
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || !strings.Contains(e.Message, x.want) {
			t.Errorf("%v: %v", x.args, err)
		}
	}
	_, err := execute(t, "", "--load", "stedy")
	help := NewCommand().Long
	for _, l := range Loads() {
		if e, ok := errors.AsType[*cli.Error](err); !ok || !strings.Contains(e.Hint, l.Name) || !strings.Contains(help, l.Name) {
			t.Errorf("%v: no %s", err, l.Name)
		}
	}
}

// degraded passes a report in which the arbiter is behind somewhere: a tiny load shows anything.
func degraded(t *testing.T, err error) {
	t.Helper()
	if e, ok := errors.AsType[*cli.Error](err); err != nil && (!ok || e.Exit != cli.ExitDegraded || !strings.Contains(e.Message, "the arbiter misses its goals: stdin ")) {
		t.Fatal(err)
	}
}

func TestCommandAnswers(t *testing.T) {
	t.Parallel()
	text, err := execute(t, tiny, "--load", "-", "--seeds", "3")
	degraded(t, err)
	for _, want := range []string{"BASELINE", "dias-sweep-40", "VERDICT", "urgent-first-spend"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	text, err = execute(t, tiny, "--load", "-", "--seeds", "3", "-o", "json")
	degraded(t, err)
	var a struct {
		Seed     uint64
		Seeds    int
		Load     string
		Variants []struct {
			Name, Says string
			Figures    map[string]struct{ Mean, Low, High *float64 }
		}
		Judged []struct {
			Baseline, Member, Figure, Verdict, Note string
			Met                                     *bool
			Behind                                  struct{ Mean, Low, High *float64 }
		}
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.Seed != 1001 || a.Seeds != 3 || a.Load != "stdin" {
		t.Fatalf("%v\n%s", err, text)
	}
	var names []string
	for _, v := range a.Variants {
		names = append(names, v.Name)
		for _, figure := range []string{UrgentMean, UrgentP95, UrgentMissed, TolerantMean, TolerantP95, TolerantQuality, EnergyJ, SprintJ, "sprints", energyPerTaskJ, WeightedS} {
			if f := v.Figures[figure]; v.Says == "" || f.Mean == nil || f.Low == nil || f.High == nil || *f.Low > *f.Mean || *f.High < *f.Mean {
				t.Errorf("%s, %s: %+v", v.Name, figure, f)
			}
		}
	}
	for _, want := range []string{"cab", "cab-urgent-first", "dias", "urgent-first", "urgent-first-fair", "urgent-first-spend", "dias-sweep-10", "dias-sweep-40", "arbiter", "arbiter-exact", "arbiter-8s", "arbiter-1s", "arbiter-spend", "arbiter-oracle"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
	if len(a.Judged) != len(baselines())*len(judgedFigures()) {
		t.Errorf("%d rows", len(a.Judged))
	}
	for _, j := range a.Judged {
		if !slices.Contains(names, j.Member) || !strings.HasPrefix(j.Member, "arbiter") || j.Met == nil || *j.Met != (j.Verdict != "behind") || j.Behind.Mean == nil || j.Note == "" {
			t.Errorf("%+v", j)
		}
	}
}

// A load of one class has no figures of the other.
func TestOneClass(t *testing.T) {
	t.Parallel()
	file := `{"containers": 4, "for_s": 30, "budget": [{"at_s": 0, "w": 50}], "jobs": [{"class": "urgent", "arrival_s": 0, "tasks": 8, "task_s": 2, "deadline_s": null, "floor": 1}]}`
	text, err := execute(t, file, "--load", "-", "--seeds", "2", "-o", "json")
	degraded(t, err)
	if strings.Contains(text, "tolerant_mean_s") || strings.Contains(text, "urgent_missed") || !strings.Contains(text, "urgent_mean_s") {
		t.Errorf("%s", text)
	}
}

// A load that the machines never get through is an error with a way out.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	file := `{"containers": 1, "for_s": 1, "budget": [{"at_s": 0, "w": 1}], "jobs": [{"class": "urgent", "arrival_s": 0, "tasks": 900, "task_s": 3600}]}`
	_, err := execute(t, file, "--load", "-", "--seeds", "2")
	if err == nil || !strings.Contains(err.Error(), "jobs have not ended 12h0m0s after the last may come") {
		t.Errorf("%v", err)
	}
}
