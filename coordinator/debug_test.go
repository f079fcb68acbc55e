// Claims: a bundle holds what a bug report needs, from a leader and from a server
// that nobody leads, and never a key, a token or a password; the log lines in it
// are the newest, and bounded.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/trace"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
	"headroom/units"
)

// bundleOf is a bundle of a server, by file.
func bundleOf(s *server) map[string]string {
	out := map[string]string{}
	for _, f := range (debugService{s}).bundle() {
		name, data := f.collect(context.Background())
		out[name] = string(data)
	}
	return out
}

func TestABundleHoldsNoSecret(t *testing.T) {
	dir := t.TempDir()
	secrets := map[string]string{"key": "KEY-7f3a", "password": "PASSWORD-91c2", "gossip": "GOSSIP-55d0"}
	for name, text := range secrets {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(2)
		s := c.leader()
		c.allHeld(6 * time.Second)
		s.cfg.TLS.Key, s.cfg.BMC.User, s.cfg.BMC.PasswordFile, s.cfg.Gossip.KeyFile = filepath.Join(dir, "key"), "monitor", filepath.Join(dir, "password"), filepath.Join(dir, "gossip")
		secret, hash := "TOKEN-SECRET-3e1f", strings.Repeat("c0ffee00", 8)
		change := &headroomv1.ChangeRequest{
			Change: change("r-1"), What: &headroomv1.ChangeRequest_CreateToken{CreateToken: &headroomv1.Token{Id: "t1", Name: "grafana", Role: string(ledger.RoleObserver), Hash: hash}},
		}
		if _, err := (clusterService{s.server}).Change(t.Context(), connect.NewRequest(change)); err != nil {
			t.Fatal(err)
		}
		s.logger.Warn("somebody logs what nobody should", slog.String("password", secrets["password"]), slog.String("bearer_token", secret))
		s.logger.With(slog.String("secret", secret)).WithGroup("call").Error("again", slog.String("authorization", secret))
		files := bundleOf(s.server)
		for _, name := range []string{
			"build.txt", "goroutines.txt", "coordinator.yaml", "log.txt", "metrics.txt", "members.json", "status.json", "domains.json", "nodes.json",
			"alarms.json", "events.json", "health.json", "recording.trace.error.txt",
		} {
			if files[name] == "" {
				t.Errorf("%s is missing or empty", name)
			}
		}
		for name, must := range map[string]string{
			"events.json": "grafana", "metrics.txt": "headroom_leader 1", "log.txt": "leading", "coordinator.yaml": "password_file:", "nodes.json": "n01",
			"goroutines.txt": "goroutine ", "build.txt": Version, "health.json": "\"c3\"",
		} {
			if !strings.Contains(files[name], must) {
				t.Errorf("%s does not say %q:\n%.2000s", name, must, files[name])
			}
		}
		for name, text := range files {
			for _, never := range []string{secrets["key"], secrets["password"], secrets["gossip"], secret, hash, "PRIVATE KEY"} {
				if strings.Contains(text, never) {
					t.Errorf("%s holds %s", name, never)
				}
			}
		}
	})
}

// A server that nobody leads tells what it has, and why it lacks the rest.
func TestABundleWithoutALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		l := c.leader()
		c.kill(c.ids[0])
		c.kill(c.ids[1])
		s := c.server(c.ids[2])
		time.Sleep(time.Minute)
		files := bundleOf(s.server)
		if !strings.Contains(files["status.json"], "site/lab") || files["log.txt"] == "" || files["members.json"] == "" || files["health.json.error.txt"] == "" {
			t.Errorf("after %s: %v", l.cfg.ID, files)
		}
	})
}

func TestLogLinesAreBounded(t *testing.T) {
	t.Parallel()
	r := &logRing{}
	var out strings.Builder
	log := r.keep(slog.New(slog.NewTextHandler(&out, nil)))
	log.Debug("below the level of the log")
	for i := range logLines + 7 {
		log.Info("a line", slog.String("which", fmt.Sprintf("line-%d.", i)), slog.String("much", strings.Repeat("x", 2*logLine)))
	}
	lines := strings.SplitAfter(strings.TrimSuffix(r.text(), "\n"), "\n")
	if len(lines) != logLines || !strings.Contains(lines[0], "line-7.") || !strings.Contains(lines[len(lines)-1], fmt.Sprintf("line-%d.", logLines+6)) {
		t.Errorf("%d lines, from %.60q to %.60q", len(lines), lines[0], lines[len(lines)-1])
	}
	if len(lines[0]) > logLine+1 || !strings.Contains(out.String(), "line-0.") || strings.Contains(r.text(), "below the level") {
		t.Errorf("a line of %d bytes", len(lines[0]))
	}
}

// A recording on demand is one that go tool trace reads, beside a flight recorder;
// one at a time, and never longer than asked for. (It is the process's own: not
// beside other tests.)
func TestRecordingOnDemand(t *testing.T) { //nolint:paralleltest // a process has one recording at a time
	data, err := recordTrace(t.Context(), 20*time.Millisecond)
	if err != nil || !strings.HasPrefix(string(data), "go 1.") {
		t.Fatalf("%.20q, %v", data, err)
	}
	if err := trace.Start(io.Discard); err != nil {
		t.Fatal(err)
	}
	_, err = recordTrace(t.Context(), time.Millisecond)
	trace.Stop()
	if err == nil {
		t.Error("two recordings at once")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := recordTrace(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
}
