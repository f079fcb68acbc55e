// Claims: a file is understood completely or refused with file, line, column and
// a way out, exit code 2; defaults survive what the file does not say; no input
// makes the reader panic.
package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/testkit"
	"headroom/units"
)

type sample struct {
	Node    string `yaml:"node"`
	Enforce bool   `yaml:"enforce"`
	Power   struct {
		Rated      units.Power `yaml:"rated"`
		FailSafe   units.Power `yaml:"fail_safe"`
		Efficiency float64     `yaml:"supply_efficiency"`
	} `yaml:"power"`
	Weight  float64                `yaml:"weight"`
	Slots   int                    `yaml:"slots"`
	Join    []string               `yaml:"join"`
	Every   config.Duration        `yaml:"every"`
	Domains map[string]units.Power `yaml:"domains"`
	Caps    []units.Power          `yaml:"caps"`
	Other   *units.Power           `yaml:"other"`
	Least   config.Fraction        `yaml:"least"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	got := sample{Weight: 1, Slots: 4}
	err := config.Decode("powerd.yaml", []byte(`# a comment
node: n01
enforce: true
power:
  rated: 250W        # a remark behind a value
  fail_safe: "95W"
  supply_efficiency: 0.92
join: [127.0.0.1:7402]
every: 250ms
domains: {rack/r1: 1.2kW}
caps:
  - 85W
  - 0.5kW
other: 22W
least: 87.5%
`), &got)
	if err != nil {
		t.Fatal(err)
	}
	other := 22 * units.Watt
	want := sample{
		Node: "n01", Enforce: true, Weight: 1, Slots: 4, Join: []string{"127.0.0.1:7402"}, Every: config.Duration(250 * time.Millisecond),
		Domains: map[string]units.Power{"rack/r1": 1200 * units.Watt}, Caps: []units.Power{85 * units.Watt, 500 * units.Watt}, Other: &other, Least: 0.875,
	}
	want.Power.Rated, want.Power.FailSafe, want.Power.Efficiency = 250*units.Watt, 95*units.Watt, 0.92
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, message, hint string }{
		"unknown key":      {"node: n01\nenfore: true\n", `f:2:1: unknown key "enfore"`, "did you mean enforce?"},
		"unknown below":    {"power:\n  ratd: 250W\n", `f:2:3: unknown key "ratd"`, "did you mean rated?"},
		"unknown far":      {"power:\n  colour: red\n", `f:2:3: unknown key "colour"`, "remove the key; known here: fail_safe, rated, supply_efficiency"},
		"repeated":         {"node: a\nnode: b\n", `f:2:1: `, ""},
		"no unit":          {"power:\n  rated: 250W\n  fail_safe: 95\n", `f:3:14: "95": position 3: a power needs a unit`, "did you mean 95W?"},
		"wrong unit":       {"power: {rated: 250J}\n", `f:1:16: "250J": position 4: unknown unit "J"`, "correct the value"},
		"in a list":        {"caps:\n  - 85W\n  - 85w\n", `f:3:5: "85w": position 3: unknown unit "w"`, "did you mean 85W?"},
		"in a map":         {"domains:\n  rack/r1: 12\n", `f:2:12: "12": position 3`, "did you mean 12W?"},
		"behind a pointer": {"other: 22\n", `f:1:8: "22": position 3`, "did you mean 22W?"},
		"duration":         {"every: 10\n", `f:1:8: "10": a duration needs a unit`, "did you mean 10s?"},
		"odd duration":     {"every: soon\n", `f:1:8: "soon": not a duration`, "write it as"},
		"past":             {"every: -1s\n", `f:1:8: "-1s": a duration must not be negative`, "did you mean 1s?"},
		"above the whole":  {"least: 101%\n", `f:1:8: "101%": must be above 0 and at most 1 (100%)`, "write it as 75% or 0.75"},
		"not a fraction":   {"least: half\n", `f:1:8: "half": must be above 0`, "write it as 75% or 0.75"},
		"not a number":     {"slots: many\n", `f:1:8: "many" is not a whole number`, "correct the line"},
		"not a bool":       {"enforce: maybe\n", `f:1:10: "maybe" is not true or false`, "correct the line"},
		"list for section": {"power: [1]\n", `f:1:`, ""},
		"broken":           {"node: [a\n", `f:1:`, ""},
		"tab":              {"power:\n\trated: 1W\n", `f:2:`, ""},
		"two documents":    {"node: a\n---\nnode: b\n", `f:3:5: a second document`, "keep one document"},
		"tag":              {"caps: !x\n  - 85W\n", `f:1:7: a YAML tag`, "remove it"},
		"too large":        {"# " + strings.Repeat("x", 1<<20), "f: larger than", "this is probably not"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := config.Decode("f", []byte(c.in), new(sample))
			e, ok := errors.AsType[*cli.Error](err)
			if !ok {
				t.Fatalf("got %v, want a *cli.Error", err)
			}
			if e.Exit != cli.ExitUsage || !strings.HasPrefix(e.Message, c.message) || !strings.HasPrefix(e.Hint, c.hint) {
				t.Errorf("got exit %d\n%s\n%s\nwant\n%s\n%s", e.Exit, e.Message, e.Hint, c.message, c.hint)
			}
		})
	}
}

func TestDecodeEmptyLeavesDefaults(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "# only a remark\n", "---\n"} {
		got := sample{Weight: 2}
		if err := config.Decode("f", []byte(in), &got); err != nil || got.Weight != 2 {
			t.Errorf("%q: %v, weight %v", in, err, got.Weight)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	var got sample
	err := config.Load(path, &got)
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || e.Message != path+": no such file" || e.Hint == "" {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("node: n07\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := config.Load(path, &got); err != nil || got.Node != "n07" {
		t.Errorf("node %q, %v", got.Node, err)
	}
	if err := config.Load(t.TempDir(), &got); err == nil {
		t.Error("a folder is read as a file")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("node: n01\npower: {rated: 250W}\n"))
	f.Add([]byte("caps: [85, 1,2kW]\nevery: 1\n"))
	f.Add([]byte("a: &a [*a]\n? - x\n: y\n"))
	f.Add([]byte("caps: [" + strings.Repeat("1kW, ", 7000) + "1kW]\n"))
	f.Add([]byte("caps: " + strings.Repeat("[", 60_000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		testkit.Cheap(t, len(data), func() { err = config.Decode("f", data, new(sample)) })
		if err == nil {
			return
		}
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != cli.ExitUsage || !strings.HasPrefix(e.Message, "f:") {
			t.Fatalf("%v", err)
		}
	})
}

func TestParts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"75%": 0.75, " 0.75 ": 0.75, "0": 0, "0.0 %": 0, "100%": 1, "1": 1, "": -1, "NaN": -1, "-1%": -1, "101%": -1, "Inf": -1, "x": -1} {
		part, err := config.ParsePart(text)
		if want < 0 && !errors.Is(err, config.ErrNotPart) || want >= 0 && (err != nil || part != want) {
			t.Errorf("part %q: %v, %v", text, part, err)
		}
		fraction, err := config.ParseFraction(text)
		if want <= 0 && !errors.Is(err, config.ErrNotFraction) || want > 0 && (err != nil || fraction != want) {
			t.Errorf("fraction %q: %v, %v", text, fraction, err)
		}
	}
}
