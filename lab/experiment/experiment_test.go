package experiment

// Claims: a campaign runs every variant of a pair once, every second pair in the opposite order, and goes on where
// a file of results stopped; a torn last line is ignored, a noisy run is not counted; a verdict needs bounds that
// hold for all claims at once, and a claim without them has the number of pairs that are missing.

import (
	"bytes"
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
	"headroom/lab/bench"
	"headroom/lab/report"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

func spec() *Spec {
	return &Spec{
		Name: "demo", Variants: []string{"ours", "theirs"}, Pairs: 3,
		Claims: []Claim{
			{ID: "faster", Unit: "%", Value: Change("took_s", "ours", "theirs"), Met: Within(report.AtMost(-10)), Order: Mean(report.Below(0))},
			{ID: "kept", Every: true, Value: Of("ours", "floor"), Met: Mean(report.AtLeast(1))},
		},
	}
}

func record(seed uint64, variant string, took float64) Record {
	return Record{Spec: "demo", Seed: seed, Variant: variant, Machine: "here", Figures: Figures{"took_s": took, "floor": 1}}
}

// records are pairs in which ours takes these percent of what theirs takes.
func records(percent ...float64) (all []Record) {
	for i, x := range percent {
		all = append(all, record(firstSeed+uint64(i), "ours", x), record(firstSeed+uint64(i), "theirs", 100))
	}
	return all
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name    string
		percent []float64
		want    report.Verdict
		more    int
	}{
		{"nothing", nil, report.Few, 3},
		{"one pair has no bounds", []float64{50}, report.Few, 2},
		{"fewer pairs than planned", []float64{50, 50.1}, report.Few, 1},
		{"clearly faster", []float64{50, 51, 49}, report.Met, 0},
		{"faster, but the bounds are wide", []float64{60, 85, 95}, report.Few, 17},
		{"faster by less", []float64{95, 96, 95.5}, report.Order, 0},
		{"slower", []float64{110, 111, 112}, report.Short, 0},
		{"too near the edge to be told", []float64{89.9, 95, 84.5}, report.Order, 0},
	} {
		j := Judge(spec(), records(x.percent...))[0]
		if j.Verdict != x.want || j.More != x.more || j.Pairs != len(x.percent) {
			t.Errorf("%s: %s with %d more of %d pairs; want %s with %d", x.name, j.Verdict, j.More, j.Pairs, x.want, x.more)
		}
		if (j.Low == nil) != (len(x.percent) < 2) {
			t.Errorf("%s: bounds from %d pairs", x.name, len(x.percent))
		}
	}
}

// Bounds of many claims are wider than those of one.
func TestBoundsAtOnce(t *testing.T) {
	t.Parallel()
	alone, many := spec(), spec()
	alone.Claims = alone.Claims[:1]
	for range 8 {
		many.Claims = append(many.Claims, many.Claims[0])
	}
	all := records(50, 60, 55)
	if a, b := Judge(alone, all)[0], Judge(many, all)[0]; *b.High <= *a.High || *b.Low >= *a.Low {
		t.Errorf("bounds of one claim %v to %v, of ten %v to %v", *a.Low, *a.High, *b.Low, *b.High)
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	all := records(50, 51)
	if j := Judge(spec(), all)[1]; j.Verdict != report.Few || j.More != 1 {
		t.Errorf("two pairs: %s, %d more", j.Verdict, j.More)
	}
	all[0].Figures["floor"] = 0.9
	if j := Judge(spec(), all)[1]; j.Verdict != report.Short {
		t.Errorf("a floor broken: %s", j.Verdict)
	}
}

// What is not of a whole pair on one machine, or noisy, is not counted.
func TestCounted(t *testing.T) {
	t.Parallel()
	all := records(50, 50, 50)
	all[0].Noisy = true
	all[2].Machine = "elsewhere"
	if n := len(wholePairs(spec(), all)); n != 1 {
		t.Errorf("%d pairs counted, want 1", n)
	}
	all = append(all, record(firstSeed, "ours", 50))
	if n := len(wholePairs(spec(), all)); n != 2 {
		t.Errorf("%d pairs counted after the noisy run was repeated, want 2", n)
	}
}

// run makes all runs that a campaign would make on this machine, from what there is.
func plan(t *testing.T, s *Spec, all []Record, took map[string]float64) (made []string) {
	t.Helper()
	tried := map[attempt]bool{}
	for range 100 {
		todo, _, more := next(s, all, "here", tried)
		if !more {
			return made
		}
		tried[todo] = true
		made = append(made, todo.variant)
		all = append(all, record(todo.seed, todo.variant, took[todo.variant]+float64(todo.seed%3)))
	}
	t.Fatal("the campaign does not end")
	return nil
}

func TestPlan(t *testing.T) {
	t.Parallel()
	took := map[string]float64{"ours": 50, "theirs": 100}
	if made := plan(t, spec(), nil, took); !slices.Equal(made, []string{"ours", "theirs", "theirs", "ours", "ours", "theirs"}) {
		t.Errorf("runs in the order %v", made)
	}
	if made := plan(t, spec(), records(50)[:1], took); len(made) != 5 || made[0] != "theirs" {
		t.Errorf("after one run: %v", made)
	}
	elsewhere := records(50)[:1]
	elsewhere[0].Machine = "elsewhere"
	if made := plan(t, spec(), elsewhere, took); len(made) != 6 {
		t.Errorf("after half a pair on another machine: %v", made)
	}
	if made := plan(t, spec(), records(60, 85, 95), took); len(made) < 2 {
		t.Errorf("wide bounds: only %d more runs", len(made))
	}
	noisy := records(50, 51, 49)
	noisy[5].Noisy = true
	if made := plan(t, spec(), noisy, took); !slices.Equal(made, []string{"theirs"}) {
		t.Errorf("a noisy run: %v", made)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := records(50, 60)
	for i := range all {
		if err := Append(dir, &all[i]); err != nil {
			t.Fatal(err)
		}
	}
	file := path(dir, "demo")
	text := testkit.Need(os.ReadFile(file))(t)
	for cut := range bytes.LastIndexByte(text[:len(text)-1], '\n') + 2 {
		torn := text[:len(text)-1-cut%(len(text)-1)]
		if err := os.WriteFile(file, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		got := testkit.Need(Read(dir, "demo"))(t)
		if want := bytes.Count(torn, []byte("\n")); len(got) != want {
			t.Fatalf("%d of %d whole lines read", len(got), want)
		}
		if err := Append(dir, &all[3]); err != nil {
			t.Fatal(err)
		}
		if again := testkit.Need(Read(dir, "demo"))(t); len(again) != len(got)+1 || again[len(got)].Seed != all[3].Seed {
			t.Fatalf("after a torn line: %d runs, want %d", len(again), len(got)+1)
		}
	}
	if err := os.WriteFile(file, []byte("{\"spec\": \"other\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, "demo"); err == nil {
		t.Error("a run of another spec was read")
	}
}

func TestNoisy(t *testing.T) {
	t.Parallel()
	calm := bench.Noise{Median: 10, Spread: 5}
	for _, x := range []struct {
		after bench.Noise
		want  bool
	}{{calm, false}, {bench.Noise{Median: 10, Spread: 80}, true}, {bench.Noise{Median: 14, Spread: 5}, true}, {bench.Noise{}, true}} {
		if got := noisy(&calm, &x.after); got != x.want {
			t.Errorf("noise %v after the run: %v", x.after, got)
		}
	}
}

// A campaign keeps each run at once, and starts none that does not fit.
func TestCampaign(t *testing.T) {
	t.Parallel()
	bin, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"coordinator", "scheduler", "powerd", "powerlab"} {
		if err := os.WriteFile(bin+"/"+name, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := spec()
	s.Pairs, s.Claims = 2, nil
	ran := 0
	s.Run = func(_ context.Context, r *Run) (Figures, error) {
		if ran++; ran == 2 {
			return nil, os.ErrDeadlineExceeded // the campaign is cut short
		}
		return Figures{"took_s": 1}, os.WriteFile(r.Path("x"), nil, 0o600)
	}
	c := campaign{dir: dir, bin: bin, note: t.Logf, look: func() (bench.Noise, string) { return bench.Noise{Runs: 1, Median: 10}, "here" }}
	if err := c.run(t.Context(), []*Spec{s}); err == nil {
		t.Fatal("a run that failed is no error")
	}
	if n := len(testkit.Need(Read(dir, "demo"))(t)); n != 1 {
		t.Fatalf("%d runs kept, want 1", n)
	}
	late := c
	late.until = time.Now().Add(-time.Second)
	if err := late.run(t.Context(), []*Spec{s}); err != nil || ran != 2 {
		t.Fatalf("%d runs after the time was over: %v", ran, err)
	}
	if err := c.run(t.Context(), []*Spec{s}); err != nil {
		t.Fatal(err)
	}
	all := testkit.Need(Read(dir, "demo"))(t)
	if ran != 5 || len(all) != 4 {
		t.Errorf("%d runs, %d kept", ran, len(all))
	}
	if r := all[0]; r.Variant != "ours" || r.Seed != firstSeed || r.Machine == "" || r.Date.IsZero() || r.Before.Runs == 0 || r.After.Runs == 0 {
		t.Errorf("kept %+v", r)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := records(50, 51, 49)
	for i := range all {
		if err := Append(dir, &all[i]); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		cmd := NewCommand([]*Spec{spec()})
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append(args, "--results", dir))
		if err := cmd.Execute(); err != nil {
			return err.Error()
		}
		return out.String()
	}
	for _, x := range []struct{ args, want string }{
		{"", "3 of 3"},
		{"--report", "-50.00 %"},
		{"--report --markdown", "| demo | faster |"},
		{"demo", "demo has 6 runs"},
		{"--for -1s", "must be positive"},
		{"nothing", "unknown experiment"},
	} {
		if got := run(strings.Fields(x.args)...); !strings.Contains(got, x.want) {
			t.Errorf("campaign %s: %q without %q", x.args, got, x.want)
		}
	}
	if j := Judge(spec(), all)[0]; math.Abs(*j.Got+50) > 1e-9 {
		t.Errorf("mean %v", *j.Got)
	}
}
