// Claim: the demonstration on a real Hadoop ends as its page describes: the guarantees hold
// while the budget is lowered, and jobs of both classes end.
package hadoop

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
)

func TestDemo(t *testing.T) {
	testkit.Engines(t, "hadoop "+hadoop.Version)
	root := testkit.Need(filepath.Abs(filepath.Join("..", "..", "..")))(t)
	bin := filepath.Join(root, "bin")
	permitted(t, errors.Join(cluster.BuildHooks(t.Context(), root, bin), cluster.BuildPrograms(t.Context(), bin)))
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "powerlab"), "demo", "--engine", "yarn", "--out", filepath.Join(t.TempDir(), "demo"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	testkit.Check(t, cmd.Run())
}
