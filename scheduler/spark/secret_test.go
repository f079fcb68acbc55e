package spark

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// The run's token is in the environment of its driver, and in no command line: every
// user of a machine can read those.
func TestTokenIsOnNoCommandLine(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	gate := filepath.Join(l.dir, "go")
	r := runOf(l.dir, "words", 1, "wait", gate)
	testkit.Check(t, l.engine.Start(r))
	token := l.token(r)
	var d driver
	l.until("the driver runs", func() bool {
		out, _ := os.ReadFile(filepath.Join(r.Folder, stdoutFile))
		return readJSON(filepath.Join(r.Folder, driverFile), &d) == nil && strings.Contains(string(out), "ready")
	})
	for _, p := range []process{d.Supervisor, d.Driver} {
		if strings.Contains(procFile(t, p, "cmdline"), token) {
			t.Errorf("the command line of process %d shows the token", p.Pid)
		}
	}
	if !slices.Contains(strings.Split(procFile(t, d.Driver, "environ"), "\x00"), tokenEnv+"="+token) {
		t.Error("the driver's environment does not hold the token")
	}
	testkit.Check(t, os.WriteFile(gate, nil, 0o600))
	if ev := l.ended(); !ev.Ended.OK {
		t.Errorf("ended with %+v", ev.Ended)
	}
}

func procFile(t *testing.T, p process, name string) string {
	t.Helper()
	data := testkit.Need(os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid), name)))(t)
	return string(data)
}
