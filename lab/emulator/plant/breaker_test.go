// Claims: a breaker opens within the times of IEC 60898-1, never at or below its rating;
// more load never leaves more margin; it remembers heat and cools; once open it stays open.
package plant_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

const breakerRating = 1000 * units.Watt

func breaker(t rapid.TB, class plant.Class) *plant.Breaker {
	b := &plant.Breaker{}
	testkit.Check(t, b.Rate(breakerRating, class))
	return b
}

func times(ratio float64) units.Power { return units.FromWatts(ratio * breakerRating.Watts()) }

// opensAfter is how long a breaker carries a load, at most two hours.
func opensAfter(b *plant.Breaker, ratio float64) time.Duration {
	const step = 50 * time.Millisecond
	for at := step; at <= 2*time.Hour; at += step {
		if b.Step(times(ratio), step) {
			return at
		}
	}
	return math.MaxInt64
}

// The tests a, b and c of table 7, and the magnet's two.
func TestBreakerIEC60898Table7(t *testing.T) {
	t.Parallel()
	b := breaker(t, plant.ClassC)
	if b.Step(times(1.13), time.Hour) {
		t.Error("it opened within the hour at 1.13 times")
	}
	if got := opensAfter(b, 1.45); got >= time.Hour {
		t.Errorf("warm, at 1.45 times it opened after %v", got)
	}
	if got := opensAfter(breaker(t, plant.ClassC), 2.55); got <= time.Second || got >= time.Minute {
		t.Errorf("cold, at 2.55 times it opened after %v", got)
	}
	for class, magnet := range map[plant.Class][2]float64{plant.ClassB: {3, 5}, plant.ClassC: {5, 10}, plant.ClassD: {10, 20}} {
		if breaker(t, class).Step(times(magnet[0]), 100*time.Millisecond) {
			t.Errorf("class %c opened at once at %v times", class, magnet[0])
		}
		if !breaker(t, class).Step(times(magnet[1]), time.Millisecond) {
			t.Errorf("class %c did not open at once at %v times", class, magnet[1])
		}
	}
}

// load is a row of loads, each for a while.
type load struct {
	ratio float64
	span  time.Duration
}

func drawLoads(t *rapid.T, most float64) []load {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) load {
		return load{rapid.Float64Range(0, most).Draw(t, "ratio"), time.Duration(rapid.Int64Range(1, int64(10*time.Minute)).Draw(t, "span"))}
	}), 1, 30).Draw(t, "loads")
}

func TestBreakerCarriesItsRatingForEver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := breaker(t, plant.ClassB)
		for _, l := range drawLoads(t, 1) {
			if b.Step(times(l.ratio), l.span*1000) || b.Margin() <= 0 {
				t.Fatalf("opened at %v times its rating", l.ratio)
			}
		}
	})
}

func TestBreakerIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		less, more := breaker(t, plant.ClassC), breaker(t, plant.ClassC)
		by := rapid.Float64Range(1, 2).Draw(t, "by")
		for _, l := range drawLoads(t, 6) {
			less.Step(times(l.ratio), l.span)
			more.Step(times(l.ratio*by), l.span)
			if more.Margin() > less.Margin() || less.Tripped() && !more.Tripped() {
				t.Fatalf("margin %v under %v times the load that leaves %v", more.Margin(), by, less.Margin())
			}
		}
	})
}

// One step and many small ones come to the same, as long as it does not open.
func TestBreakerStepsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole, parts := breaker(t, plant.ClassC), breaker(t, plant.ClassC)
		for _, l := range drawLoads(t, 1.19) {
			whole.Step(times(l.ratio), l.span/7*7)
			for range 7 {
				parts.Step(times(l.ratio), l.span/7)
			}
		}
		if math.Abs(whole.Margin()-parts.Margin()) > 1e-9 {
			t.Fatalf("margin %v in one step, %v in seven", whole.Margin(), parts.Margin())
		}
	})
}

func TestBreakerCoolsAndStaysOpen(t *testing.T) {
	t.Parallel()
	b := breaker(t, plant.ClassC)
	b.Step(times(2), 30*time.Second)
	warm := b.Margin()
	b.Step(0, time.Minute)
	if warm >= 1 || b.Margin() <= warm || b.Margin() >= 1 || b.Hottest() != 1-warm {
		t.Errorf("margin %v, after a minute without load %v, hottest %v", warm, b.Margin(), b.Hottest())
	}
	b.Step(0, time.Hour)
	if b.Margin() < 0.999 {
		t.Errorf("margin %v after an hour without load", b.Margin())
	}
	b.Step(times(100), time.Millisecond)
	if !b.Step(0, time.Hour) || b.Margin() != 0 {
		t.Error("it closed by itself")
	}
}

// A refused rating changes nothing.
func TestBreakerRefuses(t *testing.T) {
	t.Parallel()
	b := breaker(t, plant.ClassC)
	for _, err := range []error{b.Rate(0, plant.ClassC), b.Rate(-units.Watt, plant.ClassB), b.Rate(units.Watt, 'Z')} {
		if !errors.Is(err, plant.ErrSpec) {
			t.Errorf("error %v", err)
		}
	}
	if b.Step(times(1), time.Hour) {
		t.Error("a refused rating is in force")
	}
}
