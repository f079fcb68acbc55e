// Claim: of jobs with scaling curves that are all there, the sum of the ends that the shares lead to is near the least of all
// divisions, tried one by one at each end of a job; without the curves it is not.
package arbiter_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
)

// pool is how many containers the cases have: few enough to try all divisions.
const pool = 12

// scaledCase is the work of jobs in seconds on one container, and their curves.
type scaledCase struct {
	work   []float64
	curves []*containers.Curve
}

// speed is how fast a job is on n containers, whatever is known of it: beyond the peak it is slower again.
func speed(c *containers.Curve, n int) float64 {
	if n == 0 {
		return 0
	}
	s := c.Speedup(n)
	if p := c.Peak(); p > 0 && n > p {
		s *= float64(p) / float64(n)
	}
	return s
}

// pass lets jobs run on their containers until one ends, and returns the sum of the times that pass for those that had not
// ended; false where nothing runs.
func (x scaledCase) pass(given []int) (next scaledCase, cost float64, ok bool) {
	first, live := math.Inf(1), 0.0
	for i, w := range x.work {
		if w > 0 {
			live++
			first = min(first, w/speed(x.curves[i], given[i]))
		}
	}
	if math.IsInf(first, 1) {
		return x, 0, false
	}
	next = scaledCase{make([]float64, len(x.work)), x.curves}
	for i, w := range x.work {
		if w > 0 {
			if next.work[i] = w - first*speed(x.curves[i], given[i]); next.work[i] < 1e-9*w+1e-9 {
				next.work[i] = 0
			}
		}
	}
	return next, first * live, true
}

func (x scaledCase) over() bool {
	for _, w := range x.work {
		if w > 0 {
			return false
		}
	}
	return true
}

// least is the least sum of ends.
func (x scaledCase) least() float64 {
	if x.over() {
		return 0
	}
	best, given := math.Inf(1), make([]int, len(x.work))
	var try func(at, left int)
	try = func(at, left int) {
		if at < len(given) {
			for n := 0; n <= left && (n == 0 || x.work[at] > 0); n++ {
				given[at] = n
				try(at+1, left-n)
			}
			given[at] = 0
			return
		}
		if next, cost, ok := x.pass(given); ok && cost < best {
			best = min(best, cost+next.least())
		}
	}
	try(0, pool)
	return best
}

// decided is the sum of ends by the shares that the arbiter gives, with or without the curves.
func (x scaledCase) decided(t *testing.T, curves bool) (sum float64) {
	t.Helper()
	const task = 100 // tasks in a second
	for !x.over() {
		look := jointly()
		look.Pools[""] = arbiter.Pool{Containers: pool}
		for i, w := range x.work {
			if w == 0 {
				continue
			}
			c := fresh(busy(string(rune('a'+i))), int(math.Ceil(w*task)), 10)
			c.Floor, c.MayDeflate, c.MaySprint, c.On = 1, false, false, nil
			c.Outlook.Rest = rest(w*task, 1)
			c.Outlook.Rest.Task = time.Second / task
			if curves {
				c.Curve = x.curves[i]
			}
			look.Jobs = append(look.Jobs, c)
		}
		var m arbiter.Movers
		given := make([]int, len(x.work))
		for _, s := range m.Step(0, look).Divisions[""].Shares {
			given[s.ID[0]-'a'] = s.Containers
		}
		next, cost, ok := x.pass(given)
		if !ok {
			t.Fatalf("nobody is served: %v of %+v", given, x)
		}
		x, sum = next, sum+cost
	}
	return sum
}

func TestNearTheOptimumWithCurves(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 1))
	const cases = 20
	mean, worst, blind := 0.0, 0.0, 0.0
	for range cases {
		var x scaledCase
		for range 2 + r.IntN(2) {
			x.work = append(x.work, 20+200*r.Float64())
			points := []containers.CurvePoint{{Containers: 1, Speedup: 1}}
			switch peak := 2 + r.IntN(9); r.IntN(3) {
			case 0: // with a peak
				points = append(points, containers.CurvePoint{Containers: peak, Speedup: float64(peak) * 0.8}, containers.CurvePoint{Containers: 13, Speedup: 1})
			case 1: // flatter and flatter
				points = append(points, containers.CurvePoint{Containers: 4, Speedup: 3}, containers.CurvePoint{Containers: 13, Speedup: 4})
			default: // with a step
				points = append(points, containers.CurvePoint{Containers: peak, Speedup: float64(peak)}, containers.CurvePoint{Containers: peak + 1, Speedup: float64(peak) * 0.7}, containers.CurvePoint{Containers: 14, Speedup: 11})
			}
			x.curves = append(x.curves, curve(t, points...))
		}
		best := x.least()
		ratio := x.decided(t, true) / best
		if ratio < 1-1e-6 {
			t.Errorf("%.4f times the least of %+v", ratio, x)
		}
		mean, worst, blind = mean+ratio/cases, max(worst, ratio), blind+x.decided(t, false)/best/cases
	}
	t.Logf("%.3f times the least sum in the mean, %.3f at worst; without curves %.3f", mean, worst, blind)
	if mean > 1.03 || worst > 1.15 || mean > blind {
		t.Errorf("%.3f times the least sum in the mean, %.3f at worst; without curves %.3f", mean, worst, blind)
	}
}
