// Claims: a control is credited with what it can take away and with nothing more: a range of
// one frequency, the part of a hybrid processor without a range, a package that takes no
// lower limit and slices at their floor take nothing away; and what a setting was charged
// lately stays charged while power still follows it.
package capping_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"headroom/capping"
	"headroom/units"
)

// fullLoad is what a machine draws at the wall while each kind of CPU runs at most at the
// frequency, as far as its range goes: power falls with the 2.4th power of the clock.
func fullLoad(kinds []capping.FreqRange, idle, dynamic float64, c capping.Config, f units.Freq) float64 {
	var now, full float64
	for _, k := range kinds {
		now += float64(k.CPUs) * math.Pow(float64(max(k.Min, min(f, k.Max))), 2.4)
		full += float64(k.CPUs) * math.Pow(float64(k.Max), 2.4)
	}
	return (idle + dynamic*now/full + c.Other.Watts()) / c.Efficiency
}

func TestCreditNeverExceedsTravel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		idle, dynamic := rapid.Float64Range(40, 100).Draw(t, "idle_w"), rapid.Float64Range(50, 300).Draw(t, "dynamic_w")
		c := capping.FreqConfig{Config: capping.Config{Other: 20 * units.Watt, Efficiency: 0.9}, Max: 0, Min: math.MaxInt64, Policies: 4, Strict: true}
		var able []capping.FreqRange
		for range rapid.IntRange(2, 4).Draw(t, "kinds") {
			k := capping.FreqRange{Min: units.Freq(rapid.Int64Range(400, 1500).Draw(t, "min_mhz")) * units.Megahertz, CPUs: rapid.IntRange(1, 16).Draw(t, "cpus")}
			if k.Max = k.Min; rapid.Bool().Draw(t, "has a range") {
				k.Max += units.Freq(rapid.Int64Range(500, 3500).Draw(t, "above_mhz")) * units.Megahertz
				able = append(able, k)
			}
			c.Ranges, c.Min, c.Max = append(c.Ranges, k), min(c.Min, k.Min), max(c.Max, k.Max)
		}
		if c.Travels() != (len(able) > 0) {
			t.Fatalf("travels %v with %d kinds that have a range", c.Travels(), len(able))
		}
		// What an operator states as the floor: all of the machine at the lowest end of what has a range.
		c.Rated = units.FromWatts(fullLoad(c.Ranges, idle, dynamic, c.Config, c.Max))
		c.Floor = c.Rated
		if len(able) > 0 {
			c.Floor = units.FromWatts(fullLoad(able, idle, dynamic, c.Config, c.Min))
		}
		granted := units.Power(rapid.Int64Range(1_000_000, 500_000_000).Draw(t, "cap_uw"))
		a, s := capping.StepFreq(capping.FreqSample{}, granted, capping.FreqState{}, c)
		draws := fullLoad(c.Ranges, idle, dynamic, c.Config, a.High)
		if a.Charge.Watts() < draws*(1-1e-6) || c.Charge(a.High, s).Watts() < draws*(1-1e-6) {
			t.Fatalf("charged %v at %v, full load draws %.1f W", a.Charge, a.High, draws)
		}
		if least := fullLoad(c.Ranges, idle, dynamic, c.Config, c.Min); c.Least().Watts() < least*(1-1e-6) || a.Charge < c.Least() {
			t.Fatalf("least %v and charge %v, all at their lowest draw %.1f W", c.Least(), a.Charge, least)
		}
		if a.Charge > granted && a.Rail != capping.AtFloor {
			t.Fatalf("charged %v under a cap of %v, rail %v", a.Charge, granted, a.Rail)
		}
	})
}

func TestFrequenciesWithoutTravel(t *testing.T) {
	t.Parallel()
	c := capping.FreqConfig{Config: capping.Config{Efficiency: 1}, Rated: 400 * units.Watt, Floor: 100 * units.Watt, Max: 2300 * units.Megahertz, Policies: 4}
	for least, low := range map[units.Power]units.Freq{ // power falls with the cube of the clock at most
		399_999_999: 2300 * units.Megahertz, 390_000_000: 2290 * units.Megahertz, 100_000_000: 400 * units.Megahertz,
	} {
		c.Min = low
		if c.Least() < least || c.Travels() != (low < c.Max) {
			t.Errorf("from %v: least %v, travels %v", low, c.Least(), c.Travels())
		}
	}
	// Two processors of different fixed clocks are fixed too.
	c.Ranges = []capping.FreqRange{{Min: 2 * units.Gigahertz, Max: 2 * units.Gigahertz, CPUs: 4}, {Min: 3 * units.Gigahertz, Max: 3 * units.Gigahertz, CPUs: 4}}
	c.Min, c.Max = 2*units.Gigahertz, 3*units.Gigahertz
	if c.Travels() || c.Least() < 399_999_999 {
		t.Errorf("travels %v, least %v", c.Travels(), c.Least())
	}
}

func TestFixedRungIsPassed(t *testing.T) {
	t.Parallel()
	fixed := func(r capping.Rung) capping.RungInfo {
		return capping.RungInfo{Rung: r, State: capping.RungFixed, Text: "one value"}
	}
	partly := capping.RungInfo{Rung: capping.RungFreq, State: capping.RungReady, Text: "8 of 16 CPUs have one frequency only"}
	for _, c := range []struct {
		rungs []capping.RungInfo
		use   capping.Rung
		why   string
	}{
		{[]capping.RungInfo{fixed(capping.RungFreq)}, capping.RungNone, "cpufreq is fixed (one value)"},
		{[]capping.RungInfo{fixed(capping.RungRAPL), partly}, capping.RungFreq, "frequency holds the cap (8 of 16 CPUs have one frequency only), since rapl is fixed (one value)"},
		{[]capping.RungInfo{partly, fixed(capping.RungBandwidth)}, capping.RungFreq, "the CPU bandwidth of slices takes nothing more away"},
	} {
		l := capping.Choose(c.rungs)
		if l.Use != c.use || !strings.Contains(l.Why, c.why) || l.Bandwidth {
			t.Errorf("%+v, want %v and %q", l, c.use, c.why)
		}
	}
	if capping.RungFixed.String() != "fixed" || capping.RungReady.String() != "ready" || capping.RungUsed.String() != "used" {
		t.Error("names of states moved")
	}
}

// A zone that goes no lower than its minimum is charged for the minimum, and both limits stay at it.
func TestPackagesAtTheirLeastAreCharged(t *testing.T) {
	t.Parallel()
	c := capping.Config{Other: 20 * units.Watt, Efficiency: 0.9, PackageMin: 10 * units.Watt, PackageLeast: 100 * units.Watt, PackageMax: 200 * units.Watt}
	sample := capping.Sample{Package: known(100), Elapsed: period}
	a, s := capping.Step(0, sample, 100*units.Watt, capping.State{}, c)
	if want := c.Wall(100*units.Watt, 0) - 100*units.Watt; a.Long != 100*units.Watt || a.Short < a.Long || a.Excess != want || a.Rail != capping.AtFloor {
		t.Errorf("%+v, want an excess of %v", a, want)
	}
	if a, _ = capping.Step(period, sample, 180*units.Watt, s, c); a.Excess != 0 || a.Long <= 100*units.Watt {
		t.Errorf("with room above the minimum: %+v", a)
	}
}

func TestSharesKeepMinimums(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sockets := make([]capping.Socket, rapid.IntRange(1, 8).Draw(t, "sockets"))
		least := units.Power(0)
		for i := range sockets {
			sockets[i] = capping.Socket{
				Power: drawReading(t, "power", 300), Limit: units.Power(rapid.Int64Range(0, 300_000_000).Draw(t, "limit_uw")),
				Min: units.Power(rapid.SampledFrom([]int64{0, 30_000_001, 100_000_000}).Draw(t, "min_uw")),
			}
			least += (sockets[i].Min + capping.Grain - 1) / capping.Grain * capping.Grain
		}
		total := least + units.Power(rapid.Int64Range(8_000_000, 1_000_000_000).Draw(t, "above_uw"))
		var sum units.Power
		for i, p := range capping.Share(total, sockets) {
			if p < sockets[i].Min {
				t.Fatalf("socket %d gets %v, its minimum is %v", i, p, sockets[i].Min)
			}
			sum += p
		}
		if sum > total {
			t.Fatalf("shares sum to %v of %v", sum, total)
		}
	})
}

func TestSlicesAtTheirFloor(t *testing.T) {
	t.Parallel()
	c := capping.BandwidthConfig{CPUs: 4, PerCPU: 5 * units.Watt}
	in := capping.BandwidthInput{Wall: known(80), Elapsed: period, Lowest: true, Used: 3, UsedKnown: true}
	s := capping.StepBandwidth(in, 70*units.Watt, capping.BandwidthState{}, c)
	if s.AtFloor(c) || (capping.BandwidthState{}).AtFloor(c) {
		t.Errorf("%+v is not the floor", s)
	}
	in.Wall = known(200)
	if s = capping.StepBandwidth(in, 70*units.Watt, s, c); !s.AtFloor(c) {
		t.Errorf("%+v has no floor", s)
	}
}

// Power follows a lower frequency late, and a sample is a mean over both: what full load drew
// under the setting before stays charged until samples are of the new one only.
func TestChargeCoversTheSettingsOfLate(t *testing.T) {
	t.Parallel()
	c := capping.FreqConfig{
		Config: capping.Config{Other: 22 * units.Watt, Efficiency: 0.92}, Min: 800 * units.Megahertz, Max: 3400 * units.Megahertz,
		Policies: 4, Rated: 241 * units.Watt, Floor: 69 * units.Watt, Strict: true,
	}
	in := capping.FreqSample{Sample: capping.Sample{Package: known(60), Elapsed: period}, Busy: 0.3, BusyKnown: true}
	var s capping.FreqState
	var a capping.FreqActions
	for range 40 {
		a, s = capping.StepFreq(in, 220*units.Watt, s, c)
	}
	before := a.Charge
	if before < 200*units.Watt {
		t.Fatalf("charged %v under a cap of 220 W", before)
	}
	for i := range 6 {
		a, s = capping.StepFreq(in, 100*units.Watt, s, c)
		switch {
		case i < 3 && a.Charge != before:
			t.Errorf("%d turns after the cut %v is charged, full load drew %v", i+1, a.Charge, before)
		case i > 3 && a.Charge > 100*units.Watt:
			t.Errorf("%d turns after the cut %v is still charged", i+1, a.Charge)
		}
	}
}
