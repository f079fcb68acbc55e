// Claims: every study reports in one form; exit code 0 says that no target is short, 8
// that some are, and names them; what was not measured is null, not 0; a value outside the
// paper's tolerance is not met; a mutant that its targets do not notice is an error.
package papers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/papers"
)

func report() *papers.Report {
	paper, got, low, high := 1.72, 1.7, 1.6, 1.8
	return &papers.Report{Paper: "cab", Seed: 7, Targets: []papers.Target{
		{ID: "D1/95", What: "runtime", Unit: "%", Paper: &paper, Got: &got, Low: &low, High: &high, Verdict: papers.Met, Note: "n"},
		{ID: "D6", What: "order", Verdict: papers.Short, Note: "not measured"},
		papers.Left("D9", "estimates", "", "run it"),
	}}
}

// The JSON form is the contract, to the byte.
func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	testkit.Check(t, report().Print(&out, &cli.Output{Format: "json"}))
	want := `{"paper":"cab","seed":7,"targets":[` +
		`{"id":"D1/95","what":"runtime","unit":"%","paper":1.72,"got":1.7,"low":1.6,"high":1.8,"oracle":null,"met":true,"verdict":"met","note":"n"},` +
		`{"id":"D6","what":"order","unit":"","paper":null,"got":null,"low":null,"high":null,"oracle":null,"met":false,"verdict":"short","note":"notmeasured"},` +
		`{"id":"D9","what":"estimates","unit":"","paper":null,"got":null,"low":null,"high":null,"oracle":null,"met":null,"verdict":"not_run","note":"runit"}]}`
	if got := strings.Join(strings.Fields(out.String()), ""); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The table says the same to a person.
func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	testkit.Check(t, report().Print(&out, &cli.Output{NoHeaders: true}))
	want := "D1/95  runtime    1.72 %  1.70 %  1.60 to 1.80  -  met      n\n" +
		"D6     order      -       -       -             -  short    not measured\n" +
		"D9     estimates  -       -       -             -  not_run  run it\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// Exit code 8 names what falls short; 0 needs all of them met.
func TestVerdict(t *testing.T) {
	t.Parallel()
	r := report()
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
		s := papers.Of(values)
		squares := 0.0
		for _, v := range values {
			squares += (v - s.Mean) * (v - s.Mean)
		}
		if want := quantile * math.Sqrt(squares/float64(n-1)/float64(n)); math.Abs(s.High-s.Mean-want) > 0.001 || math.Abs(s.Mean-s.Low-want) > 0.001 {
			t.Errorf("%d values: %+v, want half a width of %v", n, s, want)
		}
	}
	if s := papers.Of([]float64{5}); s.Low != 5 || s.High != 5 || !s.Known {
		t.Errorf("%+v", s)
	}
	if papers.Of(nil).Known || papers.Of([]float64{1, math.NaN()}).Known {
		t.Error("known, with an unknown value or without any")
	}
}

// A value within the tolerance is met, one outside is of the right order at best and says
// by how much it misses, and one of the wrong order is short however near it lies.
func TestFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got     float64
		ordered bool
		within  papers.Range
		want    papers.Verdict
		says    string
	}{
		{1.7, true, papers.Around(1.72, 0.07), papers.Met, "tolerance 1.65 to 1.79"},
		{1.55, true, papers.Around(1.42, 0.06), papers.Order, "n; tolerance 1.36 to 1.48, missed by 0.07"},
		{1.2, true, papers.Around(1.42, 0.06), papers.Order, "missed by 0.16"},
		{1.7, false, papers.Around(1.72, 0.07), papers.Short, ""},
		{-35, true, papers.AtMost(-30), papers.Met, "tolerance up to -30.00"},
		{35, true, papers.AtLeast(30), papers.Met, "tolerance 30.00 or more"},
		{-25, true, papers.AtMost(-30), papers.Order, "missed by 5.00"},
	} {
		x := papers.From(1.72, c.within, papers.Judge("D1", "w", "", papers.Once(c.got), c.ordered, "n"))
		if x.Verdict != c.want || !strings.Contains(x.Note, c.says) || *x.Paper != 1.72 {
			t.Errorf("%+v: %s, %s", c, x.Verdict, x.Note)
		}
	}
	if x := papers.From(1, papers.Around(1, 1), papers.Judge("D1", "w", "", papers.Stat{}, true, "n")); x.Verdict != papers.Short || x.Note != "not measured" {
		t.Errorf("%+v", x)
	}
}

// study is a command of which the mutants are made up: the one breaks D1, the other
// breaks nothing and is to break D2.
func study(expected ...string) *cobra.Command { return studyBeside("D3", expected...) }

// studyBeside is the same with another target whose mutant is tried elsewhere.
func studyBeside(elsewhere string, expected ...string) *cobra.Command {
	targets := func(d1, d2 bool) []papers.Target {
		return []papers.Target{
			papers.Judge("D1", "w", "", papers.Once(1), d1, "n"), papers.From(9, papers.Around(9, 1), papers.Judge("D2", "w", "", papers.Once(1), d2, "n")),
			papers.Left("D3", "w", "", "elsewhere"),
		}
	}
	o := papers.Options{Seeds: 1}
	return papers.Study{
		Paper: "cab", MutantSeeds: 3, Check: func() error { return nil },
		Engines: map[string]papers.Engine{"": func(context.Context, io.Writer) ([]papers.Target, error) { return targets(true, true), nil }, "yarn": nil},
		Mutants: func(context.Context, io.Writer) (*papers.Mutants, error) {
			return &papers.Mutants{Honest: targets(true, true), Elsewhere: []papers.Elsewhere{{Target: elsewhere, How: "a test"}}, All: []papers.Mutant{
				{Name: "one", Expected: []string{"D1"}, Targets: func(context.Context) ([]papers.Target, error) { return targets(false, true), nil }},
				{Name: "two", Expected: expected, Targets: func(context.Context) ([]papers.Target, error) { return targets(o.Seeds != 3, false), nil }},
			}}, nil
		},
		SweepSeeds: 2,
		Sweep: func(context.Context, io.Writer) ([]papers.Setting, error) {
			return []papers.Setting{
				{Name: "as chosen", Targets: func(context.Context) ([]papers.Target, error) { return targets(true, o.Seeds == 2), nil }},
				{Name: "other", Targets: func(context.Context) ([]papers.Target, error) { return targets(true, false), nil }},
			}, nil
		},
	}.Command(&cobra.Command{}, &o)
}

// --sweep prints the verdicts under every setting and which of them depend on it, and
// keeps them with --out.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exit, stdout, stderr := testkit.Run(t, study("D2"), "", "--sweep", "-o", "json", "--out", dir)
	want := `{"paper":"cab","seed":1001,"seeds":2,"sweep":[{"setting":"aschosen","verdicts":{"D1":"met","D2":"order","D3":"not_run"}},` +
		`{"setting":"other","verdicts":{"D1":"met","D2":"short","D3":"not_run"}}],"depends":["D2"]}`
	if got := strings.Join(strings.Fields(stdout), ""); got != want || exit != cli.ExitOK {
		t.Errorf("exit %d, %s%s\nwant\n%s", exit, got, stderr, want)
	}
	if got := string(testkit.Need(os.ReadFile(filepath.Join(dir, "sweep.md")))(t)); !strings.Contains(got, "| D2 | order | short |\n") {
		t.Errorf("%s", got)
	}
	if exit, stdout, _ := testkit.Run(t, study("D2"), "", "--sweep", "--no-headers"); exit != cli.ExitOK || stdout != "D1  met    met\nD2  order  short\nverdicts that depend on the setting: D2\n" {
		t.Errorf("exit %d, %q", exit, stdout)
	}
	if exit, _, _ := testkit.Run(t, study("D2"), "", "--sweep", "--engine", "yarn"); exit != cli.ExitUsage {
		t.Errorf("exit %d", exit)
	}
}

// --mutants prints its documented form and nothing else, on its own number of seeds, and
// fails where a mistake is not noticed, is not expected to be, or no mistake is for a target.
func TestMutants(t *testing.T) {
	t.Parallel()
	exit, stdout, _ := testkit.Run(t, study("D1", "D2"), "", "--mutants", "-o", "json")
	want := `{"paper":"cab","seed":1001,"mutants":[{"name":"one","expected":["D1"],"fell":["D1"]},{"name":"two","expected":["D1","D2"],"fell":["D1","D2"]}],"elsewhere":[{"target":"D3","how":"atest"}]}`
	if got := strings.Join(strings.Fields(stdout), ""); got != want || exit != cli.ExitOK {
		t.Errorf("exit %d, %s\nwant\n%s", exit, got, want)
	}
	for says, command := range map[string]*cobra.Command{
		`"two" does not break D3`:       study("D2", "D3"),
		`"two" is to break nothing; no`: study(),
		"no mutant is to break D2":      study("D1"),
		"no mutant is to break D3":      studyBeside("D4", "D2"),
		"is to break D2, D3":            studyBeside("D2", "D1"),
	} {
		exit, stdout, stderr := testkit.Run(t, command, "", "--mutants")
		if exit != cli.ExitDegraded || !strings.Contains(stderr, says) || !strings.Contains(stdout, "MISSED") {
			t.Errorf("exit %d, %s, want %s", exit, stderr, says)
		}
	}
	if exit, stdout, _ := testkit.Run(t, study("D2"), "", "--mutants", "--seeds", "4", "--no-headers"); exit != cli.ExitOK || stdout != "one  D1  D1\ntwo  D2  D2\n" {
		t.Errorf("exit %d, %q", exit, stdout)
	}
	for _, args := range [][]string{{"--engine", "yarn"}, {"--out", t.TempDir()}} {
		if exit, _, _ := testkit.Run(t, study("D2"), "", append(args, "--mutants")...); exit != cli.ExitUsage {
			t.Errorf("%v: exit %d", args, exit)
		}
	}
}

// --out keeps the targets with their verdicts, for machines and for a page of docs.
func TestTargetFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if exit, _, stderr := testkit.Run(t, study("D2"), "", "--out", dir); exit != cli.ExitOK {
		t.Fatal(stderr)
	}
	for name, want := range map[string]string{
		"targets.csv": "D2,w,,9.00000,1.00000,1.00000,1.00000,,order,",
		"targets.md":  "| D3 | w |  |  |  |  | not_run | elsewhere |\n",
	} {
		if got := string(testkit.Need(os.ReadFile(filepath.Join(dir, name)))(t)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A file that cannot be written to its end leaves what stood there before, and nothing half-written.
func TestFilesAreWholeOrNot(t *testing.T) {
	t.Parallel()
	dir, broken := t.TempDir(), errors.New("no space left")
	files := papers.Files{"runs.csv": func(w io.Writer) error { _, err := io.WriteString(w, "first\n"); return err }}
	testkit.Check(t, files.Write(dir))
	files["runs.csv"] = func(w io.Writer) error {
		_, err := io.WriteString(w, "sec")
		return errors.Join(err, broken)
	}
	if err := files.Write(dir); !errors.Is(err, broken) || !strings.Contains(err.Error(), "runs.csv") {
		t.Errorf("%v", err)
	}
	entries := testkit.Need(os.ReadDir(dir))(t)
	if data := testkit.Need(os.ReadFile(filepath.Join(dir, "runs.csv")))(t); string(data) != "first\n" || len(entries) != 1 {
		t.Errorf("%q, %d files", data, len(entries))
	}
}
