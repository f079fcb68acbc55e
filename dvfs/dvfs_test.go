// Claims: policies are found with their driver and range; a ceiling is clamped to
// what the hardware can do, read back, and can be put back exactly; a machine
// without cpufreq is said to be one.
package dvfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"headroom/units"
)

func tree(t *testing.T, policies map[string]map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, files := range policies {
		at := filepath.Join(dir, cpufreqDir, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for f, text := range files {
			if err := os.WriteFile(filepath.Join(at, f), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func policy(cpus string) map[string]string {
	return map[string]string{
		"scaling_driver": "acpi-cpufreq\n", "scaling_governor": "schedutil\n", "affected_cpus": cpus + "\n",
		"cpuinfo_min_freq": "800000\n", "cpuinfo_max_freq": "3400000\n",
		"scaling_max_freq": "3100000\n", "scaling_cur_freq": "1200000\n",
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	broken := policy("4")
	delete(broken, "cpuinfo_max_freq")
	set, err := Open(tree(t, map[string]map[string]string{"policy10": policy("10 11"), "policy2": policy("2 3"), "policy4": broken}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	if got := len(set.Policies()); got != 2 {
		t.Fatalf("%d policies, want the 2 that can be read", got)
	}
	p := set.Policies()[0]
	if p.Name != "policy2" || p.Driver != "acpi-cpufreq" || p.Min != 800*units.Megahertz || p.Max != 3400*units.Megahertz {
		t.Errorf("first policy %+v", p)
	}
	if g, err := p.Governor(); err != nil || g != "schedutil" {
		t.Errorf("governor %q, %v", g, err)
	}
	if f, err := p.Frequency(); err != nil || f != 1200*units.Megahertz {
		t.Errorf("frequency %v, %v", f, err)
	}
}

func TestNoPolicy(t *testing.T) {
	t.Parallel()
	old := map[string]map[string]string{"../cpu0/cpufreq": policy("0")}
	if _, err := Open(tree(t, old)); !errors.Is(err, ErrNoPolicy) || !errors.Is(err, ErrOldLayout) {
		t.Errorf("a kernel before 4.3: %v, want ErrOldLayout", err)
	}
	if _, err := Open(tree(t, nil)); !errors.Is(err, ErrNoPolicy) {
		t.Errorf("error %v, want ErrNoPolicy", err)
	}
}

func TestCeilingStaysInRangeAndGoesBack(t *testing.T) {
	t.Parallel()
	set, err := Open(tree(t, map[string]map[string]string{"policy0": policy("0")}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	p := set.Policies()[0]
	c, err := p.Ceiling()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	original, err := c.fileControl().Read()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := units.Freq(rapid.Int64Range(0, 10_000_000).Draw(t, "ceiling"))
		got, err := c.Set(want)
		if err != nil || got != c.clamp(want) || got < p.Min || got > p.Max {
			t.Fatalf("asked for %v, got %v, %v", want, got, err)
		}
	})
	if _, err := c.fileControl().Write(original); err != nil {
		t.Fatal(err)
	}
	if f, err := p.CeilingNow(); err != nil || f != 3100*units.Megahertz {
		t.Errorf("ceiling after putting back %v, %v", f, err)
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0 1 2 3")
	f.Add("")
	f.Add("-1 x")
	f.Fuzz(func(t *testing.T, text string) {
		for _, n := range parseCPUs(text) {
			if n < 0 {
				t.Fatalf("CPU %d from %q", n, text)
			}
		}
	})
}
