// Claims: a bundle holds what a bug report needs, from a leader and from a server
// that nobody leads, and never a key, a token or a password; the log lines in it
// are the newest, and bounded.
package coordinator

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
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
