// Claims: what is written acts on the machine, and every shape conserves energy.
package kernel_test

import (
	"errors"
	"math"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/lab/emulator/kernel"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Lesson 9: of a package's two sets of limits the lower one wins.
func TestLowerTwinWins(t *testing.T) {
	t.Parallel()
	const twin = "sys/devices/virtual/powercap/intel-rapl-mmio/intel-rapl-mmio:0/"
	m := newMachine(t, named(t, "client-psys-mmio"))
	for _, name := range []string{pkg, twin} {
		testkit.Check(t, m.write(t, name+"constraint_0_time_window_us", "976"))
	}
	for _, c := range []struct {
		file, limit string
		watts       float64
	}{{pkg, "40000000", 40}, {twin, "25000000", 25}, {pkg, "90000000", 25}, {twin, "60000000", 60}} {
		testkit.Check(t, m.write(t, c.file+"constraint_0_power_limit_uw", c.limit))
		m.step(2*time.Second, 1)
		if got := m.plant.Package().Watts(); math.Abs(got-c.watts) > 1 {
			t.Errorf("%s to %sconstraint_0: package draws %.1f W, want %.0f W", c.limit, c.file, got, c.watts)
		}
	}
}

// Limits, switches and registers act on the frequency.
func TestFrequencyFollowsItsControls(t *testing.T) {
	t.Parallel()
	m := newMachine(t, named(t, "xeon-2s"))
	m.step(100*time.Millisecond, 0.2)
	if f := m.plant.Freq(); f != 3_600_000 {
		t.Errorf("turbo runs at %v", f)
	}
	for _, c := range []struct {
		file, text string
		want       units.Freq
	}{
		{"sys/devices/system/cpu/intel_pstate/no_turbo", "1", 2_400_000},
		{"sys/devices/system/cpu/intel_pstate/no_turbo", "0", 3_600_000},
		{"sys/devices/system/cpu/intel_pstate/max_perf_pct", "50", 1_800_000},
		{"sys/devices/system/cpu/intel_pstate/max_perf_pct", "100", 3_600_000},
	} {
		testkit.Check(t, m.write(t, c.file, c.text))
		m.step(100*time.Millisecond, 0.2)
		if f := m.plant.Freq(); f != c.want {
			t.Errorf("after %s to %s the machine runs at %v, want %v", c.text, c.file, f, c.want)
		}
	}
}

// Whatever a machine of any shape does, its counters add up to the integral of its
// power, socket by socket, whole platform and wall.
func TestEveryShapeConservesEnergy(t *testing.T) {
	t.Parallel()
	for _, shape := range kernel.Shapes() {
		t.Run(shape.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { conserves(t, shape) })
		})
	}
}

func conserves(t *rapid.T, shape kernel.Shape) {
	m := newMachine(t, shape)
	p := m.plant
	domains := p.Domains()
	start, sums := make([]units.Energy, len(domains)), make([]float64, len(domains))
	loads := make([]float64, len(domains))
	for i, d := range domains {
		start[i] = d.Energy()
	}
	var wall, platform float64
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		i := rapid.IntRange(0, len(domains)-1).Draw(t, "package")
		loads[i] = rapid.Float64Range(0, 1).Draw(t, "load")
		if rapid.IntRange(0, 4).Draw(t, "move") == 0 {
			domains[i].SetLimit(plant.MSR, plant.LongTerm, units.FromWatts(rapid.Float64Range(0, 300).Draw(t, "limit")))
		}
		dt := time.Duration(rapid.Int64Range(1, int64(10*time.Millisecond)).Draw(t, "dt"))
		p.Step(dt, loads...)
		for i, d := range domains {
			sums[i] += float64(d.Package()) * dt.Seconds()
		}
		wall += float64(p.Wall()) * dt.Seconds()
		platform += float64(p.Platform()) * dt.Seconds()
	}
	for i, d := range domains {
		if got := float64(d.Energy() - start[i]); math.Abs(got-sums[i]) > 2 {
			t.Fatalf("package %d counted %.0f uJ, drew %.1f uJ", i, got, sums[i])
		}
	}
	if math.Abs(float64(p.PlatformEnergy())-platform) > 2 || math.Abs(float64(p.WallEnergy())-wall) > 2 {
		t.Fatalf("platform %d of %.1f uJ, wall %d of %.1f uJ", p.PlatformEnergy(), platform, p.WallEnergy(), wall)
	}
}

// Lesson 1: the counter of an AMD socket wraps in minutes.
func TestAMDWrapsInMinutes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, named(t, "epyc"))
	wraps, last := 0, units.Energy(0)
	for range 5 * 60 {
		m.plant.Step(time.Second, 1)
		now := m.plant.Domains()[0].Energy()
		if now < last {
			wraps++
		}
		last = now
	}
	if wraps != 1 {
		t.Errorf("%d wraps in five minutes at full load", wraps)
	}
}

// Lesson 3: on some AMD machines every die shows the counter of its whole socket.
func TestMirroredCounters(t *testing.T) {
	t.Parallel()
	m := newMachine(t, named(t, "epyc-mirrored"))
	read := func(n string) string { return m.read(t, zones+"intel-rapl:"+n+"/energy_uj") }
	for range 3 { // idle sockets, too, count from different start values
		if read("0") != read("1") || read("2") != read("3") || read("0") == read("2") {
			t.Errorf("counters %s %s %s %s", read("0"), read("1"), read("2"), read("3"))
		}
		m.plant.Step(time.Second, 0, 0, 0, 0)
	}
}

// Firmware may hold the turbo switch, and cppc_cpufreq sets every ceiling again when
// boost is switched, whatever it was.
func TestTurboSwitches(t *testing.T) {
	t.Parallel()
	const boost, noTurbo = "sys/devices/system/cpu/cpufreq/boost", "sys/devices/system/cpu/intel_pstate/no_turbo"
	m := newMachine(t, named(t, "xeon-2s"))
	m.SetFaults(kernel.Faults{NoTurbo: true})
	if err := m.write(t, noTurbo, "1"); !is(err, syscall.EPERM) || m.read(t, noTurbo) != "0" {
		t.Errorf("%v, no_turbo %s", err, m.read(t, noTurbo))
	}
	m.SetFaults(kernel.Faults{})
	if err := m.write(t, noTurbo, "1"); err != nil || m.read(t, noTurbo) != "1" {
		t.Errorf("%v, no_turbo %s", err, m.read(t, noTurbo))
	}
	shape := named(t, "epyc")
	shape.Driver = "cppc_cpufreq"
	m = newMachine(t, shape)
	testkit.Check(t, m.write(t, policy1+"scaling_max_freq", "2000000"))
	for on, top := range map[string]string{"0": "2450000", "1": "3700000"} {
		if err := m.write(t, boost, on); err != nil {
			t.Error(err)
		}
		if ceiling, highest := m.read(t, policy1+"scaling_max_freq"), m.read(t, policy1+"cpuinfo_max_freq"); ceiling != top || highest != top {
			t.Errorf("boost %s: ceiling %s, highest %s, want %s", on, ceiling, highest, top)
		}
	}
}

// A limit at the wall is followed within seconds, and ends.
func TestBoardHoldsItsLimitSlowly(t *testing.T) {
	t.Parallel()
	m := newMachine(t, named(t, "xeon-1s"))
	m.step(5*time.Second, 1)
	m.plant.SetWallLimit(130 * units.Watt)
	m.step(time.Second/2, 1)
	if w := m.plant.Wall().Watts(); w < 230 {
		t.Errorf("%.1f W at once", w)
	}
	m.step(15*time.Second, 1)
	if w := m.plant.Wall().Watts(); math.Abs(w-130) > 3 {
		t.Errorf("%.1f W at the wall under a limit of 130 W", w)
	}
	m.plant.SetWallLimit(0)
	m.step(time.Second, 1)
	if w := m.plant.Wall().Watts(); w < 230 {
		t.Errorf("%.1f W after the limit ended", w)
	}
}

// No text, whatever file it is written to, breaks a machine or stops its plant.
func FuzzWrites(f *testing.F) {
	for _, seed := range []string{"", "0", "-1", "\x00", "18446744073709551615", "performance", "userspace", "9999999999999999999999"} {
		f.Add(uint16(7), seed)
	}
	f.Fuzz(func(t *testing.T, at uint16, text string) {
		for _, name := range []string{"xeon-1s", "client-psys-mmio", "epyc", "arm-cppc"} {
			m := newMachine(t, named(t, name))
			a := m.Attrs()[int(at)%len(m.Attrs())]
			if err := m.Write(a, text); err != nil {
				if _, ok := errors.AsType[syscall.Errno](err); !ok {
					t.Errorf("%s: %q answers %v", a.Path, text, err)
				}
			}
			m.step(100*time.Millisecond, 1)
			if w := m.plant.Wall().Watts(); !(w > 0 && w < 2000) {
				t.Errorf("%s: after %q to %s the machine draws %v W", name, text, a.Path, w)
			}
		}
	})
}
