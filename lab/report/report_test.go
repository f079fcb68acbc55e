// Claims: every study reports in one form; exit code 8 means that a target is short, and names it;
// what was not measured is null, not 0; a value outside the paper's tolerance is not met.
package report

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

func cab() *Report {
	paper, got, low, high := 1.72, 1.7, 1.6, 1.8
	return &Report{Paper: "cab", Seed: 7, Targets: []Target{
		{ID: "D1/95", What: "runtime", Unit: "%", Paper: &paper, Got: &got, Low: &low, High: &high, Verdict: Met, Note: "n"},
		{ID: "D6", What: "order", Verdict: Short, Note: "not measured"},
		Left("D9", "estimates", "", "run it"),
	}}
}

// The JSON form is the contract, to the byte.
func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	testkit.Check(t, cab().Print(&out, &cli.Output{Format: "json"}))
	want := `{"paper":"cab","seed":7,"targets":[` +
		`{"id":"D1/95","what":"runtime","unit":"%","paper":1.72,"got":1.7,"low":1.6,"high":1.8,"met":true,"verdict":"met","note":"n"},` +
		`{"id":"D6","what":"order","unit":"","paper":null,"got":null,"low":null,"high":null,"met":false,"verdict":"short","note":"notmeasured"},` +
		`{"id":"D9","what":"estimates","unit":"","paper":null,"got":null,"low":null,"high":null,"met":null,"verdict":"not_run","note":"runit"}]}`
	if got := strings.Join(strings.Fields(out.String()), ""); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The table shows the same to a person.
func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	testkit.Check(t, cab().Print(&out, &cli.Output{NoHeaders: true}))
	want := "D1/95  runtime    1.72 %  1.70 %  1.60 to 1.80  met      n\n" +
		"D6     order      -       -       -             short    not measured\n" +
		"D9     estimates  -       -       -             not_run  run it\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// Exit code 8 names what falls short; 0 needs all of them met.
func TestVerdict(t *testing.T) {
	t.Parallel()
	r := cab()
	e, ok := errors.AsType[*cli.Error](r.Verdict())
	if !ok || e.Exit != cli.ExitDegraded || !strings.Contains(e.Message, "1 of 3 targets of cab are short: D6") || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	r.Targets = slices.Delete(r.Targets, 1, 2)
	if err := r.Verdict(); err != nil {
		t.Errorf("%v", err)
	}
}

// Bounds are Student's: of known quantiles, none of a single seed, unknown with an unknown value.
func TestOf(t *testing.T) {
	t.Parallel()
	for n, quantile := range map[int]float64{2: 12.706, 5: 2.776, 11: 2.228, 20: 2.093, 101: 1.984} {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i % 2)
		}
		s := Of(values)
		squares := 0.0
		for _, v := range values {
			squares += (v - s.Mean) * (v - s.Mean)
		}
		if want := quantile * math.Sqrt(squares/float64(n-1)/float64(n)); math.Abs(s.High-s.Mean-want) > 0.001 || math.Abs(s.Mean-s.Low-want) > 0.001 {
			t.Errorf("%d values: %+v, want half a width of %v", n, s, want)
		}
	}
	if s := Of([]float64{5}); s.Low != 5 || s.High != 5 || !s.Known {
		t.Errorf("%+v", s)
	}
	if Of(nil).Known || Of([]float64{1, math.NaN()}).Known {
		t.Error("known, with an unknown value or without any")
	}
}

// A value within the tolerance is met, one outside is of the right order at best and reports
// by how much it misses, and one of the wrong order is short however near it lies.
func TestFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got     float64
		ordered bool
		within  Range
		want    Verdict
		says    string
	}{
		{1.7, true, Around(1.72, 0.07), Met, "tolerance 1.65 to 1.79"},
		{1.55, true, Around(1.42, 0.06), Order, "n; tolerance 1.36 to 1.48, missed by 0.07"},
		{1.2, true, Around(1.42, 0.06), Order, "missed by 0.16"},
		{1.7, false, Around(1.72, 0.07), Short, ""},
		{-35, true, AtMost(-30), Met, "tolerance up to -30.00"},
		{35, true, AtLeast(30), Met, "tolerance 30.00 or more"},
		{-25, true, AtMost(-30), Order, "missed by 5.00"},
	} {
		x := From(1.72, c.within, Judge("D1", "w", "", Once(c.got), c.ordered, "n"))
		if x.Verdict != c.want || !strings.Contains(x.Note, c.says) || *x.Paper != 1.72 {
			t.Errorf("%+v: %s, %s", c, x.Verdict, x.Note)
		}
	}
	if x := From(1, Around(1, 1), Judge("D1", "w", "", Stat{}, true, "n")); x.Verdict != Short || x.Note != "not measured" {
		t.Errorf("%+v", x)
	}
}
