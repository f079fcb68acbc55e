// Claims: what is left of a job, task by task, agrees with its finish time; what is unknown is unknown; a job is never
// slower at more power.
package progress

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/units"
)

func TestRest(t *testing.T) {
	t.Parallel()
	for _, p := range Policies() {
		tr := NewTracker(p)
		if r := tr.Rest(350*units.Watt, 10, 100); r != (Rest{}) {
			t.Errorf("%s: %+v of a job of which nothing was seen", p, r)
		}
		observe(t, tr, at(0, 0), at(20, 10), at(40, 20), at(60, 30))
		r := tr.Rest(0, 10, 100)
		// 70 tasks of 20 s are left, but for what running ones have done.
		if !r.Known || r.Ended != 30 || math.Abs(r.Task.Seconds()-20) > 1 || r.Work < 60 || r.Work > 71 {
			t.Errorf("%s: %+v", p, r)
		}
		if f := tr.Finish(0, 10, 100); math.Abs(r.Work*r.Task.Seconds()/10+r.Tail.Seconds()-(f.At-time.Minute).Seconds()) > 0.15*(f.At-time.Minute).Seconds() {
			t.Errorf("%s: %+v is left, it ends at %v", p, r, f.At)
		}
		if r := tr.Rest(0, 0, 100); r.Known {
			t.Errorf("%s: %+v on no containers", p, r)
		}
		if fewer := tr.Rest(0, 10, 50); math.Abs(r.Work-fewer.Work-50) > 1 {
			t.Errorf("%s: %+v on half of the tasks, %+v on all", p, fewer, r)
		}
	}
}

func TestFaster(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tr := NewTracker(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		for i := range rapid.IntRange(0, 6).Draw(t, "looks") {
			o := at(20*i, 10*i)
			o.Power = units.Power(rapid.IntRange(100, 350).Draw(t, "power")) * units.Watt
			_ = tr.Observe(o)
		}
		base, fast := units.Power(rapid.IntRange(-1, 400).Draw(t, "base"))*units.Watt, units.Power(rapid.IntRange(-1, 400).Draw(t, "fast"))*units.Watt
		x := tr.Faster(base, fast)
		if !(x >= 1) || math.IsInf(x, 0) || (base <= 0 || fast <= base) && x != 1 {
			t.Fatalf("%v times as fast at %v as at %v", x, fast, base)
		}
		if more := tr.Faster(base, fast+50*units.Watt); more < x-1e-9 {
			t.Fatalf("%v at %v, %v at 50 W more", x, fast, more)
		}
	})
}
