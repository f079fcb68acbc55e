// Claims: Table 3.3's columns are as printed, by the relative errors beside them; the printed parameters fall short where they do, and
// nowhere else; the tables and the plot are written.
package usba

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// The mean relative errors of the printed columns.
func TestTableIsAsPrinted(t *testing.T) {
	t.Parallel()
	for i, b := range benchmarks() {
		mean := 0.0
		for _, row := range table33() {
			mean += 100 * math.Abs(row.modelled[i]/row.measured[i]-1) / float64(len(table33()))
		}
		if math.Abs(mean-b.mean) > 0.3 {
			t.Errorf("%s: mean error %.2f %%, printed %.1f %%", b.name, mean, b.mean)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exit, stdout, stderr := testkit.Run(t, NewCommand(), "", "--out", dir, "-o", "json")
	var got struct {
		Targets []struct{ ID, Verdict string }
	}
	testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
	if exit != 8 || len(got.Targets) != 45 {
		t.Errorf("exit %d, %d targets: %s", exit, len(got.Targets), stderr)
	}
	for _, x := range got.Targets {
		if short := x.ID == "F4/bayes" || x.ID == "F4/nweight"; (x.Verdict == "short") != short {
			t.Errorf("%s is %s", x.ID, x.Verdict)
		}
	}
	for _, name := range []string{"targets.md", "targets.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
