// Claims: the ceiling is what reads back; a floor in the way is lowered first and
// goes back; one policy that fails never stops the others; offline processors are
// known as such and are bounded again; a ceiling that was lost is drift.
package dvfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"headroom/units"
)

func floorOf(t *testing.T, p *Policy) units.Freq {
	t.Helper()
	f, err := p.floor()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A floor above the ceiling is lowered first, for kernels that refuse the ceiling
// otherwise, and goes back when the ceiling allows it.
func TestFloorMakesRoomAndGoesBack(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{true, false} {
		set, k := started(t, "amd-pstate-epp", nil) // floor 1804 MHz
		k.old = old
		p := set.Policies()[0]
		c := hand(t, p)
		for _, step := range []struct{ ceiling, floor units.Freq }{
			{1500 * mhz, 1500 * mhz}, {1000 * mhz, 1000 * mhz}, {1700 * mhz, 1000 * mhz}, {2000 * mhz, 1804 * mhz}, {900 * mhz, 900 * mhz}, {3763 * mhz, 1804 * mhz},
		} {
			if got, err := c.Set(step.ceiling); err != nil || got != step.ceiling {
				t.Errorf("old %v: ceiling %v, %v; want %v", old, got, err, step.ceiling)
			}
			if got := floorOf(t, p); got != step.floor {
				t.Errorf("old %v: floor %v below ceiling %v, want %v", old, got, step.ceiling, step.floor)
			}
		}
	}
}

func TestFloorOfAnotherWriterStays(t *testing.T) {
	t.Parallel()
	set, _ := started(t, "amd-pstate-epp", nil)
	c := hand(t, set.Policies()[0])
	if _, err := c.Set(1000 * mhz); err != nil {
		t.Fatal(err)
	}
	if _, err := c.floor.Write(int64(700 * mhz)); err != nil { // somebody else's
		t.Fatal(err)
	}
	if _, err := c.Set(3000 * mhz); err != nil {
		t.Fatal(err)
	}
	if got := floorOf(t, c.Policy()); got != 700*mhz {
		t.Errorf("floor %v, want the other writer's 700 MHz", got)
	}
}

// Lesson 14: the saved controls put everything back, ceiling first, on a kernel that
// refuses a floor above its ceiling.
func TestKnobsGoBackInOrder(t *testing.T) {
	t.Parallel()
	set, k := started(t, "amd-pstate-epp", nil)
	k.old = true
	c := hands(t, set)
	knobs := c.Knobs()
	var saved []int64
	for _, knob := range knobs {
		v, err := knob.Control.Read()
		if err != nil {
			t.Fatal(err)
		}
		saved = append(saved, v)
	}
	if r := c.Set(600 * mhz); !r.Held() {
		t.Fatalf("%+v", r)
	}
	for i, knob := range knobs {
		if got, err := knob.Control.Write(saved[i]); err != nil || got != saved[i] {
			t.Errorf("%s: put back %d, reads %d, %v", knob.Label, saved[i], got, err)
		}
	}
}

// One ceiling that cannot be written leaves the others held, and is named.
func TestOneFailingPolicyDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	root := fixture(t, "acpi-cpufreq", nil)
	set, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	if err := os.Remove(filepath.Join(root.Name(), cpufreqDir, "policy0", "scaling_max_freq")); err != nil {
		t.Fatal(err)
	}
	r := hands(t, set).Set(2000 * mhz)
	if r[0].State != Offline || r[1].State != Held || r[1].Effective != 2000*mhz {
		t.Errorf("%+v", r)
	}
	if highest, known := r.Highest(); !known || highest != 2000*mhz {
		t.Errorf("highest %v, %v", highest, known)
	}
}

// What reads back above what was written is not held, whatever write said.
func TestDeafDriver(t *testing.T) {
	t.Parallel()
	set, k := started(t, "intel_pstate-active", nil)
	k.deaf = true
	r := hands(t, set).Set(1500 * mhz)
	if r.Held() || !errors.Is(r.Err(), ErrNotTaken) || r[0].State != Failed || r[0].Effective != 3900*mhz {
		t.Errorf("%+v, %v", r, r.Err())
	}
	var w *WriteError
	if !errors.As(r.Err(), &w) || w.Want != 1500*mhz || w.Got != 3900*mhz {
		t.Errorf("write error %+v", w)
	}
}

// A driver that rounds down holds, and is not taken for somebody else's doing.
func TestRoundingIsHeld(t *testing.T) {
	t.Parallel()
	set, k := started(t, "intel_pstate-active", nil)
	k.roundTo = int64(100 * mhz)
	c := hands(t, set)
	for _, r := range []Report{c.Set(1550 * mhz), c.ReadBack()} {
		if r[0].State != Held || r[0].Effective != 1500*mhz || r[0].Written != 1550*mhz {
			t.Errorf("%+v", r[0])
		}
	}
}

// Lesson 10: limits may vanish after suspend. A ceiling that reads back higher than
// what was written is drift; a lower one is somebody's stricter bound.
func TestLostCeilingIsDrift(t *testing.T) {
	t.Parallel()
	set, k := started(t, "acpi-cpufreq", nil)
	c := hands(t, set)
	if r := c.ReadBack(); r[0].State != Unset || r.Held() {
		t.Errorf("before the first write: %+v", r)
	}
	c.Set(2000 * mhz)
	other, err := k.disk(join("policy1", "scaling_max_freq"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	for text, want := range map[string]State{"2401000\n": Drifted, "1500000\n": Lower, "2000000\n": Held} {
		if _, err := other.Pwrite([]byte(text)); err != nil {
			t.Fatal(err)
		}
		r := c.ReadBack()
		if r[0].State != Held || r[1].State != want || r.Held() == (want == Drifted) || (len(r.Drifted()) > 0) != (want == Drifted) {
			t.Errorf("%q: %+v, want %s", text, r, want)
		}
	}
}

// Lesson 10: processors go offline (EBUSY, the policy stays) and come back; then
// their ceiling is looked at and written again.
func TestOfflineAndBack(t *testing.T) {
	t.Parallel()
	set, k := started(t, "acpi-cpufreq", nil)
	c := hands(t, set)
	k.offline["policy1"] = true
	r := c.Set(1800 * mhz)
	if r[0].State != Held || r[1].State != Offline || !errors.Is(r[1].Err, unix.EBUSY) || r.Err() != nil || !r.Held() {
		t.Errorf("offline: %+v, %v", r, r.Err())
	}
	if _, err := set.Refresh(); err != nil {
		t.Errorf("refresh with a policy offline: %v", err)
	}
	delete(k.offline, "policy1")
	if r := c.ReadBack(); r[1].State != Drifted {
		t.Errorf("back: %+v, want drift", r[1])
	}
	if r := c.Set(1800 * mhz); !r.Held() || r[1].Effective != 1800*mhz {
		t.Errorf("written again: %+v", r)
	}
	k.offline["policy0"], k.offline["policy1"] = true, true
	if _, known := c.ReadBack().Highest(); known || c.ReadBack().Held() {
		t.Error("nothing online, and yet something is held")
	}
}

// A driver that changes its mode makes every policy anew: the old descriptors
// answer ENODEV and are opened again.
func TestPolicyGoneAndBack(t *testing.T) {
	t.Parallel()
	set, k := started(t, "intel_pstate-active", nil)
	c := hands(t, set)
	c.Set(2000 * mhz)
	k.epoch++
	if r := c.ReadBack(); r[0].State != Held {
		t.Errorf("%+v", r[0])
	}
	k.epoch++
	if r := c.Set(1500 * mhz); !r.Held() || r.Err() != nil {
		t.Errorf("%+v", r)
	}
	if f, err := set.Policies()[0].Frequency(); err != nil || f == 0 {
		t.Errorf("frequency %v, %v", f, err)
	}
}

// Lesson 20: ranges move. Refresh takes the new one in, finds policies that came
// online, and ceilings reach them.
func TestRefreshFollowsTheMachine(t *testing.T) {
	t.Parallel()
	root := fixture(t, "cppc_cpufreq", nil)
	set, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	c := hands(t, set)
	at := filepath.Join(root.Name(), cpufreqDir)
	for file, text := range map[string]string{
		"scaling_driver": "cppc_cpufreq", "cpuinfo_min_freq": "1000000", "cpuinfo_max_freq": "2600000",
		"scaling_min_freq": "1000000", "scaling_max_freq": "2600000", "affected_cpus": "4 5",
	} {
		put(t, filepath.Join(at, "policy4", file), text)
	}
	put(t, filepath.Join(at, "policy0", "cpuinfo_max_freq"), "2200000")
	added, err := set.Refresh()
	if err != nil || len(added) != 1 || added[0].Name != "policy4" {
		t.Fatalf("added %v, %v", added, err)
	}
	if got := len(c.Knobs()); got != 4 {
		t.Errorf("%d knobs, want ceiling and floor of 2 policies", got)
	}
	r := c.Set(2500 * mhz)
	if !r.Held() || r[0].Effective != 2200*mhz || r[1].Effective != 2500*mhz {
		t.Errorf("%+v", r)
	}
}

// A policy that comes later and is to be left alone is not written, and that is said;
// the others are held.
func TestLeaveKeepsFromWhatComesLater(t *testing.T) {
	t.Parallel()
	root := fixture(t, "cppc_cpufreq", nil)
	set, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	c := hands(t, set)
	notMine := errors.New("not mine")
	c.Leave(func(p *Policy) error {
		if p.Name == "policy4" {
			return notMine
		}
		return nil
	})
	at := filepath.Join(root.Name(), cpufreqDir, "policy4")
	for file, text := range map[string]string{
		"scaling_driver": "cppc_cpufreq", "cpuinfo_min_freq": "1000000", "cpuinfo_max_freq": "2600000",
		"scaling_min_freq": "1000000", "scaling_max_freq": "2600000", "affected_cpus": "4 5",
	} {
		put(t, filepath.Join(at, file), text)
	}
	if _, err := set.Refresh(); err != nil {
		t.Fatal(err)
	}
	r := c.Set(1500 * mhz)
	stands, err := os.ReadFile(filepath.Join(at, "scaling_max_freq"))
	if err != nil || strings.TrimSpace(string(stands)) != "2600000" || len(c.Knobs()) != 2 {
		t.Errorf("it holds %q, %v, and %d knobs may be written", stands, err, len(c.Knobs()))
	}
	if !errors.Is(r.Err(), notMine) || r.Held() || r[0].State != Held {
		t.Errorf("%+v", r)
	}
}
