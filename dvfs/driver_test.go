// Claims: each cpufreq driver is told by its own files and works by the same
// ceiling; hidden turbo, missing tables, pinned preferences and both turbo
// switches are what they are; whatever a file holds, it never becomes a frequency
// or a preference that is none.
package dvfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
	"headroom/units"
)

const mhz = units.Megahertz

// Lesson 10: cpufreq drivers differ. Probe the scaling driver and its status, bound
// with scaling_max_freq, never assume a list of frequencies.
func TestDrivers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tree, driver string
		mode         Mode
		table        int
		epp          bool
	}{
		{tree: "acpi-cpufreq", driver: "acpi-cpufreq", mode: Governed, table: 14},
		{tree: "intel_pstate-active", driver: "intel_pstate", mode: Autonomous, epp: true},
		{tree: "intel_pstate-passive", driver: "intel_cpufreq", mode: Governed, epp: true},
		{tree: "intel_pstate-nohwp", driver: "intel_pstate", mode: Autonomous},
		{tree: "amd-pstate", driver: "amd-pstate", mode: Governed},
		{tree: "amd-pstate-epp", driver: "amd-pstate-epp", mode: Autonomous, epp: true},
		{tree: "cppc_cpufreq", driver: "cppc_cpufreq", mode: Governed},
	} {
		t.Run(c.tree, func(t *testing.T) {
			t.Parallel()
			set, _ := started(t, c.tree, nil)
			p := set.Policies()[0]
			if p.Driver != c.driver || p.Mode != c.mode || len(p.Table) != c.table {
				t.Errorf("driver %s, %s, %d frequencies; want %s, %s, %d", p.Driver, p.Mode, len(p.Table), c.driver, c.mode, c.table)
			}
			if _, err := p.EPP(); (err == nil) != c.epp || (err != nil && !errors.Is(err, ErrNoPreference)) {
				t.Errorf("energy preference: %v, there is one: %v", err, c.epp)
			}
			got, err := hand(t, p).Set(2050 * mhz)
			want := 2050 * mhz
			if c.table > 0 {
				want = 2000 * mhz
			}
			if err != nil || got != want {
				t.Errorf("ceiling %v, %v; want %v", got, err, want)
			}
		})
	}
}

func TestModeWithoutAName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, driver, status string
		governors            []string
		want                 Mode
	}{
		{name: "an unknown driver of the setpolicy kind", driver: "psim", governors: []string{"performance", "powersave"}, want: Autonomous},
		{name: "an unknown driver with one governor", driver: "psim", governors: []string{"performance"}, want: Governed},
		{name: "an unknown driver with governors", driver: "psim", governors: []string{"performance", "schedutil"}, want: Governed},
		{name: "acpi-cpufreq with the two governors only", driver: "acpi-cpufreq", governors: []string{"performance", "powersave"}, want: Governed},
		{name: "an older kernel's passive mode", driver: "intel_pstate", status: "passive", want: Governed},
		{name: "no files at all", want: Governed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := modeOf(c.driver, c.status, func() []string { return c.governors }); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Lesson 10: acpi-cpufreq reports the base clock as highest and hides turbo in one
// step.
func TestTurboHidesInOneStep(t *testing.T) {
	t.Parallel()
	for tree, want := range map[string]units.Freq{
		"acpi-cpufreq": 2401 * mhz, "intel_pstate-active": 2800*mhz + 1, "cppc_cpufreq": 0,
	} {
		set, _ := started(t, tree, nil)
		if got, known := set.Policies()[0].turboMax(); got != want || known != (want > 0) {
			t.Errorf("%s: turbo from %v, known %v; want %v", tree, got, known, want)
		}
	}
}

// Lesson 10: the performance governor pins the energy preference, and a write gives
// EBUSY; that is said, and is no fault of the machine.
func TestPerformancePinsThePreference(t *testing.T) {
	t.Parallel()
	for _, tree := range []string{"intel_pstate-active", "amd-pstate-epp"} {
		set, k := started(t, tree, map[string]string{"scaling_governor": "performance", "energy_performance_preference": "performance"})
		p := set.Policies()[0]
		h, err := p.Preference()
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.Set(EPPPower)
		if !errors.Is(err, ErrPinned) || !errors.Is(err, unix.EBUSY) || got != EPPPerformance {
			t.Errorf("%s: %v, %v; want it pinned at performance", tree, got, err)
		}
		if got, err := h.Set(EPPPerformance); err != nil || got != EPPPerformance {
			t.Errorf("%s: %v, %v; performance itself is taken", tree, got, err)
		}
		k.offline[p.Name] = true
		if _, err := h.Set(EPPPower); !errors.Is(err, ErrOffline) || errors.Is(err, ErrPinned) {
			t.Errorf("%s: %v; want offline", tree, err)
		}
		_ = h.Close()
	}
}

func TestPreferenceIsANumberInAJournal(t *testing.T) {
	t.Parallel()
	root := fixture(t, "intel_pstate-active", nil)
	set, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	h, err := set.Policies()[0].Preference()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	saved, err := h.Knob().Control.Read()
	if err != nil || EPP(saved) != EPPBalancePerformance {
		t.Fatalf("saved %v, %v", EPP(saved), err)
	}
	for _, e := range append(set.Policies()[0].epps(), 0, 128, 255) {
		if got, err := h.Set(e); err != nil || got != e {
			t.Errorf("wrote %v, reads %v, %v", e, got, err)
		}
	}
	// Another process puts it back by the path.
	c, err := sysfs.NewControl(h.Knob().Control.Path(), Files(files(t, root)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if got, err := c.Write(saved); err != nil || got != saved {
		t.Errorf("put back %d, %v", got, err)
	}
	if text, _ := sysfs.ReadText(root, c.Path()); text != "balance_performance" {
		t.Errorf("the file holds %q", text)
	}
	if _, err := c.Write(300); !errors.Is(err, errNotPreference) {
		t.Errorf("300: %v", err)
	}
}

func TestTurboSwitch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tree, file string
		raw        string // what the file holds when turbo is forbidden
	}{
		{"intel_pstate-active", noTurboFile, "1"},
		{"intel_pstate-passive", noTurboFile, "1"},
		{"acpi-cpufreq", boostFile, "0"},
		{"amd-pstate", boostFile, "0"},
		{"amd-pstate-epp", boostFile, "0"},
	} {
		t.Run(c.tree, func(t *testing.T) {
			t.Parallel()
			root := fixture(t, c.tree, nil)
			turbo, err := OpenTurbo(files(t, root))
			if err != nil || turbo.Path != c.file {
				t.Fatalf("%+v, %v; want %s", turbo, err, c.file)
			}
			t.Cleanup(func() { _ = turbo.Close() })
			h, err := turbo.Switch()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = h.Close() })
			if on, err := h.Allow(false); err != nil || on {
				t.Errorf("allowed %v, %v", on, err)
			}
			if text, _ := sysfs.ReadText(root, c.file); text != c.raw {
				t.Errorf("the file holds %q, want %q", text, c.raw)
			}
			if on, err := turbo.Allowed(); err != nil || on {
				t.Errorf("reads allowed %v, %v", on, err)
			}
		})
	}
}

func TestTurboThatFirmwareHolds(t *testing.T) {
	t.Parallel()
	k := boot(fixture(t, "intel_pstate-nohwp", nil))
	k.locked = true
	turbo, err := openTurbo(k.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = turbo.Close() })
	h, err := turbo.Switch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	if on, err := h.Allow(true); on || !errors.Is(err, ErrTurboLocked) {
		t.Errorf("allowed %v, %v; want locked", on, err)
	}
	if _, err := OpenTurbo(files(t, fixture(t, "cppc_cpufreq", nil))); !errors.Is(err, ErrNoTurbo) {
		t.Errorf("%v, want no turbo switch", err)
	}
}

// Lesson 10: without counters scaling_cur_freq shows what was asked for; what runs
// is in cpuinfo_cur_freq, where that may be read and makes sense.
func TestMeasuredFrequency(t *testing.T) {
	t.Parallel()
	set, _ := started(t, "cppc_cpufreq", nil)
	asked, err := set.Policies()[0].Frequency()
	runs, errRuns := set.Policies()[0].measured()
	if err != nil || errRuns != nil || asked != 3000*mhz || runs != 2871*mhz {
		t.Errorf("asked %v, %v; runs %v, %v", asked, err, runs, errRuns)
	}
	set, _ = started(t, "cppc_cpufreq", map[string]string{"cpuinfo_cur_freq": "<unknown>"})
	if f, err := set.Policies()[0].measured(); !errors.Is(err, sysfs.ErrNotNumber) || f != 0 {
		t.Errorf("%v, %v from <unknown>", f, err)
	}
	set, _ = started(t, "intel_pstate-active", nil)
	if f, err := set.Policies()[0].measured(); !errors.Is(err, os.ErrNotExist) || f != 0 {
		t.Errorf("%v, %v without the file", f, err)
	}
}

func TestNeighbours(t *testing.T) {
	t.Parallel()
	set, _ := started(t, "acpi-cpufreq", nil)
	p := set.Policies()[0]
	for _, c := range []struct{ at, down, up units.Freq }{
		{2050 * mhz, 2000 * mhz, 2100 * mhz},
		{2000 * mhz, 2000 * mhz, 2000 * mhz},
		{0, 1200 * mhz, 1200 * mhz},
		{9000 * mhz, 2401 * mhz, 2401 * mhz},
	} {
		if down, up := p.neighbours(c.at); down != c.down || up != c.up {
			t.Errorf("around %v: %v and %v, want %v and %v", c.at, down, up, c.down, c.up)
		}
	}
}

// Whatever a driver's files hold, opening neither panics nor takes a range that
// makes no sense, and a ceiling that reads back lies in the range.
func FuzzPolicyFiles(f *testing.F) {
	f.Add("acpi-cpufreq", "1200000", "2401000", "2401000 2400000", "2401000", "performance")
	f.Add("", "-1", "<unknown>", "x", "18446744073709551616", "255")
	f.Add("intel_pstate", "0", "0", "", "0", "0")
	f.Fuzz(func(t *testing.T, driver, lowest, highest, table, ceiling, epp string) {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"scaling_driver": driver, "cpuinfo_min_freq": lowest, "cpuinfo_max_freq": highest, "scaling_available_frequencies": table,
			"scaling_max_freq": ceiling, "scaling_min_freq": lowest, eppFile: epp,
		} {
			put(t, filepath.Join(dir, cpufreqDir, "policy0", file), text)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		set, err := Open(root)
		if err != nil {
			return
		}
		defer func() { _ = set.Close() }()
		p := set.Policies()[0]
		if p.Max <= 0 || p.Min > p.Max || !slices.IsSorted(p.Table) {
			t.Fatalf("policy %+v", p)
		}
		c := hands(t, set)
		for _, want := range []units.Freq{0, p.Max, p.Max / 2} {
			if one := c.Set(want)[0]; one.State == Held && (one.Effective < p.Min || one.Effective > p.Max) {
				t.Fatalf("asked for %v: %+v in %v to %v", want, one, p.Min, p.Max)
			}
		}
		if e, err := p.EPP(); err == nil && (e < 0 || e > EPPPower) {
			t.Fatalf("preference %d from %q", e, epp)
		}
	})
}

func FuzzParseEPP(f *testing.F) {
	f.Add("balance_power")
	f.Add("255")
	f.Add("256")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEPP(text)
		if err != nil {
			return
		}
		if again, err := ParseEPP(e.String()); err != nil || again != e {
			t.Fatalf("%q is %d, which is written %q and read as %d, %v", text, e, e.String(), again, err)
		}
	})
}
