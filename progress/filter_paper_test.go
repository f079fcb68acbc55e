// Claims: Filter and FinishTime are CAB's equations 1 and 2 to the last digit, and
// the policy Paper is those and nothing else; Released is what CAB's code does.
package progress

import (
	"math"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/units"
)

// example is a past with two caps and two numbers of containers, newest first.
func example() []Sample {
	var h []Sample
	for i, v := range []float64{.50, .48, .46, .45} {
		h = append(h, Sample{
			Rate: v, Power: []units.Power{250, 250, 200, 200}[i] * units.Watt,
			Containers: []float64{9, 9, 10, 10}[i], Interval: 5 * time.Second,
		})
	}
	return h
}

func TestCABEq1AndEq2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ containers, rate, finish float64 }{
		{9, .35065625, 519.2514}, {10, .38961806, 479.3263}, {12, .46754167, 419.4386}, {14, .54546528, 376.6616},
	} {
		rate, known := Filter(example(), 175*units.Watt, c.containers)
		if !known || math.Abs(rate-c.rate) > 5.1e-9 {
			t.Errorf("%g containers: %.8f tasks/s, want %.8f", c.containers, rate, c.rate)
		}
		at, known := FinishTime(120*time.Second, 200-60, rate)
		if !known || math.Abs(at.Seconds()-c.finish) > 5.1e-5 {
			t.Errorf("%g containers: done at %.4f s, want %.4f", c.containers, at.Seconds(), c.finish)
		}
	}
}

// A tracker that sees the example's tasks end says what the equations say.
func TestPaperTrackerIsTheEquations(t *testing.T) {
	t.Parallel()
	// Rates are whole tasks per interval here: 10, 8, 6, 5 tasks in 20 s, newest last.
	tr := NewTracker(Paper)
	var history []Sample
	done := 31
	see := func(i int, power units.Power, containers float64) {
		o := Observation{Elapsed: time.Duration(40+20*i) * time.Second, Tasks: 200, Done: done, Work: -1, Reduced: -1, Power: power, Containers: containers, Phase: Map}
		testkit.Check(t, tr.Observe(o))
	}
	see(0, 200*units.Watt, 10)
	for i, n := range []int{7, 5, 6, 8, 10} { // the first of five is older than the window
		done += n
		power, containers := 200*units.Watt, 10.0
		if i > 2 {
			power, containers = 250*units.Watt, 9
		}
		see(i+1, power, containers)
		history = append([]Sample{{Rate: float64(n) / 20, Power: power, Containers: containers}}, history...)
	}
	rate, _ := Filter(history[:4], 175*units.Watt, 12)
	want, _ := FinishTime(140*time.Second, float64(200-done), rate)
	if got := tr.Finish(175*units.Watt, 12, 200); !got.Known || got.At != want || got.Low != want || got.High != want {
		t.Errorf("%+v, want %v", got, want)
	}
	if got := tr.Uncapped(12, 200); got.At != tr.Finish(250*units.Watt, 12, 200).At {
		t.Errorf("without a full power the last power counts: %v", got)
	}
}

// The published code weights seconds per task by the caps' ratio and lets a constant
// past cap cancel.
func TestReleasedCode(t *testing.T) {
	t.Parallel()
	rate, known := FilterReleased(example(), 175*units.Watt)
	w := []float64{.7, .7, .875, .875}
	sum := w[0]/.50 + w[1]/.48 + w[2]/.46 + w[3]/.45
	if want := (w[0] + w[1] + w[2] + w[3]) / sum; !known || math.Abs(rate-want) > 1e-12 {
		t.Errorf("%g tasks/s, want %g", rate, want)
	}
	constant := example()
	for i := range constant {
		constant[i].Power = 200 * units.Watt
	}
	a, _ := FilterReleased(constant, 175*units.Watt)
	b, _ := FilterReleased(constant, 350*units.Watt)
	if a != b {
		t.Errorf("a constant past cap does not cancel: %g and %g", a, b)
	}
}

// A sample without progress keeps the last finish time (the paper's code does too).
func TestKeepsTheLastFinishTime(t *testing.T) {
	t.Parallel()
	for _, p := range []Policy{Paper, Released} {
		tr := NewTracker(p)
		for i := range 8 {
			o := Observation{Elapsed: time.Duration(i) * 5 * time.Second, Tasks: 100, Done: min(2*i, 4), Work: -1, Reduced: -1, Power: 200 * units.Watt, Containers: 4}
			testkit.Check(t, tr.Observe(o))
		}
		if f := tr.Finish(200*units.Watt, 4, 100); !f.Known || f.At <= 10*time.Second {
			t.Errorf("%s: %+v after five intervals without an end", p, f)
		}
	}
}

func TestUnknownIsUnknown(t *testing.T) {
	t.Parallel()
	nothing := []Sample{{}, {Rate: 1}, {Rate: 1, Power: units.Watt}, {Power: units.Watt, Containers: 1}, {Rate: math.NaN(), Power: units.Watt, Containers: 1}}
	if rate, known := Filter(nothing, 175*units.Watt, 9); known || rate != 0 {
		t.Errorf("%g tasks/s from samples of which none is usable", rate)
	}
	for _, c := range []struct{ left, rate float64 }{{1, 0}, {1, -1}, {1, math.NaN()}, {math.NaN(), 1}, {1, math.Inf(1)}, {math.Inf(1), 1}, {1, 1e-300}, {1e300, 1}} {
		if at, known := FinishTime(time.Second, c.left, c.rate); known || at != 0 {
			t.Errorf("left %g at %g tasks/s: %v", c.left, c.rate, at)
		}
	}
	if at, known := FinishTime(time.Second, 0, 0); !known || at != time.Second {
		t.Errorf("nothing left: %v %v, want now", at, known)
	}
	// Unusable samples are left out and the weights are those of the others.
	mixed := append(nothing, example()...)
	a, _ := Filter(mixed, 175*units.Watt, 9)
	if math.Abs(a-.35065625) > 1e-12 {
		t.Errorf("%g tasks/s beside unusable samples, want 0.35065625", a)
	}
}
