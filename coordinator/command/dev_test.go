// Claims: one command without a configuration starts a group that answers; it says
// loudly that it is no server for machines that matter, never listens beyond
// loopback, and keeps what it was told to keep.
package command_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"headroom/coordinator/command"
	"headroom/internal/cli"
)

// portsInARow is the first of three free ports of loopback.
func portsInARow(t *testing.T) string {
	t.Helper()
	for range 100 {
		first := freeAddr(t)
		_, text, _ := net.SplitHostPort(first)
		port, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		free := port < 1<<16-3
		for i := 1; i < 3 && free; i++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
			if free = err == nil; free {
				_ = l.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no three free ports in a row")
	return ""
}

// during runs a server while f runs, and answers what it said.
func during(t *testing.T, args []string, f func()) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var says bytes.Buffer
	go func() { ended <- cli.Run(ctx, command.New(), args, &says, &says) }()
	f()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("the server ended with %d:\n%s", code, says.String())
	}
	return says.String()
}

func TestDevServer(t *testing.T) {
	t.Parallel()
	dir, addr := filepath.Join(t.TempDir(), "state"), portsInARow(t)
	start := []string{"run", "--dev", "--rpc", addr, "--state-dir", dir}
	says := during(t, append(start, "--budget", "2kW"), func() {
		if text := good(t, "budget", "show", "--addr", addr, "--patience", "2m"); !strings.Contains(text, "rack/r1") || !strings.Contains(text, "2000.0 W") {
			t.Errorf("it holds\n%s", text)
		}
		good(t, "budget", "set", "900W", "--addr", addr)
		good(t, "brake", "set", "--addr", addr)
	})
	if !strings.Contains(says, "DEVELOPMENT SERVER") || !strings.Contains(says, "no TLS") || !strings.Contains(says, "kept") {
		t.Errorf("it says\n%s", says)
	}
	key, err := os.ReadFile(filepath.Join(dir, "gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	during(t, append(start, "--budget", "3kW"), func() {
		if text := good(t, "budget", "show", "--addr", addr, "--patience", "2m"); !strings.Contains(text, "900.0 W") {
			t.Errorf("started again it holds\n%s", text)
		}
		if text := good(t, "brake", "show", "--addr", addr); !strings.Contains(text, "SET") {
			t.Errorf("started again it knows of the brake\n%s", text)
		}
	})
	if again, err := os.ReadFile(filepath.Join(dir, "gossip.key")); err != nil || !bytes.Equal(again, key) {
		t.Errorf("started again it has another gossip key: %v", err)
	}
}

func TestDevServerRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a network":            {[]string{"--dev", "--rpc", "0.0.0.0:7400"}, "is not a loopback address"},
		"no port":              {[]string{"--dev", "--rpc", "127.0.0.1"}, "no host:port"},
		"the last port":        {[]string{"--dev", "--rpc", "127.0.0.1:65535"}, "no host:port"},
		"no watts":             {[]string{"--dev", "--budget", "0W"}, "budget"},
		"a configuration too":  {[]string{"--dev", "--config", "coordinator.yaml"}, "none of the others can be"},
		"a budget without dev": {[]string{"--budget", "2kW"}, "require --dev"},
	} {
		code, _, errs := run(t, append([]string{"run"}, c.args...)...)
		if code != cli.ExitUsage || !strings.Contains(errs, c.says) {
			t.Errorf("%s: %d, %s", name, code, errs)
		}
	}
}
