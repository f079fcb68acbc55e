package coordinator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coordinator.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The example that the program prints is a file that it takes.
func TestExampleConfigLoads(t *testing.T) {
	t.Parallel()
	c, err := LoadConfig(writeConfig(t, ExampleConfig))
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != "c1" || len(c.Site) != 2 || time.Duration(c.Lease) != 10*time.Second {
		t.Errorf("read as %+v", c)
	}
}

// What is wrong in the file is told with its place and a way out, exit code 2,
// before anything is started.
func TestConfigErrors(t *testing.T) {
	t.Parallel()
	edit := func(old, to string) string { return strings.ReplaceAll(ExampleConfig, old, to) }
	server := "servers:\n"
	more := `  - {id: c2, rpc: "h:1", raft: "h:2"}` + "\n" + `  - {id: c3, rpc: "h:3", raft: "h:4"}` + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"not yaml":           {"id: [", "coordinator.yaml:1:"},
		"unknown key":        {edit("lease:", "leese:"), "leese"},
		"watts without unit": {edit("3200W", "3200"), "3200"},
		"seconds as watts":   {edit("3200W", "32s"), "32s"},
		"lease without unit": {edit("lease: 10s", "lease: 10"), "10"},
		"lease too short":    {edit("lease: 10s", "lease: 1s"), "between 3s and 2m"},
		"two servers":        {edit(server, server+`  - {id: c2, rpc: "127.0.0.1:7410", raft: "127.0.0.1:7411"}`+"\n"), "must have 1, 3 or 5"},
		"join with others":   {strings.ReplaceAll(edit(server, server+more), "\njoin: []", "\njoin: [\"h:9\"]"), "must list only this server"},
		"join without port":  {edit("\njoin: []", "\njoin: [h]"), `"h" is not host:port`},
		"not in the list":    {edit("\nid: c1", "\nid: c9"), `"c9" is not among the servers`},
		"one id twice":       {edit(server, server+strings.Repeat(`  - {id: c1, rpc: "h:1", raft: "h:2"}`+"\n", 2)), "same id c1"},
		"one address twice":  {edit(`raft: 127.0.0.1:7401`, `raft: 127.0.0.1:7400`), "same address 127.0.0.1:7400"},
		"server without rpc": {edit("    rpc: 127.0.0.1:7400   ", "   "), "needs id, rpc and raft"},
		"no state_dir":       {edit("state_dir: /var/lib/headroom/coordinator", "#"), "state_dir is missing"},
		"no gossip key":      {edit("  key_file: /etc/headroom/gossip.key", ""), "key_file is missing"},
		"metrics":            {edit(`listen: ""`, "listen: here"), `"here" is not host:port`},
		"log level":          {edit("log_level: info", "log_level: loud"), "loud"},
		"unknown parent":     {edit("parent: site/lab", "parent: site/x"), "site/x"},
		"no site":            {edit("parent: site/lab", ""), "one root"},
		"no certificate":     {edit("  cert: /etc/headroom/coordinator/server.crt", "  #"), "tls needs ca, cert and key"},
		"tls half on":        {edit("  mode: on", "  mode: maybe"), `mode is "maybe"`},
		"open to a network": {
			strings.NewReplacer("  mode: on", "  mode: off", "  ca: /", "  #", "  cert: /", "  #", "  key: /", "  #", "rpc: 127.0.0.1:7400", "rpc: 10.0.0.11:7400").Replace(ExampleConfig), "10.0.0.11:7400 is not a loopback address",
		},
		"zero budget": {edit("budget: 2400W", "budget: 0W"), "rack/r1"},
	} {
		_, err := LoadConfig(writeConfig(t, c.text))
		e, ok := errors.AsType[*cli.Error](err)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Exit != cli.ExitUsage || e.Hint == "" || !strings.Contains(e.Message, "coordinator.yaml") || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: exit %d, error %q, hint %q; want %q", name, e.Exit, e.Message, e.Hint, c.want)
		}
	}
	if _, err := LoadConfig("/no/such/coordinator.yaml"); err == nil {
		t.Error("a missing file was taken")
	}
}
