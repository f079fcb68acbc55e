//go:build guest

// Package guest contains the tests that run inside the test machine, against the kernel's own RAPL
// driver and cpufreq core on simulated registers. Each test loads the simulated hardware that it
// needs and removes it again. They run one after the other, as root, in a machine made for them.
package guest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"headroom/dvfs"
	"headroom/internal/testkit"
	"headroom/rapl"
	"headroom/rapl/msr"
	"headroom/units"
)

const params = "/sys/module/psim/parameters/"

// command runs a program of the machine.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// hardware loads the simulated processor: psim with its arguments and, behind the
// kernel's RAPL driver, psim_msr with others.
func hardware(t *testing.T, psim, psimMSR []string) {
	t.Helper()
	command(t, "insmod", append([]string{"/psim/psim.ko", "zones=0"}, psim...)...)
	command(t, "modprobe", "intel_rapl_common")
	command(t, "insmod", append([]string{"/psim/psim_msr.ko"}, psimMSR...)...)
	governors, _ := filepath.Glob("/sys/devices/system/cpu/cpufreq/policy*/scaling_governor")
	for _, g := range governors { // the kernel's default follows measured load, and the tests set theirs
		testkit.WriteFile(t, g, "performance")
	}
	t.Cleanup(func() {
		for _, m := range []string{"psim_msr", "psim"} {
			_ = exec.Command("rmmod", m).Run() //nolint:noctx // the test's context has ended
		}
	})
}

func set(t *testing.T, param, value string) {
	t.Helper()
	testkit.WriteFile(t, params+param, value)
}

func machine(t *testing.T) *os.Root {
	t.Helper()
	root := testkit.Need(os.OpenRoot("/"))(t)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func open(t *testing.T) *rapl.Tree {
	t.Helper()
	tree := testkit.Need(rapl.Open(machine(t)))(t)
	t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func limiter(t *testing.T, tree *rapl.Tree) *rapl.Limiter {
	t.Helper()
	l := testkit.Need(tree.OfKind(rapl.Package)[0].Limiter())(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// watts is the mean power of a zone over about d.
func watts(t *testing.T, z *rapl.Zone, d time.Duration) float64 {
	t.Helper()
	m, began := rapl.NewMeter(z), time.Now()
	if _, err := m.Look(0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	r, err := m.Look(time.Since(began))
	if err != nil || !r.Known {
		t.Fatalf("second look: %+v, %v", r, err)
	}
	p, _ := r.Power()
	return p.Watts()
}

// The driver's own zones are found by name, and a meter on its counter shows the
// load and the limit.
func TestPowerFollowsLoadAndLimit(t *testing.T) {
	hardware(t, nil, nil)
	tree := open(t)
	packages := tree.OfKind(rapl.Package)
	if len(packages) != 1 || packages[0].Label != "package-0" || len(tree.OfKind(rapl.DRAM)) != 1 || len(tree.OfKind(rapl.Core)) != 1 {
		t.Fatalf("zones %+v", tree.Zones())
	}
	if packages[0].Range == tree.OfKind(rapl.DRAM)[0].Range {
		t.Error("package and memory share a range; the driver gives them different units")
	}
	set(t, "load", "0")
	time.Sleep(500 * time.Millisecond)
	idle := watts(t, packages[0], time.Second)
	set(t, "load", "1000")
	time.Sleep(500 * time.Millisecond)
	busy := watts(t, packages[0], time.Second)
	if idle < 15 || idle > 21 || busy < 38 || busy > 45 {
		t.Errorf("idle %.1f W, busy %.1f W; the model draws 18 and 42", idle, busy)
	}
	l := limiter(t, tree)
	if _, err := l.SetPower(rapl.LongTerm, 25*units.Watt); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	if held := watts(t, packages[0], 2*time.Second); held < 22 || held > 26.5 {
		t.Errorf("%.1f W under a limit of 25 W", held)
	}
}

// Lesson 5: the kernel rounds limits and windows, truncates what does not fit, and
// reports nothing; so each value is read back, and nonsense never gets that far.
func TestLimitsReadBack(t *testing.T) {
	hardware(t, nil, nil)
	l := limiter(t, open(t))
	if got, err := l.SetPower(rapl.LongTerm, units.FromWatts(25.06)); err != nil || got != 25*units.Watt {
		t.Errorf("25.06 W reads back %v, %v; the register counts in 1/8 W", got, err)
	}
	if got, err := l.SetWindow(rapl.LongTerm, 500*time.Millisecond); err != nil || got == 500*time.Millisecond {
		t.Errorf("500 ms reads back %v, %v; the register's encoding has 499.7 ms", got, err)
	}
	if _, err := l.SetPower(rapl.LongTerm, 0); !errors.Is(err, rapl.ErrZeroLimit) {
		t.Errorf("0 W: %v", err)
	}
	if _, err := l.SetPower(rapl.LongTerm, 99999*units.Watt); !errors.Is(err, rapl.ErrTooHigh) {
		t.Errorf("99999 W, which the driver would truncate: %v", err)
	}
	if got, err := l.Power(rapl.LongTerm); err != nil || got != 25*units.Watt {
		t.Errorf("after the refusals %v, %v", got, err)
	}
}

// Lesson 5: this driver accepts a write whose register was not written.
func TestSilentlyFailedWriteIsFound(t *testing.T) {
	hardware(t, nil, nil)
	l := limiter(t, open(t))
	if _, err := l.SetPower(rapl.LongTerm, 40*units.Watt); err != nil {
		t.Fatal(err)
	}
	set(t, "fail_write", "5")
	got, err := l.SetPower(rapl.LongTerm, 30*units.Watt)
	set(t, "fail_write", "0")
	if err == nil || got != 40*units.Watt {
		t.Errorf("the write is believed: %v, %v", got, err)
	}
	set(t, "fail_read", "5")
	_, err = l.Power(rapl.LongTerm)
	set(t, "fail_read", "0")
	if err == nil {
		t.Error("a failed read gave a number")
	}
	if got, err := l.SetPower(rapl.LongTerm, 30*units.Watt); err != nil || got != 30*units.Watt {
		t.Errorf("once the fault is over: %v, %v", got, err)
	}
}

// Lesson 8: locked registers are common, and show only as a write without effect.
func TestLockedRegister(t *testing.T) {
	hardware(t, nil, []string{"locked=1"})
	l := limiter(t, open(t))
	before, err := l.Power(rapl.LongTerm)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.SetPower(rapl.LongTerm, 30*units.Watt)
	var locked *rapl.LockedError
	if !errors.As(err, &locked) || locked.How == "" {
		t.Errorf("locked: %v", err)
	}
	if after, err := l.Power(rapl.LongTerm); err != nil || after != before || l.Lock() != rapl.Locked {
		t.Errorf("limit %v -> %v, %v, lock %v", before, after, err, l.Lock())
	}
}

// Lesson 1: the counter of the package wraps at 32 bits of its unit, and a meter
// counts on.
func TestCounterWraps(t *testing.T) {
	hardware(t, []string{"energy0_uj=262060000000"}, nil) // 83 J before the end: some seconds of work
	tree := open(t)
	m, began := rapl.NewMeter(tree.OfKind(rapl.Package)[0]), time.Now()
	if _, err := m.Look(0); err != nil {
		t.Fatal(err)
	}
	set(t, "load", "1000")
	last, _ := m.Count()
	for wrapped := false; !wrapped; {
		time.Sleep(50 * time.Millisecond)
		r, err := m.Look(time.Since(began))
		now, _ := m.Count()
		if p, ok := r.Power(); err != nil || !ok || p > 60*units.Watt {
			t.Fatalf("look %+v (%v), %v", r, p, err)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("no wrap in a minute, the counter is at %v", now)
		}
		wrapped, last = now < last, now
	}
	if total, ok := m.Total(); !ok || total < 20*units.Joule || total > 200*units.Joule {
		t.Errorf("total %v known %v", total, ok)
	}
}

// The registers and powercap are two doors to the same limits.
func TestRegistersAndPowercapAgree(t *testing.T) {
	hardware(t, nil, nil)
	regs := testkit.Need(msr.Open(machine(t)))(t)
	t.Cleanup(func() { _ = regs.Close() })
	cap, reg := limiter(t, open(t)), limiter(t, regs)
	if _, err := reg.SetPower(rapl.LongTerm, 33*units.Watt); err != nil {
		t.Fatal(err)
	}
	if got, err := cap.Power(rapl.LongTerm); err != nil || got != 33*units.Watt {
		t.Errorf("powercap sees %v, %v", got, err)
	}
	if _, err := cap.SetPower(rapl.LongTerm, 29*units.Watt); err != nil {
		t.Fatal(err)
	}
	if got, err := reg.Power(rapl.LongTerm); err != nil || got != 29*units.Watt {
		t.Errorf("the register holds %v, %v", got, err)
	}
	set(t, "load", "1000")
	time.Sleep(500 * time.Millisecond)
	if p := watts(t, regs.OfKind(rapl.Package)[0], time.Second); p < 20 || p > 45 {
		t.Errorf("%.1f W by register", p)
	}
}

// A virtual machine without the simulated registers reads 0 from all of them: no RAPL.
func TestUnitRegisterZero(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "modprobe", "msr").Run(); err != nil {
		t.Skip("not run: no msr module in the image")
	}
	t.Cleanup(func() { _ = exec.Command("rmmod", "msr").Run() }) //nolint:noctx // the test's context has ended
	if tree, err := msr.Open(machine(t)); !errors.Is(err, msr.ErrNoRAPL) {
		t.Errorf("opened %v, %v", tree, err)
	}
}

// The kernel's cpufreq core clamps and rounds a ceiling without an error; what
// reads back counts.
func TestCeilings(t *testing.T) {
	for _, mode := range []string{"table", "setpolicy"} {
		t.Run(mode, func(t *testing.T) {
			hardware(t, []string{"mode=" + mode}, nil)
			policies := testkit.Need(dvfs.Open(machine(t)))(t)
			t.Cleanup(func() { _ = policies.Close() })
			for _, p := range policies.Policies() {
				c := testkit.Need(p.Ceiling())(t)
				for _, ask := range []units.Freq{2000 * units.Megahertz, 2050 * units.Megahertz, 100 * units.Megahertz, 9 * units.Gigahertz} {
					got, err := c.Set(ask)
					if err != nil || got > max(ask, p.Min) || got < p.Min {
						t.Errorf("%s asked %v, reads back %v, %v", p.Name, ask, got, err)
					}
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A CPU that is offline takes nothing else down, and comes back.
func TestOfflineCPU(t *testing.T) {
	online := "/sys/devices/system/cpu/cpu1/online"
	if _, err := os.Stat(online); err != nil {
		t.Skip("not run: the machine has one CPU")
	}
	hardware(t, nil, nil)
	policies := testkit.Need(dvfs.Open(machine(t)))(t)
	t.Cleanup(func() { _ = policies.Close() })
	all := testkit.Need(policies.Ceilings())(t)
	t.Cleanup(func() { _ = all.Close() })
	ceiling := func(*dvfs.Policy) units.Freq { return 1600 * units.Megahertz }
	flip := func(on int) {
		testkit.WriteFile(t, online, strconv.Itoa(on))
	}
	flip(0)
	defer flip(1)
	results := all.SetEach(ceiling)
	if len(results) == 0 || results[0].Err != nil {
		t.Errorf("the CPU that is there: %+v", results)
	}
	flip(1)
	if results := all.SetEach(ceiling); results.Err() != nil {
		t.Errorf("once it is back: %v", results.Err())
	}
}

// Lesson 13: only root reads energy_uj since Linux 5.10.
func TestEnergyIsForRootOnly(t *testing.T) {
	hardware(t, nil, nil)
	files, err := filepath.Glob("/sys/class/powercap/intel-rapl:*/energy_uj")
	if err != nil || len(files) == 0 {
		t.Fatal("no counters", err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
}
