// Claims: the printed example is a valid configuration; every mistake is refused
// with exit code 2, a cause and a way out.
package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/testkit"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to, want string }{
		{"example", "", "", ""},
		{"unknown key", "weight:", "wieght:", "wieght"},
		{"no unit", "floor: 70W", "floor: 70", "needs a unit"},
		{"wrong unit", "rated: 250W", "rated: 250MHz", "250MHz"},
		{"invalid node", "node: n01 ", "node: \"n 01\" ", "node"},
		{"fail-safe below floor", "fail_safe: 95W", "fail_safe: 60W", "fail_safe"},
		{"max below fail-safe", "max: 220W", "max: 90W", "max"},
		{"rated below max", "rated: 250W", "rated: 200W", "rated"},
		{"efficiency", "supply_efficiency: 0.92", "supply_efficiency: 1.2", "supply_efficiency"},
		{"other too much", "other: 22W", "other: 65W", "other"},
		{"weight", "weight: 1 ", "weight: 0 ", "weight"},
		{"log level", "log_level: info", "log_level: loud", "log_level"},
		{"address", "coordinators: []", "coordinators: [somewhere]", "somewhere"},
		{"join without bind", "join: []", "join: [\"10.0.0.1:7402\"]", "bind"},
		{"source", "source: auto", "source: guess", "rapl.source"},
		{"rivals", "rivals: tolerate", "rivals: ignore", "rivals"},
		{"mode of the BMC", "mode: auto", "mode: serial", "ipmi.mode"},
		{"LAN without an address", "mode: auto", "mode: lan", "ipmi.address"},
		{"address without LAN", "address: \"\"", "address: \"10.0.0.9\"", "ipmi.mode: lan"},
		{"source of wall power", "source: auto                        # wall", "source: SDR # wall", "ipmi.source"},
		{"source without a BMC", "mode: auto                          # off, auto (in-band if /dev/ipmi0 exists), in-band, lan\n  address: \"\"                         # lan: host or host:port (default port 623)\n  user: \"\"                            # lan\n  password_file: \"\"                   # lan: file readable by its owner only\n  source: auto", "mode: off\n  source: dcmi", "ipmi.mode is off"},
		{"no slice", "slices: []", "slices: [batch]", "batch"},
		{"own slice", "slices: []", "slices: [system.slice]", "contains powerd itself"},
		{"slice twice", "slices: []", "slices: [a.slice, a.slice]", "twice"},
		{"preference", "preference: \"\"", "preference: fast", "frequency.preference"},
		{"preference as a number", "preference: \"\"", "preference: \"128\"", "balance_power"},
		{"default preference", "sprint_preference: \"\"", "sprint_preference: default", "frequency.sprint_preference"},
		{"turbo", "turbo: leave", "turbo: on", "frequency.turbo"},
		{"temperature", "temp_max: 90", "temp_max: 900", "temp_max"},
		{"metrics", "listen: \"\"", "listen: here", "metrics.listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "powerd.yaml")
			if !strings.Contains(Example, c.from) {
				t.Fatalf("the example lacks %q", c.from)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(Example, c.from, c.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var bad *cli.Error
			if !errors.As(err, &bad) || bad.Exit != cli.ExitUsage || bad.Hint == "" || !strings.Contains(bad.Error()+bad.Hint, c.want) || !strings.Contains(bad.Error(), path) {
				t.Errorf("%v (hint %q), want exit 2 naming %s and %q", err, bad.Hint, path, c.want)
			}
		})
	}
}

// A configuration without node, as the packages install it, has the host's name.
func TestNodeIsTheHostsName(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil || !nameForm.MatchString(host) {
		testkit.NotRun(t, "the name of this host is no node name")
	}
	path := filepath.Join(t.TempDir(), "powerd.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(Example, "node: n01 ", "# ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err := Load(path); err != nil || cfg.Node != host {
		t.Errorf("the node is %q, want %q: %v", cfg.Node, host, err)
	}
}

// A host's name that cannot be the node's is explained as that, with one that can.
func TestHostNamesThatAreNoNodeNames(t *testing.T) {
	t.Parallel()
	for host, name := range map[string]string{
		"web_01": "web-01", "_a_.rack_2": "a-.rack-2", "rechner\xe4": "rechner", "": "n01", "___": "n01", strings.Repeat("x", 64): "n01",
	} {
		err := checkHost(host)
		if err == nil || !strings.Contains(err.Error(), "the name of this host") || !strings.Contains(HintOf(err), "node: "+name+";") {
			t.Errorf("%q: %v (%s), want %s", host, err, HintOf(err), name)
		}
	}
	if err := checkHost("web-01.rack2"); err != nil {
		t.Error(err)
	}
}

// Whatever stands in the file: no panic, and what is taken is valid.
func FuzzConfig(f *testing.F) {
	f.Add(Example)
	f.Add("node: n01\nipmi: {mode: lan, address: \"[::1]:623\"}\nbandwidth: {slices: [a-b.slice]}\nsprint: {temp_max: .nan}\n")
	f.Fuzz(func(t *testing.T, text string) {
		cfg := Defaults()
		if config.Decode("powerd.yaml", []byte(text), &cfg) != nil || cfg.Validate() != nil {
			return
		}
		if !(cfg.Sprint.TempMax >= 0) || cfg.Power.FailSafe < cfg.Power.Floor || len(cfg.Bandwidth.Slices) > slicesMax {
			t.Fatalf("%+v was taken", cfg)
		}
	})
}

// Password files that others may read are refused, with the way out.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/password"
	if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readPassword(path); err != nil || got != "secret" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readPassword(path); err == nil || HintOf(err) == "" {
		t.Errorf("world-readable: %v", err)
	}
	if _, err := readPassword(path + ".gone"); err == nil || HintOf(err) == "" {
		t.Errorf("missing: %v", err)
	}
}
