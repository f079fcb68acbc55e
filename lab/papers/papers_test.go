// Claims: every study reports in one form; exit code 0 says that no target is short, 8
// that some are, and names them; what was not measured is null, not 0; a value outside the
// paper's tolerance is not met; a mutant that its targets do not notice is an error.
package papers_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// study is a command of which the mutants are made up: the one breaks D1, the other
// breaks nothing and is to break D2.
func study(expected ...string) *cobra.Command { return studyBeside("D3", expected...) }

// studyBeside is the same with another target whose mutant is tried elsewhere.
func studyBeside(elsewhere string, expected ...string) *cobra.Command {
	targets := func(d1, d2 bool) []report.Target {
		return []report.Target{
			report.Judge("D1", "w", "", report.Once(1), d1, "n"), report.From(9, report.Around(9, 1), report.Judge("D2", "w", "", report.Once(1), d2, "n")),
			report.Left("D3", "w", "", "elsewhere"),
		}
	}
	o := papers.Options{Seeds: 1}
	return papers.Study{
		Paper: "cab", MutantSeeds: 3, Check: func() error { return nil },
		Engines: map[string]papers.Engine{"": func(context.Context, io.Writer) ([]report.Target, error) { return targets(true, true), nil }, "yarn": nil},
		Mutants: func(context.Context, io.Writer) (*papers.Mutants, error) {
			return &papers.Mutants{Honest: targets(true, true), Elsewhere: []papers.Elsewhere{{Target: elsewhere, How: "a test"}}, All: []papers.Mutant{
				{Name: "one", Expected: []string{"D1"}, Targets: func(context.Context) ([]report.Target, error) { return targets(false, true), nil }},
				{Name: "two", Expected: expected, Targets: func(context.Context) ([]report.Target, error) { return targets(o.Seeds != 3, false), nil }},
			}}, nil
		},
		SweepSeeds: 2,
		Sweep: func(context.Context, io.Writer) ([]papers.Setting, error) {
			return []papers.Setting{
				{Name: "as chosen", Targets: func(context.Context) ([]report.Target, error) { return targets(true, o.Seeds == 2), nil }},
				{Name: "other", Targets: func(context.Context) ([]report.Target, error) { return targets(true, false), nil }},
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
