// Claim: a job whose tasks are run without a scheduler gets the commands, the
// environment and the inputs that a scheduler gives it, and outputs of its own.
package jobfile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"headroom/internal/testkit"
)

func TestAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b.txt", "a.txt"} {
		testkit.Check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	const file = `{name: words, class: low, slots: 2, output: out, map: {input: "*.txt", command: [sh, "{index}", "{input}", "{output}"]}, reduce: {command: [sh, sum]}}`
	f := testkit.Need(Parse(filepath.Join(dir, "job.yaml"), []byte(file), nil))(t)
	a, err := f.Alone(dir, "/outputs")
	if err != nil || a.Tasks() != 2 || a.Input(1) != filepath.Join(dir, "b.txt") {
		t.Fatalf("%+v, %v", a, err)
	}
	m := a.Map(1)
	if want := []string{"1", a.Input(1), "/outputs/.map-1.00000001.part"}; !slices.Equal(m.GetArgv()[1:], want) || m.GetOutput() != "/outputs/map-1" || m.GetDir() != dir {
		t.Errorf("%v, want %v", m, want)
	}
	if !slices.Contains(m.GetEnv(), "HEADROOM_INDEX=1") {
		t.Errorf("environment %v", m.GetEnv())
	}
	r := a.Reduce([]int{0, 1}, "sum-1")
	if want := []string{"sum", "/outputs/map-0", "/outputs/map-1"}; !slices.Equal(r.GetArgv()[1:], want) || r.GetOutput() != "/outputs/sum-1" {
		t.Errorf("%v, want %v", r, want)
	}
	f.Reduce = nil
	if r := a.Reduce([]int{0}, "sum-1"); r != nil {
		t.Errorf("a job without a reduce task has %v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("the job's own output folder was made")
	}
}
