package plant_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

const tick = 10 * time.Millisecond

func newPlant(t rapid.TB, spec plant.Spec) *plant.Plant {
	return testkit.Need(plant.New(spec))(t)
}

// run steps for d under one load and returns the mean package power in watts.
func run(p *plant.Plant, d time.Duration, util float64) float64 {
	var joules float64
	for left := d; left > 0; left -= tick {
		p.Step(tick, util)
		joules += p.Package().Watts() * tick.Seconds()
	}
	return joules / d.Seconds()
}

// The default machine is the server that the documentation speaks of.
func TestDefaultSpecIsTheStatedServer(t *testing.T) {
	t.Parallel()
	s := plant.DefaultSpec()
	for _, c := range []struct {
		name      string
		got       units.Power
		low, high float64
	}{
		{"rated", s.Rated(), 230, 250},
		{"idle", s.IdleWall(), 60, 70},
		{"floor", s.Floor(), 60, 75},
	} {
		if w := c.got.Watts(); w < c.low || w > c.high {
			t.Errorf("%s is %.1f W, want %.0f to %.0f W", c.name, w, c.low, c.high)
		}
	}
	if s.FailSafe <= s.Floor() {
		t.Errorf("fail-safe cap %v cannot be held: floor is %v", s.FailSafe, s.Floor())
	}
	p := newPlant(t, s)
	run(p, 5*time.Second, 1)
	if d := math.Abs(p.Wall().Watts() - s.Rated().Watts()); d > 0.01 {
		t.Errorf("uncapped full load draws %v, rated says %v", p.Wall(), s.Rated())
	}
	p.SetLimit(plant.LongTerm, 0)
	run(p, 10*time.Second, 1)
	if d := math.Abs(p.Wall().Watts() - s.Floor().Watts()); d > 0.01 {
		t.Errorf("a limit of 0 W leaves %v, floor says %v", p.Wall(), s.Floor())
	}
}

// Whatever happens to limits and load, the counters hold the integral of power.
func TestEnergyIsTheIntegralOfPower(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlant(t, plant.DefaultSpec())
		start := p.PackageEnergy()
		var pkg, wall float64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "move") == 0 {
				p.SetLimit(plant.LongTerm, units.FromWatts(rapid.Float64Range(0, 250).Draw(t, "limit")))
				p.SetCeiling(rapid.IntRange(0, 3).Draw(t, "cpu"), units.Freq(rapid.Int64Range(0, 4_000_000).Draw(t, "ceiling")))
			}
			dt := time.Duration(rapid.Int64Range(1, int64(tick)).Draw(t, "dt"))
			p.Step(dt, rapid.Float64Range(0, 1).Draw(t, "util"))
			pkg += float64(p.Package()) * dt.Seconds()
			wall += float64(p.Wall()) * dt.Seconds()
		}
		if got := float64(p.PackageEnergy() - start); math.Abs(got-pkg) > 2 {
			t.Fatalf("counter moved by %.0f uJ, power integrates to %.3f uJ", got, pkg)
		}
		if got := float64(p.WallEnergy()); math.Abs(got-wall) > 2 {
			t.Fatalf("wall energy %.0f uJ, power integrates to %.3f uJ", got, wall)
		}
	})
}

// One long step is the same as many short ones.
func TestLongStepsAreShortSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		long, short := newPlant(t, plant.DefaultSpec()), newPlant(t, plant.DefaultSpec())
		limit := units.FromWatts(rapid.Float64Range(20, 200).Draw(t, "limit"))
		long.SetLimit(plant.LongTerm, limit)
		short.SetLimit(plant.LongTerm, limit)
		n := rapid.IntRange(1, 300).Draw(t, "ticks")
		util := rapid.Float64Range(0, 1).Draw(t, "util")
		long.Step(time.Duration(n)*tick, util)
		for range n {
			short.Step(tick, util)
		}
		if long.Wall() != short.Wall() || long.Freq() != short.Freq() || long.PackageEnergy() != short.PackageEnergy() {
			t.Fatalf("one step: %v, %d steps: %v", long.Wall(), n, short.Wall())
		}
	})
}

// A limit that FreqMin can meet is met: under steady load the mean over any five
// windows after settling is not above it, and not much below it where demand is.
func TestLimitHoldsTheMeanOverFiveWindows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := plant.DefaultSpec()
		p := newPlant(t, spec)
		limit := rapid.Float64Range(34, 180).Draw(t, "limit")
		p.SetLimit(plant.LongTerm, units.FromWatts(limit))
		window := p.SetWindow(plant.LongTerm, time.Duration(rapid.Int64Range(1e6, 2e9).Draw(t, "window")))
		held := p.Limit(plant.LongTerm).Watts()
		five := max(5*window, 500*time.Millisecond).Truncate(tick)
		run(p, five+500*time.Millisecond, 1)
		mean := run(p, five, 1)
		if mean > held+0.25 {
			t.Fatalf("mean %.3f W over %v is above the limit %.3f W", mean, five, held)
		}
		if mean < held-0.02*held {
			t.Fatalf("mean %.3f W over %v wastes the limit %.3f W", mean, five, held)
		}
	})
}

// Under any load the running average earns no more than it saved: the mean over
// five windows exceeds the limit by at most a fifth of the room that idling left.
func TestLimitHoldsUnderChangingLoad(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := plant.DefaultSpec()
		p := newPlant(t, spec)
		p.SetLimit(plant.LongTerm, units.FromWatts(rapid.Float64Range(40, 180).Draw(t, "limit")))
		window := p.SetWindow(plant.LongTerm, time.Second)
		limit := p.Limit(plant.LongTerm).Watts()
		most := limit + (limit-spec.Idle.Watts())/5 + 0.5
		for range rapid.IntRange(1, 8).Draw(t, "phases") {
			run(p, time.Duration(rapid.IntRange(1, 300).Draw(t, "ticks"))*tick, rapid.Float64Range(0, 1).Draw(t, "util"))
			probe := p.Clone() // the rest of this phase at full load
			if mean := run(probe, 5*window, 1); mean > most {
				t.Fatalf("mean %.2f W over five windows, limit %.2f W permits %.2f W", mean, limit, most)
			}
		}
	})
}

// A higher limit, or a higher ceiling, never costs power or speed.
func TestPowerIsMonotoneInLimitAndCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		low, high := newPlant(t, plant.DefaultSpec()), newPlant(t, plant.DefaultSpec())
		a := rapid.Float64Range(0, 220).Draw(t, "low limit")
		b := rapid.Float64Range(a, 220).Draw(t, "high limit")
		fa := units.Freq(rapid.Int64Range(800_000, 3_400_000).Draw(t, "low ceiling"))
		fb := units.Freq(rapid.Int64Range(int64(fa), 3_400_000).Draw(t, "high ceiling"))
		low.SetLimit(plant.LongTerm, units.FromWatts(a))
		high.SetLimit(plant.LongTerm, units.FromWatts(b))
		for cpu := range 4 {
			low.SetCeiling(cpu, fa)
			high.SetCeiling(cpu, fb)
		}
		util := rapid.Float64Range(0, 1).Draw(t, "util")
		run(low, 6*time.Second, util)
		run(high, 6*time.Second, util)
		if x, y := run(low, time.Second, util), run(high, time.Second, util); x > y+0.05 {
			t.Fatalf("limit %.3f W draws %.3f W, limit %.3f W draws %.3f W", a, x, b, y)
		}
		if low.Speed() > high.Speed()+0.01 {
			t.Fatalf("speed %.3f under the lower limit, %.3f under the higher", low.Speed(), high.Speed())
		}
	})
}

// A cap step is followed with the package's own response, not at once.
func TestStepIsFollowedWithLag(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plant.DefaultSpec())
	run(p, 5*time.Second, 1)
	before := p.Package().Watts()
	p.SetWindow(plant.LongTerm, 10*time.Millisecond)
	p.SetLimit(plant.LongTerm, 90*units.Watt)
	p.Step(tick, 1)
	if now := p.Package().Watts(); now < before-60 || now >= before {
		t.Errorf("10 ms after the step the package draws %.1f W, %.1f W before it", now, before)
	}
	run(p, 500*time.Millisecond, 1)
	if d := math.Abs(p.Package().Watts() - 90); d > 0.5 {
		t.Errorf("half a second after the step the package draws %v, limit 90 W", p.Package())
	}
	if p.Freq() >= p.Spec().FreqMax {
		t.Errorf("limited node runs at %v", p.Freq())
	}
}

// Disabled limits hold nothing; ceilings still do.
func TestDisabledLimitsAreNotEnforced(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plant.DefaultSpec())
	p.SetLimit(plant.LongTerm, 50*units.Watt)
	p.SetEnabled(false)
	run(p, 2*time.Second, 1)
	if p.Package() < 180*units.Watt {
		t.Errorf("package draws %v with its limits off", p.Package())
	}
	for cpu := range 4 {
		p.SetCeiling(cpu, 1_700_000)
	}
	run(p, 2*time.Second, 1)
	want := 28 + 155*math.Pow(0.5, 2.4)
	if d := math.Abs(p.Package().Watts() - want); d > 0.1 {
		t.Errorf("package draws %v at half frequency, want %.2f W", p.Package(), want)
	}
	if p.Freq() != 1_700_000 || p.Speed() != 0.5 {
		t.Errorf("frequency %v kHz, speed %v", int64(p.Freq()), p.Speed())
	}
}

// Cores below the common frequency keep their own ceiling under a limit.
func TestMixedCeilingsShareALimit(t *testing.T) {
	t.Parallel()
	p := newPlant(t, plant.DefaultSpec())
	p.SetCeiling(0, 800_000)
	p.SetCeiling(1, 1_200_000)
	p.SetLimit(plant.LongTerm, 70*units.Watt)
	run(p, 5*time.Second, 1)
	if mean := run(p, time.Second, 1); math.Abs(mean-70) > 0.3 {
		t.Errorf("mean %.2f W under 70 W with mixed ceilings", mean)
	}
	if p.CoreFreq(0) != 800_000 || p.CoreFreq(1) != 1_200_000 || p.CoreFreq(2) <= 1_200_000 {
		t.Errorf("core frequencies %d %d %d", p.CoreFreq(0), p.CoreFreq(1), p.CoreFreq(2))
	}
}

// Counters wrap each at their own range, and nothing is lost on the way.
func TestCountersWrap(t *testing.T) {
	t.Parallel()
	spec := plant.DefaultSpec()
	spec.EnergyStart = plant.PackageRange - 5
	p := newPlant(t, spec)
	before := p.PackageEnergy()
	p.Step(tick, 0)
	moved := p.PackageEnergy() - before + plant.PackageRange + 1
	if want := (28 * units.Watt).For(tick); p.PackageEnergy() >= before || moved < want-1 || moved > want+1 {
		t.Errorf("counter went from %d to %d: %d uJ, want %d", before, p.PackageEnergy(), moved, want)
	}
	if d := p.DRAMEnergy(); d < 0 || d > plant.DRAMRange {
		t.Errorf("DRAM counter %d is outside its own range", d)
	}
}

// No two counters show the same, however alike the packages work: a machine on which
// they did would hide who compares counters that are not one. They begin alike on
// every run.
func TestCountersBeginApart(t *testing.T) {
	t.Parallel()
	spec := plant.DefaultSpec()
	spec.Packages = 4
	p, again := newPlant(t, spec), newPlant(t, spec)
	for range 3 {
		seen := map[units.Energy]bool{}
		for i, d := range p.Domains() {
			for _, e := range []units.Energy{d.Energy(), d.CoreEnergy(), d.DRAMEnergy(), d.UncoreEnergy()} {
				if i == 0 && (e == d.Energy() || e == d.DRAMEnergy()) {
					continue // these two begin at the specification's values
				}
				if seen[e] {
					t.Errorf("two counters show %d", e)
				}
				seen[e] = true
			}
			if same := again.Domains()[i]; same.Energy() != d.Energy() || same.DRAMEnergy() != d.DRAMEnergy() {
				t.Errorf("package %d begins at %d and %d", i, d.Energy(), same.Energy())
			}
		}
		p.Step(time.Second, 0)
		again.Step(time.Second, 0)
	}
}

// The package's parts never draw more than the whole.
func TestPartsOfTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlant(t, plant.DefaultSpec())
		p.Step(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms"))*time.Millisecond, rapid.Float64Range(-1, 2).Draw(t, "util"))
		if p.Core() > p.Package() || p.Package()+p.DRAM() >= p.Wall() {
			t.Fatalf("core %v, package %v, dram %v, wall %v", p.Core(), p.Package(), p.DRAM(), p.Wall())
		}
	})
}

// Impossible machines are refused with the field's name.
func TestImpossibleSpecs(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*plant.Spec){
		"exponent":   func(s *plant.Spec) { s.Exponent = math.NaN() },
		"no cores":   func(s *plant.Spec) { s.Cores = 0 },
		"upside":     func(s *plant.Spec) { s.FreqMax = s.FreqMin - 1 },
		"efficiency": func(s *plant.Spec) { s.Efficiency = 1.5 },
		"window":     func(s *plant.Spec) { s.LongWindow = 0 },
		"dram":       func(s *plant.Spec) { s.DRAMIdle = -1 },
		"package":    func(s *plant.Spec) { s.Dynamic = 0 },
	} {
		spec := plant.DefaultSpec()
		spoil(&spec)
		if _, err := plant.New(spec); err == nil {
			t.Errorf("%s: an impossible machine was built", name)
		}
	}
}

func BenchmarkStep20ms(b *testing.B) {
	p := testkit.Need(plant.New(plant.DefaultSpec()))(b)
	p.SetLimit(plant.LongTerm, 90*units.Watt)
	for b.Loop() {
		p.Step(20*time.Millisecond, 0.9)
	}
}
