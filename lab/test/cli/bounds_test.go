// Claims: config check of any file ends within 2 s and 300 MB, and what is no file of
// text is refused at once.
package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

func TestConfigCheckEndsSoon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The race detector would be measured in this test's own binary.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", dir, "headroom/cmd/coordinator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fifo, chain, brackets := filepath.Join(dir, "fifo"), filepath.Join(dir, "chain.yaml"), filepath.Join(dir, "brackets.yaml")
	testkit.Check(t, syscall.Mkfifo(fifo, 0o600))
	for path, text := range map[string]string{chain: chained(1050), brackets: "id: " + strings.Repeat("[", 60_000)} {
		testkit.WriteFile(t, path, text)
	}
	for _, c := range []struct {
		path, says string
		code       int
	}{
		{chain, "server c1 of 1", 0},
		{brackets, "brackets.yaml:1:37: nested", 2},
		{fifo, "fifo: not a regular file", 2},
		{"/dev/zero", "/dev/zero: not a regular file", 2},
	} {
		// Wall time only ends what hangs: other tests run beside this one.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		check := exec.CommandContext(ctx, filepath.Join(dir, "coordinator"), "config", "check", "--config", c.path)
		out, err := check.CombinedOutput()
		cancel()
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && exit.ExitCode() != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v, %.200s; want exit code %d and %q", c.path, err, out, c.code, c.says)
		}
		used := check.ProcessState.SysUsage().(*syscall.Rusage)
		if cpu := check.ProcessState.UserTime() + check.ProcessState.SystemTime(); cpu > 2*time.Second || used.Maxrss > 300<<10 {
			t.Errorf("%s: took %v and %d MB", c.path, cpu, used.Maxrss>>10)
		}
	}
}

// chained is a server's configuration with a power tree that is one long chain.
func chained(domains int) string {
	var b strings.Builder
	b.WriteString("id: c1\nstate_dir: state\ntls: {mode: \"off\"}\nservers:\n  - {id: c1, rpc: \"127.0.0.1:1\", raft: \"127.0.0.1:2\"}\n")
	b.WriteString("site:\n  - {name: d0, budget: 100kW}\n")
	for i := 1; i < domains; i++ {
		fmt.Fprintf(&b, "  - {name: d%d, parent: d%d, budget: %dW}\n", i, i-1, 100_000-i)
	}
	return b.String()
}
