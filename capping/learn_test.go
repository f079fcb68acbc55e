// Claims: a reading that is not sane and fresh never teaches; one that stands still does.
package capping_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/capping"
	"headroom/units"
)

// period is the period of the node's loop.
const period = 250 * time.Millisecond

func known(watts float64) capping.Reading {
	return capping.Reading{Power: units.FromWatts(watts), Known: true}
}

// Lesson 11: a BMC answers 0, sentinels, values 1000 times too large, and dates of
// 1970. None of them teaches anything, whatever comes in which order; and no
// sequence of sane ones moves the model out of its bounds.
func TestInsaneReadingsNeverTeach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := capping.NewLearner(capping.Config{Other: 20 * units.Watt, Efficiency: 0.9, HasDRAM: true})
		now, serial := time.Duration(0), uint64(0)
		for range rapid.IntRange(1, 120).Draw(t, "turns") {
			now += time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond
			l.Observe(now, capping.Sample{Package: drawReading(t, "package", 300), DRAM: drawReading(t, "dram", 40), Elapsed: period})
			before := l.Model()
			insane := rapid.Bool().Draw(t, "insane")
			serial++
			w := capping.WallReading{Power: units.FromWatts(rapid.Float64Range(30, 600).Draw(t, "wall_w")), Known: true, Serial: serial, ChangedAt: now}
			if insane {
				w.Power = units.Power(rapid.SampledFrom([]int64{
					0, -1, math.MinInt64, math.MaxInt64, 4294967295000 * 1000, 3 * int64(units.Kilowatt),
				}).Draw(t, "insane_uw"))
			}
			if taught := l.Learn(now, w); insane && (taught || l.Model() != before) {
				t.Fatalf("%d uW taught: %+v", int64(w.Power), l.Model())
			}
			if l.Learn(now, w) {
				t.Fatal("the same reading taught twice")
			}
			m := l.Config()
			if !(m.Efficiency > 0.3 && m.Efficiency < 1.2) || math.IsNaN(l.Margin()) || l.Margin() < 0 || l.Margin() > 0.031 {
				t.Fatalf("model %+v, margin %v", m, l.Margin())
			}
		}
	})
}

// A BMC whose value stood still from before the first sample teaches all the same:
// under steady load it may not change for minutes.
func TestStandingValueTeaches(t *testing.T) {
	t.Parallel()
	l := capping.NewLearner(capping.Config{Other: 45 * units.Watt, Efficiency: 0.9})
	wall := capping.WallReading{Power: 123 * units.Watt, Known: true, Serial: 1, ChangedAt: 100 * time.Second}
	in := capping.Sample{Package: capping.Reading{Power: 51 * units.Watt, Known: true}, Elapsed: 250 * time.Millisecond}
	taught := false
	for now := wall.ChangedAt; now < wall.ChangedAt+10*time.Second; now += in.Elapsed {
		wall.AskedAt = now
		taught = l.Learn(now, wall) || taught // the first sight comes before any sample
		l.Observe(now, in)
	}
	if !taught {
		t.Fatal("nothing was learned in ten seconds")
	}
	if got := l.Model().Wall(51*units.Watt, 0); got < 121*units.Watt || got > 125*units.Watt {
		t.Errorf("the model says %v at the wall, the BMC 123 W", got)
	}
	if age, ok := l.Age(wall.ChangedAt + 10*time.Second); !ok || age > 10*time.Second {
		t.Errorf("age %v, %v", age, ok)
	}
}
