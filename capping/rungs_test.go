// Claims: the best rung that works is used and the others are explained; CPU
// bandwidth is bounded only at the lowest frequency, never to nothing, and given
// back; insane samples never raise a limit, and never make it 0 W.
package capping_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/capping"
	"headroom/units"
)

func TestLadder(t *testing.T) {
	t.Parallel()
	rapl := func(s capping.RungState) capping.RungInfo {
		return capping.RungInfo{Rung: capping.RungRAPL, State: s, Text: "package-0"}
	}
	ready := func(r capping.Rung) capping.RungInfo { return capping.RungInfo{Rung: r, State: capping.RungReady} }
	for _, c := range []struct {
		name                string
		rungs               []capping.RungInfo
		use                 capping.Rung
		software, bandwidth bool
		why                 string
	}{
		{"everything", []capping.RungInfo{ready(capping.RungFreq), rapl(capping.RungReady)}, capping.RungRAPL, false, false, "package limits hold"},
		{"locked BIOS", []capping.RungInfo{rapl(capping.RungLocked), ready(capping.RungFreq)}, capping.RungFreq, true, false, "rapl is locked (package-0)"},
		{
			"AMD without limits",
			[]capping.RungInfo{ready(capping.RungFreq), ready(capping.RungBandwidth)},
			capping.RungFreq, true, true, "below the lowest frequency",
		},
		{"rival writer", []capping.RungInfo{rapl(capping.RungDrifting), ready(capping.RungFreq)}, capping.RungFreq, true, false, "another program"},
		{"virtual machine", nil, capping.RungNone, false, false, "nothing holds a cap"},
		{"bandwidth alone", []capping.RungInfo{ready(capping.RungBandwidth)}, capping.RungNone, false, false, "never the machine"},
	} {
		l := capping.Choose(c.rungs)
		if l.Use != c.use || l.Software != c.software || l.Bandwidth != c.bandwidth || !strings.Contains(l.Why, c.why) {
			t.Errorf("%s: %+v", c.name, l)
		}
		if len(l.Rungs) != 4 || l.Rungs[0].Rung != capping.RungRAPL || l.Rungs[3].Rung != capping.RungDCMI {
			t.Errorf("%s: rungs %+v", c.name, l.Rungs)
		}
	}
}

func TestBandwidthTakesWhatTheExcessCosts(t *testing.T) {
	t.Parallel()
	c := capping.BandwidthConfig{CPUs: 4, PerCPU: 5 * units.Watt}
	in := capping.BandwidthInput{Wall: known(80), Elapsed: period, Used: 3, UsedKnown: true}
	if s := capping.StepBandwidth(in, 70*units.Watt, capping.BandwidthState{}, c); s.Bounded {
		t.Errorf("bounded above the lowest frequency: %+v", s)
	}
	in.Lowest = true
	s := capping.StepBandwidth(in, 70*units.Watt, capping.BandwidthState{}, c)
	if !s.Bounded || s.CPUs != 1 {
		t.Fatalf("10 W over at 5 W a CPU leaves %+v of 3 CPUs, want 1", s)
	}
	in.Wall, in.Used = known(70.1), 1
	if next := capping.StepBandwidth(in, 70*units.Watt, s, c); next != s {
		t.Errorf("moved for next to nothing: %+v", next)
	}
	in.Wall = known(50)
	for range 200 {
		s = capping.StepBandwidth(in, 70*units.Watt, s, c)
	}
	if s.Bounded {
		t.Errorf("still bounded after 50 s with room: %+v", s)
	}
}

func TestBandwidthLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := capping.BandwidthConfig{
			CPUs: rapid.IntRange(0, 64).Draw(t, "cpus"), Least: rapid.Float64Range(0, 2).Draw(t, "least"),
			PerCPU: units.Power(rapid.Int64Range(0, 10_000_000).Draw(t, "per_cpu_uw")),
		}
		var s capping.BandwidthState
		for range rapid.IntRange(1, 50).Draw(t, "turns") {
			sample := drawInsane(t)
			in := capping.BandwidthInput{
				Wall: sample.Package, Elapsed: sample.Elapsed, Lowest: rapid.Bool().Draw(t, "lowest"),
				Used: rapid.Float64Range(-1, 100).Draw(t, "used"), UsedKnown: rapid.Bool().Draw(t, "used_known"),
			}
			before := s
			s = capping.StepBandwidth(in, units.Power(rapid.Int64Range(0, 300_000_000).Draw(t, "cap_uw")), s, c)
			if s.Bounded && (s.CPUs <= 0 || s.CPUs > float64(max(1, c.CPUs))) {
				t.Fatalf("bounded to %v of %d CPUs", s.CPUs, c.CPUs)
			}
			if !in.Wall.Known && s != before {
				t.Fatalf("moved from %+v to %+v on unknown power", before, s)
			}
		}
	})
}

// Lesson 2: first samples after an error, and counters that jump, gave 53 kW
// elsewhere. Whatever is sampled, the limit stays a limit and never rises on it.
func TestStepSurvivesInsaneSamples(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		var s capping.State
		now := time.Duration(0)
		for i := range rapid.IntRange(1, 60).Draw(t, "turns") {
			now += time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond
			in := drawInsane(t)
			before := s.Limit
			granted := units.Power(rapid.OneOf(rapid.Int64Range(0, 500_000_000), rapid.Just(int64(1)<<62)).Draw(t, "cap_uw"))
			var a capping.Actions
			a, s = capping.Step(now, in, granted, s, c)
			if a.Long <= 0 || a.Short <= 0 || a.Long%capping.Grain != 0 || a.Long > max(c.PackageMax, c.PackageMin, capping.Grain) {
				t.Fatalf("limits %d and %d uW", a.Long, a.Short)
			}
			insane := in.Package.Power < 0 || in.Package.Power > 200*units.Kilowatt
			if i > 0 && insane && a.Long > before {
				t.Fatalf("an insane sample raised the limit from %v to %v", before, a.Long)
			}
		}
	})
}

// Demand survives anything too: it is at most what the node can use.
func TestDemandSurvivesInsaneLooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var d capping.Demand
		var now time.Duration
		for range rapid.IntRange(1, 100).Draw(t, "looks") {
			now = time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "now"))
			in := drawInsane(t)
			d.Observe(now, capping.Look{
				Wall: in.Package, Limited: rapid.Bool().Draw(t, "limited"), Busy: rapid.Float64Range(-5, 5).Draw(t, "busy"),
				BusyKnown: rapid.Bool().Draw(t, "busy_known"), Elapsed: in.Elapsed,
			})
		}
		if p, ok := d.Watts(now, 70*units.Watt, 220*units.Watt); ok && (p < 0 || p > 220*units.Watt) {
			t.Fatalf("demand %v", p)
		}
	})
}

// FuzzLaws: no input makes any law panic, write nothing or leave its bounds.
func FuzzLaws(f *testing.F) {
	f.Add(int64(100_000_000), int64(10_000_000), int64(period), int64(150_000_000), int64(160_000_000), int64(3), true)
	f.Add(int64(-1), int64(1)<<62, int64(-1), int64(0), int64(4294967295000000), int64(-5), false)
	f.Fuzz(func(t *testing.T, pkg, dram, elapsed, granted, wall, serial int64, isKnown bool) {
		c := capping.Config{Other: 22 * units.Watt, Efficiency: 0.92, PackageMin: 5 * units.Watt, PackageMax: 185 * units.Watt, HasDRAM: true}
		in := capping.Sample{
			Package: capping.Reading{Power: units.Power(pkg), Known: isKnown}, DRAM: capping.Reading{Power: units.Power(dram), Known: true},
			Elapsed: time.Duration(elapsed),
		}
		l := capping.NewLearner(c)
		fc := capping.FreqConfig{Config: c, Min: 800 * units.Megahertz, Max: 3400 * units.Megahertz, Rated: 241 * units.Watt, Floor: 69 * units.Watt}
		var s capping.State
		var fs capping.FreqState
		var sprint capping.Sprint
		for i := range 8 {
			now := time.Duration(i) * period
			l.Observe(now, in)
			l.Learn(now, capping.WallReading{Power: units.Power(wall), Known: isKnown, Serial: uint64(serial) + uint64(i), ChangedAt: now})
			var a capping.Actions
			if a, s = capping.Step(now, in, units.Power(granted), s, l.Config()); a.Long <= 0 || a.Long > c.PackageMax || a.Short <= 0 {
				t.Fatalf("limits %d and %d uW", a.Long, a.Short)
			}
			var fa capping.FreqActions
			fa, fs = capping.StepFreq(capping.FreqSample{Sample: in, Busy: float64(wall), BusyKnown: isKnown}, units.Power(granted), fs, fc)
			if fa.Low < fc.Min || fa.High > fc.Max || fa.Charge <= 0 {
				t.Fatalf("frequencies %+v", fa)
			}
			sprint.Step(now, capping.SprintInput{
				Base: units.Power(granted), Held: isKnown, Wall: in.Package, Elapsed: in.Elapsed, Effective: in.DRAM,
				Offer: capping.SprintOffer{ID: "x", Cap: units.Power(wall), Duration: time.Duration(elapsed), Escrow: units.Energy(dram)},
			}, capping.SprintConfig{Rated: units.Power(pkg)})
			for _, e := range sprint.Ended() {
				if e.Spent < 0 {
					t.Fatalf("spent %v", e.Spent)
				}
			}
		}
	})
}

// drawInsane draws samples that may be anything.
func drawInsane(t *rapid.T) capping.Sample {
	power := rapid.OneOf(rapid.Int64Range(0, 300_000_000), rapid.SampledFrom([]int64{-1, math.MinInt64, math.MaxInt64, 1 << 40}))
	return capping.Sample{
		Package: capping.Reading{Power: units.Power(power.Draw(t, "package_uw")), Known: rapid.Bool().Draw(t, "package_known")},
		DRAM:    capping.Reading{Power: units.Power(power.Draw(t, "dram_uw")), Known: rapid.Bool().Draw(t, "dram_known")},
		Elapsed: time.Duration(rapid.SampledFrom([]int64{0, int64(period), -1, int64(time.Hour), math.MaxInt64}).Draw(t, "elapsed_ns")),
	}
}
