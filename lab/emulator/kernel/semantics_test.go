// Claims: reading and writing each file answers as Linux 6.1 does, error numbers,
// rounding and truncation included; faults act and end.
package kernel_test

import (
	"errors"
	"strconv"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/emulator/kernel"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

const (
	zones   = "sys/devices/virtual/powercap/intel-rapl/"
	pkg     = zones + "intel-rapl:0/"
	core    = pkg + "intel-rapl:0:0/"
	policy1 = "sys/devices/system/cpu/cpufreq/policy1/"
)

// machine is a tree with its plant, stepped together.
type machine struct {
	*kernel.Tree
	plant *plant.Plant
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func newMachine(t fataler, shape kernel.Shape) *machine {
	t.Helper()
	p := testkit.Need(plant.New(shape.Spec))(t)
	return &machine{kernel.New(p, shape, kernel.Identity{MachineID: "m", BootID: "b", Booted: time.Unix(1, 0)}), p}
}

func named(t fataler, name string) kernel.Shape {
	t.Helper()
	return testkit.Need(kernel.ShapeOf(name))(t)
}

func (m *machine) step(d time.Duration, util float64) {
	for ; d > 0; d -= 20 * time.Millisecond {
		m.plant.Step(20*time.Millisecond, util)
		m.Step(20 * time.Millisecond)
	}
}

// write is what a write of text to the file answers.
func (m *machine) write(t fataler, name, text string) error {
	t.Helper()
	a := m.Lookup(name)
	if a == nil {
		t.Fatalf("no file %s", name)
	}
	return m.Write(a, text)
}

// read is the file's text, or the error's.
func (m *machine) read(t fataler, name string) string {
	t.Helper()
	a := m.Lookup(name)
	if a == nil {
		t.Fatalf("no file %s", name)
	}
	text, err := m.Read(a)
	if err != nil {
		return err.Error()
	}
	return text
}

// is compares what a call answered with an error number, 0 for success.
func is(err error, number syscall.Errno) bool {
	if number == 0 {
		return err == nil
	}
	return errors.Is(err, number)
}

// Since Linux 5.5 a worker carries bounds of frequency out: the old one is seen once
// behind a write, and acts until then; without anybody looking, the next step is late
// enough. The last of several writes wins, and an error is answered at once.
func TestBoundsAreCarriedOutLate(t *testing.T) {
	t.Parallel()
	const ceiling, floor = policy1 + "scaling_max_freq", policy1 + "scaling_min_freq"
	m := newMachine(t, named(t, "arm-cppc"))
	m.DeferBounds()
	write := func(file, text string) {
		if err := m.write(t, file, text); err != nil {
			t.Error(err)
		}
	}
	shows := func(file string, want ...string) {
		for _, w := range want {
			if got := m.read(t, file); got != w {
				t.Errorf("%s shows %s, want %s", file, got, w)
			}
		}
	}
	write(ceiling, "2000000")
	if got := m.plant.CoreFreq(1); got != 3_000_000 {
		t.Errorf("the ceiling acts at once: %v", got)
	}
	shows(ceiling, "3000000", "2000000", "2000000")
	write(ceiling, "1500000")
	write(ceiling, "1800000")
	write(floor, "1200000")
	m.step(time.Millisecond, 1)
	shows(ceiling, "1800000")
	shows(floor, "1200000")
	write(floor, "1000000")
	shows(floor, "1200000", "1000000")
	if err := m.write(t, ceiling, "fast"); !is(err, syscall.EINVAL) {
		t.Errorf("letters: %v", err)
	}
	shows(ceiling, "1800000", "1800000")
}

// One row is a write, what it answers, and what the file shows afterwards. Each
// group has a machine of its own.
func TestWritesAnswerAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	const (
		limit    = pkg + "constraint_0_power_limit_uw"
		window   = pkg + "constraint_0_time_window_us"
		ceiling  = policy1 + "scaling_max_freq"
		governor = policy1 + "scaling_governor"
		speed    = policy1 + "scaling_setspeed"
		epp      = policy1 + "energy_performance_preference"
		noTurbo  = "sys/devices/system/cpu/intel_pstate/no_turbo"
	)
	type row struct {
		file, written string
		answer        syscall.Errno
		shown         string
	}
	table := named(t, "xeon-1s")
	table.Userspace = true
	for name, c := range map[string]struct {
		shape kernel.Shape
		fault kernel.Faults
		rows  []row
	}{
		"limits": {named(t, "xeon-1s"), kernel.Faults{}, []row{
			{limit, "25060000\n", 0, "25000000"},
			{limit, "99999999999", 0, "1695875000"}, // cut to 15 bits of 1/8 W, not clamped
			{limit, "0", 0, "0"},                    // accepted, and means 0 W
			{limit, "+50000000", 0, "50000000"},
			{limit, "abc", syscall.EINVAL, "50000000"},
			{limit, "-1", syscall.EINVAL, "50000000"},
			{limit, "1e6", syscall.EINVAL, "50000000"},
			{limit, "99999999999999999999", syscall.EINVAL, "50000000"},
			{limit, "", syscall.EINVAL, "50000000"},
			{window, "500000", 0, "499712"},
			{window, "0", 0, "976"},
			{pkg + "enabled", "0", 0, "0"},
			{pkg + "enabled", "maybe", syscall.EINVAL, "0"},
			{pkg + "enabled", "on", 0, "1"},
			{pkg + "energy_uj", "0", syscall.EACCES, "1000000"},
			{pkg + "name", "x", syscall.EACCES, "package-0"},
			{zones + "enabled", "0", syscall.ENOSYS, "1"},
		}},
		"zones without effect": {named(t, "xeon-1s"), kernel.Faults{}, []row{
			{core + "constraint_0_power_limit_uw", "5000000", 0, "0"}, // Lesson 4: only package zones take a limit
			{core + "enabled", "1", syscall.ENOSYS, "0"},
		}},
		"locked as seen by Linux 6.1": {named(t, "xeon-1s"), kernel.Faults{Locked: true}, []row{
			{limit, "50000000", 0, "185000000"}, // Lesson 5: success, and the old value stays
			{limit, "abc", syscall.EINVAL, "185000000"},
			{pkg + "enabled", "1", syscall.ENOSYS, "0"},
		}},
		"locked and noticed": {named(t, "xeon-1s"), kernel.Faults{Locked: true, Refuse: true}, []row{
			{limit, "50000000", syscall.ENODATA, "185000000"},
			{window, "500000", syscall.ENODATA, "999424"},
			{pkg + "enabled", "1", syscall.ENOSYS, "0"},
		}},
		"failing writes": {named(t, "xeon-2s"), kernel.Faults{FailWrite: "package-1"}, []row{
			{zones + "intel-rapl:1/constraint_0_power_limit_uw", "50000000", syscall.ENODATA, "150000000"},
			{limit, "50000000", 0, "50000000"},
		}},
		"ceilings with a table": {table, kernel.Faults{}, []row{
			{ceiling, "2050000", 0, "2000000"},
			{ceiling, "2000000x", 0, "2000000"},
			{ceiling, "9000000", 0, "3400000"},
			{ceiling, "1", 0, "800000"},
			{ceiling, "fast", syscall.EINVAL, "800000"},
			{ceiling, "3400000", 0, "3400000"},
			{governor, "conservative", syscall.EINVAL, "schedutil"},
			{speed, "2000000", syscall.EINVAL, "<unsupported>"},
			{governor, "userspace", 0, "userspace"},
			{speed, "1700001", 0, "1800000"}, // rounds up
			{speed, "2000000x", 0, "2000000"},
			{speed, "9000000", 0, "3400000"},
			{speed, "1", 0, "800000"},
			{speed, "abc", syscall.EINVAL, "800000"},
			{governor, "powersave\n", 0, "powersave"},
			{policy1 + "scaling_min_freq", "2050000", 0, "2100000"},
		}},
		"userspace not loaded": {named(t, "xeon-1s"), kernel.Faults{}, []row{{governor, "userspace", syscall.EINVAL, "schedutil"}}},
		"intel_pstate active": {named(t, "xeon-2s"), kernel.Faults{}, []row{ // Lesson 10: drivers differ; performance pins the preference
			{governor, "userspace", syscall.EINVAL, "powersave"},
			{governor, "schedutil", syscall.EINVAL, "powersave"},
			{epp, "power", 0, "power"},
			{epp, "turbo", syscall.EINVAL, "power"},
			{epp, "128", 0, "128"},
			{governor, "performance", 0, "performance"},
			{epp, "power", syscall.EBUSY, "performance"},
			{governor, "powersave", 0, "powersave"},
			{epp, "balance_power", 0, "balance_power"},
			{ceiling, "2050000", 0, "2050000"}, // no table: not rounded
			{ceiling, "9000000", 0, "3600000"},
			{noTurbo, "1", 0, "1"},
			{ceiling, "3600000", 0, "2400000"},
			{noTurbo, "2", syscall.EINVAL, "1"},
			{speed, "2000000", syscall.EINVAL, "<unsupported>"},
			{"sys/devices/system/cpu/intel_pstate/status", "passive", syscall.EBUSY, "active"},
			{"sys/devices/system/cpu/intel_pstate/max_perf_pct", "5", 0, "22"},
		}},
		"amd-pstate-epp": {named(t, "epyc"), kernel.Faults{}, []row{
			{epp, "128", syscall.EINVAL, "balance_performance"},
			{ceiling, "1", 0, "400000"},
			{"sys/devices/system/cpu/cpufreq/boost", "0", 0, "0"},
			{ceiling, "3700000", 0, "2450000"},
			{pkg + "enabled", "1", syscall.ENOSYS, "0"}, // Lesson 21: AMD without limits is normal
		}},
		"cppc": {named(t, "arm-cppc"), kernel.Faults{}, []row{
			{governor, "userspace", 0, "userspace"},
			{speed, "1700001", 0, "1700001"},
			{ceiling, "1500000", 0, "1500000"},
			{speed, "1700001", 0, "1500000"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, c.shape)
			m.SetFaults(c.fault)
			for _, r := range c.rows {
				if err := m.write(t, r.file, r.written); !is(err, r.answer) {
					t.Errorf("writing %q to %s answers %v, want %v", r.written, r.file, err, r.answer)
				}
				if got := m.read(t, r.file); got != r.shown {
					t.Errorf("after %q %s shows %q, want %q", r.written, r.file, got, r.shown)
				}
			}
		})
	}
}

// Reading answers as Linux 6.1 does.
func TestReadsAnswerAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, named(t, "xeon-1s"))
	read := func(name string, want syscall.Errno) {
		t.Helper()
		if _, err := m.Read(m.Lookup(name)); !is(err, want) {
			t.Errorf("reading %s answers %v, want %v", name, err, want)
		}
	}
	read(core+"constraint_0_max_power_uw", syscall.ENODATA)
	if mode := m.Lookup(pkg + "energy_uj").Mode; mode != 0o400 {
		t.Errorf("energy_uj has mode %o", mode)
	}
	m.SetFaults(kernel.Faults{FailRead: "package-0"})
	read(pkg+"energy_uj", syscall.EINVAL)
	read(core+"energy_uj", 0)
	m.SetFaults(kernel.Faults{Permission: kernel.AllZones})
	read(core+"energy_uj", syscall.EACCES)
	if err := m.Open(m.Lookup(pkg+"constraint_0_power_limit_uw"), true); !is(err, syscall.EACCES) {
		t.Errorf("opening a limit without permission answers %v", err)
	}
	m.SetFaults(kernel.Faults{})
	read(pkg+"energy_uj", 0)
	if err := m.write(t, policy1+"scaling_governor", "performance"); err != nil {
		t.Error(err)
	}
	m.SetFaults(kernel.Faults{Offline: 1})
	read(policy1+"scaling_max_freq", syscall.EBUSY)
	if err := m.write(t, policy1+"scaling_max_freq", "800000"); !is(err, syscall.EBUSY) {
		t.Errorf("writing an offline CPU's ceiling answers %v", err)
	}
	if on, off := m.read(t, "sys/devices/system/cpu/online"), m.read(t, "sys/devices/system/cpu/offline"); on != "0,2-3" || off != "1" {
		t.Errorf("online %s, offline %s", on, off)
	}
	if err := m.write(t, "sys/devices/system/cpu/cpu1/online", "1"); err == nil {
		t.Error("a CPU that is kept offline came back")
	}
	m.SetFaults(kernel.Faults{})
	if got := m.read(t, policy1+"scaling_governor"); got != "performance" {
		t.Errorf("after coming back the governor is %s", got)
	}
}

// Lesson 1: the counter is frozen, reset or leaps, and memory wraps elsewhere than
// the package.
func TestCounterFaults(t *testing.T) {
	t.Parallel()
	m := newMachine(t, named(t, "xeon-1s"))
	energy := func() int64 {
		return testkit.Need(strconv.ParseInt(m.read(t, pkg+"energy_uj"), 10, 64))(t)
	}
	m.SetFaults(kernel.Faults{Frozen: true})
	before := energy()
	m.step(time.Second, 1)
	if now := energy(); now != before {
		t.Errorf("frozen counter went from %d to %d", before, now)
	}
	m.SetFaults(kernel.Faults{})
	if now := energy(); now <= before {
		t.Errorf("counter shows %d after the fault, %d before it", now, before)
	}
	before = energy()
	for _, d := range m.plant.Domains() {
		d.SkipEnergy(200_000 * units.Joule)
	}
	if leap := energy() - before; leap < 100_000_000_000 {
		t.Errorf("counter leapt by %d uJ", leap)
	}
	for _, d := range m.plant.Domains() {
		d.ResetEnergy()
	}
	if now := energy(); now != 0 {
		t.Errorf("counter shows %d after a reset", now)
	}
	if a, b := m.read(t, pkg+"max_energy_range_uj"), m.read(t, pkg+"intel-rapl:0:1/max_energy_range_uj"); a != "262143328850" || b != "65712999613" {
		t.Errorf("ranges %s and %s", a, b)
	}
}

// Heat shows everywhere, slows the package down at its trip, and counts.
func TestHeat(t *testing.T) {
	t.Parallel()
	const count = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
	m := newMachine(t, named(t, "xeon-1s"))
	m.step(time.Minute, 1)
	if got := m.read(t, "sys/devices/virtual/thermal/thermal_zone0/temp"); got != "81000" && got != "82000" {
		t.Errorf("at full load a package has %s", got)
	}
	if got := m.read(t, count); got != "0" || m.plant.Freq() != 3_400_000 {
		t.Errorf("throttled %s times at full load, %v", got, m.plant.Freq())
	}
	m.SetFaults(kernel.Faults{Hot: true})
	m.step(2*time.Second, 1)
	if got := m.read(t, "sys/devices/platform/coretemp.0/hwmon/hwmon0/temp1_input"); got != "102000" {
		t.Errorf("hot package has %s", got)
	}
	if got := m.read(t, "sys/devices/platform/coretemp.0/hwmon/hwmon0/temp1_crit_alarm"); got != "1" {
		t.Errorf("alarm %s", got)
	}
	if got := m.read(t, count); got != "1" || m.plant.Freq() != 800_000 {
		t.Errorf("throttled %s times when hot, %v", got, m.plant.Freq())
	}
	m.SetFaults(kernel.Faults{})
	m.step(2*time.Second, 1)
	if m.plant.Freq() != 3_400_000 {
		t.Errorf("still at %v when cool", m.plant.Freq())
	}
}
