// Claims: the printed example is a valid configuration; every mistake is refused
// with exit code 2, a cause and a way out; a cover never allows more than its file.
package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/units"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to, want string }{
		{"example", "", "", ""},
		{"unknown key", "weight:", "wieght:", "wieght"},
		{"no unit", "floor: 70W", "floor: 70", "needs a unit"},
		{"wrong unit", "rated: 250W", "rated: 250MHz", "250MHz"},
		{"no node", "node: n01 ", "node: \"\" ", "node"},
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
		{"no slice", "slices: []", "slices: [batch]", "batch"},
		{"own slice", "slices: []", "slices: [system.slice]", "powerd itself"},
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
			if !strings.Contains(ExampleConfig, c.from) {
				t.Fatalf("the example lacks %q", c.from)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(ExampleConfig, c.from, c.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadConfig(path)
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

// Whatever two covers allow, their union allows too, and no cover allows more
// than itself.
func TestCoverLaws(t *testing.T) {
	t.Parallel()
	draw := func(t *rapid.T, name string) cover {
		watts := rapid.Int64Range(1, 300_000_000)
		c := cover{cap: units.Power(watts.Draw(t, name+"_cap")), limits: make([]pair, 2)}
		for i := range c.limits {
			c.limits[i] = pair{units.Power(watts.Draw(t, name+"_long")), units.Power(watts.Draw(t, name+"_short"))}
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		if u := a.union(b); !u.allows(a) || !u.allows(b) || !a.allows(a) {
			t.Fatalf("union %+v of %+v and %+v", u, a, b)
		}
		more := a
		more.cap++
		if a.allows(more) {
			t.Fatalf("%+v allows a higher cap", a)
		}
	})
}

// Whatever stands in the file: no panic, and what is taken is valid.
func FuzzConfig(f *testing.F) {
	f.Add(ExampleConfig)
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
