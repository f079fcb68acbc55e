// Claims: every study has the same flags; exit code 0 means that no target is short, 8 that some are;
// --out keeps the report and the study's tables.
package papers_test

import (
	"context"
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

// study is a command whose second target is met from two seeds on.
func study() *cobra.Command {
	return papers.Study{
		Paper: "cab", Seeds: 3,
		Run: func(_ context.Context, o *papers.Options) (*papers.Result, error) {
			return &papers.Result{
				Targets: []report.Target{
					report.From(9, report.Around(9, 1), report.Judge("D1", "w", "", report.Once(1), true, "n")),
					report.Judge("D2", "w", "", report.Once(float64(o.Seeds)), o.Seeds > 1, "n"),
					report.Left("D3", "w", "", "elsewhere"),
				},
				Tables: map[string][][]string{"policies.md": {{"policy"}, {"ours"}}},
			}, nil
		},
	}.Command()
}

func TestOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if exit, _, stderr := testkit.Run(t, study(), "", "--out", dir); exit != cli.ExitOK {
		t.Fatal(stderr)
	}
	for name, want := range map[string]string{
		"targets.svg": "D1",
		"targets.md":  "| D3 | w |  |  |  | not_run | elsewhere |\n",
		"policies.md": "| ours |\n",
	} {
		if got := string(testkit.Need(os.ReadFile(filepath.Join(dir, name)))(t)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int{
		"-o json": cli.ExitOK, "--seeds 1": cli.ExitDegraded, "--seeds 0": cli.ExitUsage, "--seeds 1001": cli.ExitUsage,
		"--traces .": cli.ExitUsage, "--engine yarn": cli.ExitUsage, "more": cli.ExitUsage,
	} {
		if exit, stdout, stderr := testkit.Run(t, study(), "", strings.Fields(args)...); exit != want || exit == cli.ExitUsage && stdout != "" {
			t.Errorf("%s: exit %d, want %d: %s", args, exit, want, stderr)
		}
	}
	_, stdout, _ := testkit.Run(t, study(), "", "-o", "json", "--seed", "7")
	if !strings.Contains(strings.Join(strings.Fields(stdout), ""), `"paper":"cab","seed":7,"targets":[{"id":"D1",`) {
		t.Error(stdout)
	}
}
