// Claims: a job that is slower and longer by a factor ends later by that factor; the
// order of equal samples does not matter; a constant past is carried on; more watts
// or containers never make an estimate later; nothing that can be observed gives a
// rate or a time that is negative, infinite or not a number.
package progress

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/units"
)

func samples(t *rapid.T, least int) []Sample {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sample {
		return Sample{
			Rate:       rapid.Float64Range(0.2, 50).Draw(t, "rate"),
			Power:      units.Power(rapid.IntRange(100, 400).Draw(t, "power")) * units.Watt,
			Containers: float64(rapid.IntRange(1, 40).Draw(t, "containers")),
			Interval:   5 * time.Second,
		}
	}), least, 8).Draw(t, "samples")
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

// every is the rate by each policy, NaN where unknown.
func every(h []Sample, p units.Power, c float64) map[Policy]float64 {
	out := map[Policy]float64{}
	put := func(policy Policy, rate float64, known bool) {
		if !known {
			rate = math.NaN()
		}
		out[policy] = rate
	}
	rate, known := Filter(h, p, c)
	put(Paper, rate, known)
	rate, known = FilterReleased(h, p)
	put(Released, rate, known)
	rate, _, _, known = Learn(h, DefaultPrior()).Rate(p, c)
	put(Learned, rate, known)
	return out
}

func TestScale(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := samples(t, 1)
		slower, more := make([]Sample, len(h)), make([]Sample, len(h))
		for i, s := range h {
			slower[i], more[i] = s, s
			slower[i].Rate /= 2
			slower[i].Interval *= 2
			more[i].Rate *= 4
		}
		plain := every(h, 175*units.Watt, 9)
		for p, rate := range every(slower, 175*units.Watt, 9) {
			if !near(2*rate, plain[p]) {
				t.Errorf("%s: twice the time gives %g tasks/s, not half of %g", p, rate, plain[p])
			}
		}
		for p, rate := range every(more, 175*units.Watt, 9) {
			// More tasks are more evidence for Learned.
			if p != Learned && !near(rate, 4*plain[p]) {
				t.Errorf("%s: four times the tasks give %g tasks/s, not 4 x %g", p, rate, plain[p])
			}
		}
	})
}

func TestOrderOfSamples(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := samples(t, 2)
		for i := range h { // a past that can be true: more of either was never slower
			h[i].Rate = rapid.Float64Range(0.9, 1.1).Draw(t, "noise") * h[i].Containers * h[i].Power.Watts() / 200
		}
		shuffled := rapid.Permutation(h).Draw(t, "shuffled")
		a, b := every(h, 200*units.Watt, 7), every(shuffled, 200*units.Watt, 7)
		for _, p := range Policies() {
			// The samples last alike and each holds a task, so Learned, too, weighs them alike.
			if math.Abs(a[p]-b[p]) > 1e-6*a[p] {
				t.Errorf("%s: %g and %g tasks/s", p, a[p], b[p])
			}
		}
	})
}

func TestConstantPast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := samples(t, 1)[0]
		h := make([]Sample, rapid.IntRange(1, 30).Draw(t, "n"))
		for i := range h {
			h[i] = s
		}
		for p, rate := range every(h, s.Power, s.Containers) {
			if math.Abs(rate-s.Rate) > 1e-9*s.Rate {
				t.Errorf("%s: %g tasks/s after a constant past of %g", p, rate, s.Rate)
			}
		}
	})
}

func TestRateIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := samples(t, 1)
		p := units.Power(rapid.IntRange(50, 500).Draw(t, "p")) * units.Watt
		c := rapid.Float64Range(0.5, 60).Draw(t, "c")
		dp := units.Power(rapid.IntRange(0, 300).Draw(t, "dp")) * units.Watt
		dc := rapid.Float64Range(0, 20).Draw(t, "dc")
		plain := every(h, p, c)
		for policy, rate := range every(h, p+dp, c+dc) {
			if rate < plain[policy]*(1-1e-12) {
				t.Errorf("%s: %g tasks/s at %v with %g, only %g at %v with %g", policy, plain[policy], p, c, rate, p+dp, c+dc)
			}
		}
	})
}

// odd are numbers that break careless arithmetic.
func odd(t *rapid.T, name string) float64 {
	return rapid.OneOf(
		rapid.SampledFrom([]float64{0, -1, 1, 5, 100, 1e300, 1e-300, math.NaN(), math.Inf(1), math.Inf(-1)}),
		rapid.Float64Range(0, 100), rapid.Float64()).Draw(t, name)
}

func TestOddSamplesGiveSaneRates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sample {
			return Sample{
				Rate: odd(t, "rate"), Power: units.Power(rapid.Int64().Draw(t, "power")), Containers: odd(t, "containers"),
				Interval: time.Duration(rapid.Int64().Draw(t, "interval")),
			}
		}), 0, 8).Draw(t, "samples")
		for p, rate := range every(h, units.Power(rapid.Int64().Draw(t, "power")), odd(t, "c")) {
			if rate < 0 || math.IsInf(rate, 0) {
				t.Errorf("%s: %g tasks/s", p, rate)
			}
		}
	})
}

func observation(t *rapid.T) Observation {
	o := Observation{
		Elapsed: time.Duration(rapid.IntRange(0, 500).Draw(t, "elapsed")) * time.Second,
		Tasks:   rapid.IntRange(0, 300).Draw(t, "tasks"), Done: rapid.IntRange(0, 300).Draw(t, "done"),
		Work: odd(t, "work"), Reduced: odd(t, "reduced"), Containers: odd(t, "containers"),
		Phase: Phase(rapid.IntRange(0, 4).Draw(t, "phase")),
		Power: units.Power(rapid.IntRange(0, 400).Draw(t, "power")) * units.Watt, Full: units.Power(rapid.IntRange(0, 400).Draw(t, "full")) * units.Watt,
	}
	if rapid.Bool().Draw(t, "plain") {
		o.Done, o.Containers = min(o.Done, o.Tasks), float64(rapid.IntRange(0, 30).Draw(t, "whole"))
		o.Work, o.Reduced = -1, -1
	}
	return o
}

func TestOddObservationsGiveSaneTimes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tr := NewTracker(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			err := tr.Observe(observation(t))
			if err != nil && !errors.Is(err, errNonsense) && !errors.Is(err, errTimeBack) && !errors.Is(err, errRestarted) {
				t.Fatal(err)
			}
			power := units.Power(rapid.IntRange(-1, 500).Draw(t, "p")) * units.Watt
			c, target := odd(t, "c"), odd(t, "target")
			sane(t, tr, tr.Finish(power, c, target))
			sane(t, tr, tr.Uncapped(c, target))
			x, y := tr.Exponents()
			if !(x.Value >= 0 && x.SD >= 0 && y.SD >= 0) {
				t.Fatalf("exponents %v, %v", x, y)
			}
			if more := tr.Finish(power+50*units.Watt, c, target); tr.policy != Released && power > 0 {
				if less := tr.Finish(power, c, target); less.Known && more.Known && more.At > less.At {
					t.Fatalf("%s: %v at %v, but %v with 50 W more", tr.policy, less.At, power, more.At)
				}
			}
		}
	})
}

func sane(t *rapid.T, tr *Tracker, f Finish) {
	t.Helper()
	if f.Known && (f.Low < 0 || f.At < f.Low || f.High < f.At) {
		t.Fatalf("%s: %+v", tr.policy, f)
	}
}
