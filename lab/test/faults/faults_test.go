// Claims: the outside checker reports no violation for the programs as they are, detects a
// powerd that ignores the end of its lease by the power of the machines, and ends with exit
// code 8 where the machine does not permit a run.
package faults

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
	"headroom/lab/cluster"
)

// notPermitted is the exit code of a run that the machine does not permit.
const notPermitted = 8

// seed draws a cut of the budget past a stopped powerd, and a node that is cut off, among
// the first four faults.
const seed = "42"

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

// inject runs the judge of one folder of programs over those of another.
func inject(t *testing.T, env []string, lab, bin string) (r report, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(ctx, filepath.Join(lab, "powerlab"), "faults", "--for", "32s", "--seed", seed, "--bin", bin, "--dir", dir, "-o", "json")
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

// sabotage is one line of one file that breaks a promise, in one program.
type sabotage struct{ name, program, file, was, is, finds string }

func sabotages() []sabotage {
	return []sabotage{
		{"a powerd that ignores the end of its lease", "powerd", "lease/lease.go", "case now.Boot >= h.end:", "case now.Boot >= h.end+3600e9:", "lapsed: "},
	}
}

// build is a folder with the programs of bin, but for the one that is sabotaged.
func (s sabotage) build(t *testing.T, bin string) string {
	t.Helper()
	dir := t.TempDir()
	root := testkit.Need(filepath.Abs("../../.."))(t)
	source := filepath.Join(root, filepath.FromSlash(s.file))
	text, err := os.ReadFile(source)
	if err != nil || strings.Count(string(text), s.was) != 1 {
		t.Fatalf("%s has %q %d times: %v", s.file, s.was, strings.Count(string(text), s.was), err)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	plan := testkit.Need(json.Marshal(map[string]map[string]string{"Replace": {source: changed}}))(t)
	for path, data := range map[string][]byte{changed: []byte(strings.Replace(string(text), s.was, s.is, 1)), overlay: plan} {
		testkit.WriteFile(t, path, data)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", filepath.Join(dir, s.program), "headroom/cmd/"+s.program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, p := range []string{"coordinator", "powerd", "powerlab"} {
		if p == s.program {
			continue
		}
		testkit.Check(t, os.Symlink(filepath.Join(bin, p), filepath.Join(dir, p)))
	}
	return dir
}

func TestTorment(t *testing.T) { //nolint:paralleltest // uses the whole machine
	if testing.Short() {
		testkit.NotRun(t, "a cluster of real processes takes the whole machine")
	}
	bin := t.TempDir()
	testkit.Check(t, cluster.BuildPrograms(t.Context(), bin))
	r, code := inject(t, []string{"PATH=/nonexistent"}, bin, bin)
	if code != notPermitted || len(r.NotRun) == 0 || len(r.Violations) > 0 {
		t.Errorf("without any tool of the machine: exit %d, %+v", code, r)
	}
	broken := map[string]string{}
	for _, s := range sabotages() {
		broken[s.name] = s.build(t, bin)
	}
	t.Run("clean", func(t *testing.T) {
		t.Parallel()
		r, code := inject(t, nil, bin, bin)
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
	for _, s := range sabotages() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r, code := inject(t, nil, bin, broken[s.name])
			if code == notPermitted {
				testkit.NotRun(t, strings.Join(r.NotRun, "; "))
			}
			if code != 1 || !strings.Contains("\n"+strings.Join(r.Violations, "\n"), "\n"+s.finds) {
				t.Errorf("exit %d, violations %q", code, r.Violations)
			}
		})
	}
}
