// Claims: the outside judge finds nothing wrong with the programs as they are, and
// finds a powerd that ignores the end of its lease; where the machine does not permit a
// run, it says so with exit code 8.
package torment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/rig"
)

// notPermitted is the exit code of a run that the machine does not permit.
const notPermitted = 8

// patience bounds one run: faults, boot and healing.
const patience = 4 * time.Minute

type report struct {
	Seed       uint64         `json:"seed"`
	ForS       float64        `json:"for_s"`
	Faults     map[string]int `json:"faults"`
	Checks     map[string]int `json:"checks"`
	Violations []string       `json:"violations"`
	NotRun     []string       `json:"not_run"`
}

// torment runs the judge of one folder of programs over those of another.
func torment(t *testing.T, env []string, lab, bin string) (r report, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(ctx, filepath.Join(lab, "powerlab"), "torment", "--for", "32s", "--seed", "3", "--bin", bin, "--dir", dir, "-o", "json")
	cmd.Env = env
	said := &bytes.Buffer{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("exit %d: %v\n%s%s", code, err, out, said)
	}
	t.Logf("exit %d: %s", code, bytes.Join(bytes.Fields(out), []byte(" ")))
	return r, code
}

// sabotaged is a folder with the programs of bin, but with a powerd that was built with
// one line of one file changed.
func sabotaged(t *testing.T, bin, file, was, is string) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, filepath.FromSlash(file))
	text, err := os.ReadFile(source)
	if err != nil || strings.Count(string(text), was) != 1 {
		t.Fatalf("%s has %q %d times: %v", file, was, strings.Count(string(text), was), err)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{changed: []byte(strings.Replace(string(text), was, is, 1)), overlay: plan} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", filepath.Join(dir, "powerd"), "headroom/cmd/powerd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, p := range []string{"coordinator", "powerlab"} {
		if err := os.Symlink(filepath.Join(bin, p), filepath.Join(dir, p)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTorment(t *testing.T) { //nolint:paralleltest // uses the whole machine
	if testing.Short() {
		testkit.NotRun(t, "a cluster of real processes takes the whole machine")
	}
	bin := t.TempDir()
	if err := rig.BuildPrograms(t.Context(), bin); err != nil {
		t.Fatal(err)
	}
	r, code := torment(t, []string{"PATH=/nonexistent"}, bin, bin)
	if code != notPermitted || len(r.NotRun) == 0 || len(r.Violations) > 0 {
		t.Errorf("without any tool of the machine: exit %d, %+v", code, r)
	}
	broken := sabotaged(t, bin, "lease/lease.go", "case now.Boot >= h.end:", "case now.Boot >= h.end+3600e9:")
	t.Run("clean", func(t *testing.T) {
		t.Parallel()
		r, code := torment(t, nil, bin, bin)
		if code == notPermitted {
			testkit.NotRun(t, strings.Join(r.NotRun, "; "))
		}
		if code != 0 || len(r.Violations) > 0 || len(r.Faults) < 5 {
			t.Errorf("exit %d: %d kinds of faults, violations %q", code, len(r.Faults), r.Violations)
		}
		for _, check := range []string{"watts", "lapsed", "linearizable", "audited"} {
			if r.Checks[check] == 0 {
				t.Errorf("nothing was checked of %s", check)
			}
		}
	})
	t.Run("sabotaged", func(t *testing.T) {
		t.Parallel()
		r, code := torment(t, nil, bin, broken)
		if code == notPermitted {
			testkit.NotRun(t, strings.Join(r.NotRun, "; "))
		}
		if code != 1 || !strings.HasPrefix(strings.Join(r.Violations, "\n"), "lapsed: ") {
			t.Errorf("a powerd that ignores the end of its lease: exit %d, violations %q", code, r.Violations)
		}
	})
}
