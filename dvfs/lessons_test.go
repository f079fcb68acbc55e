// Claims: a file that names a frequency no processor runs at never widens what a
// policy may be given; only the one step that stands for turbo is taken for it.
package dvfs

import (
	"testing"

	"headroom/units"
)

// Lesson 10: a list of frequencies, or a range, may be nonsense. A range that is too
// high would make full speed look like a small part of it.
func TestImpossibleFrequenciesAreNotBelieved(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"21000000", "1099511627776", "9223372036854775807", "0", "-1", "x", ""} {
		if set, err := Open(fixture(t, "acpi-cpufreq", map[string]string{"cpuinfo_max_freq": text})); err == nil {
			t.Errorf("a highest frequency of %q was taken as %v", text, set.Policies()[0].Max)
			_ = set.Close()
		}
		if low, err := Open(fixture(t, "acpi-cpufreq", map[string]string{"cpuinfo_min_freq": text})); err == nil {
			t.Errorf("a lowest frequency of %q was taken as %v", text, low.Policies()[0].Min)
			_ = low.Close()
		}
		set, err := Open(fixture(t, "acpi-cpufreq", map[string]string{"scaling_available_frequencies": text}))
		if err != nil {
			t.Fatal(err)
		}
		p := set.Policies()[0]
		if len(p.Table) != 0 {
			t.Errorf("a list of %q was taken as %v", text, p.Table)
		}
		if got := p.Nearest(1550 * mhz); got != 1550*mhz {
			t.Errorf("without a list, 1550 MHz is %v", got)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Lesson 10: a step of 1 MHz above the base clock stands for all of turbo; any other
// last step is a frequency like the others.
func TestOnlyTheStepOfOneMegahertzIsTurbo(t *testing.T) {
	t.Parallel()
	for last, want := range map[units.Freq]bool{2401 * mhz: true, 2400*mhz + 999: false, 2402 * mhz: false, 2500 * mhz: false} {
		if f, hidden := hiddenTurbo([]units.Freq{1200 * mhz, 2400 * mhz, last}); hidden != want || hidden && f != last {
			t.Errorf("%v above 2400 MHz: %v, %v", last, f, hidden)
		}
	}
	for _, short := range [][]units.Freq{nil, {2400 * mhz}} {
		if _, hidden := hiddenTurbo(short); hidden {
			t.Errorf("%v hides turbo", short)
		}
	}
}

// Lesson 10: the userspace governor is not there with some drivers and is needed with
// none: a ceiling is held under whatever governor stands, which is left alone.
func TestGovernorIsLeftAlone(t *testing.T) {
	t.Parallel()
	for tree, governor := range map[string]string{"acpi-cpufreq": "ondemand", "intel_pstate-active": "performance", "amd-pstate-epp": "powersave"} {
		set, k := started(t, tree, map[string]string{"scaling_governor": governor})
		if r := hands(t, set).Set(1500 * mhz); !r.Held() || r.Err() != nil {
			t.Errorf("%s: %+v, %v", tree, r, r.Err())
		}
		if _, err := hand(t, set.Policies()[0]).Set(3000 * mhz); err != nil {
			t.Errorf("%s: %v", tree, err)
		}
		for _, p := range set.Policies() {
			if now, err := k.disk.ReadText(join(p.Name, "scaling_governor")); err != nil || now != governor {
				t.Errorf("%s: %s has governor %q, %v", tree, p.Name, now, err)
			}
		}
	}
}
