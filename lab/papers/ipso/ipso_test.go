// Claims: the study is the same for the same seeds; no target is short; the tables and the plot are written.
package ipso

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
	"headroom/lab/report"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

func TestStudy(t *testing.T) {
	t.Parallel()
	a, b := testkit.Need(honest().judged(1, 2))(t), testkit.Need(honest().judged(1, 2))(t)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seeds give other targets")
	}
	for _, x := range a {
		if x.Verdict == report.Short {
			t.Errorf("%s is short: %v", x.ID, *x.Got)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exit, stdout, stderr := testkit.Run(t, NewCommand(), "", "--seeds", "1", "--seed", "1", "--out", dir, "-o", "json")
	var got struct {
		Targets []struct{ ID, Verdict string }
	}
	testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
	if exit != 0 || len(got.Targets) != 31 {
		t.Errorf("exit %d, %d targets: %s", exit, len(got.Targets), stderr)
	}
	for _, name := range []string{"targets.md", "targets.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
