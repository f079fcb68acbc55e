// Claims: a limit is a multiple of 1/8 W, never 0, never above what the packages
// take; a sample that is not known never raises it; a higher cap never gives a
// lower first limit; the correction stays within its bounds; sockets share all
// that there is and no more; a capped node's demand is not what it draws.
package capping_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/capping"
	"headroom/units"
)

func drawConfig(t *rapid.T) capping.Config {
	return capping.Config{
		Other:      units.Power(rapid.Int64Range(0, 60_000_000).Draw(t, "other_uw")),
		Efficiency: rapid.Float64Range(0.7, 1).Draw(t, "efficiency"),
		PackageMin: units.Power(rapid.Int64Range(0, 40_000_000).Draw(t, "min_uw")),
		PackageMax: units.Power(rapid.Int64Range(50_000_000, 400_000_000).Draw(t, "max_uw")),
		HasDRAM:    rapid.Bool().Draw(t, "has_dram"),
	}
}

func drawReading(t *rapid.T, name string, most float64) capping.Reading {
	return capping.Reading{
		Power: units.FromWatts(rapid.Float64Range(0, most).Draw(t, name)),
		Known: rapid.Bool().Draw(t, name+"_known"),
	}
}

// Lesson 6: whatever cap is granted, no limit is 0, none above what the packages take.
func TestStepLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		var s capping.State
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond
			in := capping.Sample{
				Package: drawReading(t, "package", 500), DRAM: drawReading(t, "dram", 80),
				Elapsed: time.Duration(rapid.IntRange(0, 2000).Draw(t, "elapsed_ms")) * time.Millisecond,
			}
			granted := units.Power(rapid.Int64Range(1, 600_000_000).Draw(t, "cap_uw"))
			before := s.Limit
			var a capping.Actions
			a, s = capping.Step(now, in, granted, s, c)
			if a.Long%capping.Grain != 0 || a.Short%capping.Grain != 0 || a.Long <= 0 || a.Short <= 0 {
				t.Fatalf("limits %d and %d uW are no multiples of 1/8 W above 0", a.Long, a.Short)
			}
			if a.Long > max(c.PackageMax, c.PackageMin, capping.Grain) {
				t.Fatalf("limit %v above the highest %v", a.Long, c.PackageMax)
			}
			known := in.Package.Known && (in.DRAM.Known || !c.HasDRAM)
			if before > 0 && !known && a.Long > before {
				t.Fatalf("an unknown sample raised the limit from %v to %v", before, a.Long)
			}
		}
	})
}

func TestHigherCapNeverLowerLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		low := units.Power(rapid.Int64Range(1, 500_000_000).Draw(t, "cap_uw"))
		high := low + units.Power(rapid.Int64Range(0, 100_000_000).Draw(t, "more_uw"))
		in := capping.Sample{Package: drawReading(t, "package", 300), DRAM: drawReading(t, "dram", 40)}
		a, _ := capping.Step(time.Second, in, low, capping.State{}, c)
		b, _ := capping.Step(time.Second, in, high, capping.State{}, c)
		// Memory may be foreseen to grow by half, so that much less is left over.
		if b.Long+20*units.Watt < a.Long || (!c.HasDRAM && b.Long < a.Long) {
			t.Fatalf("cap %v gives %v, cap %v gives %v", low, a.Long, high, b.Long)
		}
	})
}

// A cap raised while nothing is known waits, and is a full step once it is known.
func TestRaiseWaitsForASample(t *testing.T) {
	t.Parallel()
	c := capping.Config{Other: 22 * units.Watt, Efficiency: 0.92, PackageMax: 200 * units.Watt}
	first, s := capping.Step(0, capping.Sample{}, 95*units.Watt, capping.State{}, c)
	held, s := capping.Step(time.Second, capping.Sample{}, 190*units.Watt, s, c)
	if held.Long != first.Long {
		t.Fatalf("raised from %v to %v on an unknown sample", first.Long, held.Long)
	}
	raised, _ := capping.Step(2*time.Second, capping.Sample{Package: known(60), Elapsed: period}, 190*units.Watt, s, c)
	if want := units.FromWatts(190*0.92 - 22); raised.Long > want || raised.Long < want-units.Watt {
		t.Errorf("limit %v after the first known sample, want the model's %v at once", raised.Long, want)
	}
}

// Lesson 17: a node that idles for long does not wind up: when load comes, the limit
// still is what the model says.
func TestNoWindUpWhileIdle(t *testing.T) {
	t.Parallel()
	c := capping.Config{Other: 22 * units.Watt, Efficiency: 0.92, PackageMax: 400 * units.Watt}
	var s capping.State
	var a capping.Actions
	for i := range 4000 {
		a, s = capping.Step(time.Duration(i)*period, capping.Sample{Package: known(30), Elapsed: period}, 190*units.Watt, s, c)
	}
	if want := units.FromWatts(190*0.92 - 22); a.Long > want {
		t.Errorf("limit %v after idling, want at most the model's %v", a.Long, want)
	}
}

func TestRailsAreNamed(t *testing.T) {
	t.Parallel()
	c := capping.Config{Other: 22 * units.Watt, Efficiency: 0.92, PackageMin: 20 * units.Watt, PackageMax: 150 * units.Watt}
	for _, x := range []struct {
		cap  units.Power
		rail capping.Rail
		long units.Power
	}{
		{10 * units.Watt, capping.AtFloor, 20 * units.Watt},
		{100 * units.Watt, capping.Free, 70 * units.Watt},
		{300 * units.Watt, capping.AtTop, 150 * units.Watt},
	} {
		a, _ := capping.Step(0, capping.Sample{}, x.cap, capping.State{}, c)
		if a.Rail != x.rail || a.Long != x.long {
			t.Errorf("cap %v: limit %v at rail %v, want %v at %v", x.cap, a.Long, a.Rail, x.long, x.rail)
		}
	}
}

func TestShareLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := units.Power(rapid.Int64Range(4_000_000, 2_000_000_000).Draw(t, "total_uw"))
		sockets := make([]capping.Socket, rapid.IntRange(1, 8).Draw(t, "sockets"))
		for i := range sockets {
			sockets[i] = capping.Socket{
				Power: drawReading(t, "power", 300),
				Limit: units.Power(rapid.Int64Range(0, 300_000_000).Draw(t, "limit_uw")),
				Max:   units.Power(rapid.SampledFrom([]int64{0, 50_000_000, 200_000_000}).Draw(t, "max_uw")),
			}
		}
		var sum units.Power
		for i, p := range capping.Share(total, sockets) {
			if p <= 0 || p%capping.Grain != 0 || (sockets[i].Max > 0 && p > sockets[i].Max) {
				t.Fatalf("socket %d gets %d uW of at most %v", i, p, sockets[i].Max)
			}
			sum += p
		}
		if sum > total {
			t.Fatalf("shares sum to %v of %v", sum, total)
		}
	})
}

// Lesson 16: equal shares leave watts where nobody uses them.
func TestBusySocketGetsTheIdleOnesWatts(t *testing.T) {
	t.Parallel()
	parts := capping.Share(200*units.Watt, []capping.Socket{
		{Power: known(98), Limit: 100 * units.Watt}, {Power: known(20), Limit: 100 * units.Watt},
	})
	if parts[0] < 140*units.Watt || parts[1] < 40*units.Watt {
		t.Errorf("busy %v, idle %v; want most for the busy one and enough to start for the other", parts[0], parts[1])
	}
}

func TestDemand(t *testing.T) {
	t.Parallel()
	const idle, most = 70 * units.Watt, 220 * units.Watt
	for _, c := range []struct {
		name    string
		looks   int
		limited func(i int) bool
		wall    float64
		busy    float64
		known   bool
		want    units.Power
	}{
		{"unlimited says its peak and a tenth", 40, func(int) bool { return false }, 100, 0.3, true, 110 * units.Watt},
		{"seldom limited is unlimited", 200, func(i int) bool { return i%40 == 0 }, 100, 0.9, true, 110 * units.Watt},
		{"limited says what full speed needs", 40, func(int) bool { return true }, 100, 0.8, true, 190 * units.Watt},
		{"limited and load unknown needs the most", 40, func(int) bool { return true }, 100, 0, false, most},
		{"never more than the most", 40, func(int) bool { return false }, 215, 1, true, most},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d capping.Demand
			var now time.Duration
			for i := range c.looks {
				now = time.Duration(i) * period
				d.Observe(now, capping.Look{Wall: known(c.wall), Limited: c.limited(i), Busy: c.busy, BusyKnown: c.known, Elapsed: period})
			}
			got, ok := d.Watts(now, idle, most)
			if !ok || got != c.want {
				t.Errorf("demand %v (%v), want %v", got, ok, c.want)
			}
		})
	}
	if _, ok := (&capping.Demand{}).Watts(0, idle, most); ok {
		t.Error("a node never looked at has a demand")
	}
}

// Lesson 17: the demand of a capped, fully loaded node does not shrink with its cap:
// the ratchet that measured power alone would start.
func TestDemandOfACappedNodeDoesNotFollowItsCap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var d capping.Demand
		var now time.Duration
		for range rapid.IntRange(4, 300).Draw(t, "looks") {
			now += period
			wall := rapid.Float64Range(75, 150).Draw(t, "wall_w")
			d.Observe(now, capping.Look{Wall: known(wall), Limited: true, Busy: 1, BusyKnown: true, Elapsed: period})
		}
		if got, _ := d.Watts(now, 70*units.Watt, 220*units.Watt); got < 219*units.Watt {
			t.Fatalf("demand %v of a fully loaded node, want 220 W", got)
		}
	})
}
