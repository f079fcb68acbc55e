// Claims: a curve's envelope is concave and nowhere below it; a job gets no containers that make it no faster,
// and never any beyond the peak; the default's sum of delays is the least of all divisions where curves are
// concave; points that are invalid are refused by name.
package containers_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/containers"
)

func curve(t rapid.TB, points ...containers.CurvePoint) *containers.Curve {
	t.Helper()
	return testkit.Need(containers.NewCurve(points))(t)
}

// drawPoints are points of a curve; concave where that is asked for.
func drawPoints(t *rapid.T, concave bool) []containers.CurvePoint {
	points := []containers.CurvePoint{{Containers: 1, Speedup: 1}}
	gain := 1.0
	for range rapid.IntRange(1, 5).Draw(t, "points") {
		last := points[len(points)-1]
		step := rapid.IntRange(1, 3).Draw(t, "step")
		if concave {
			gain -= rapid.Float64Range(0, 0.5).Draw(t, "bend")
		} else {
			gain = rapid.Float64Range(-0.6, 1.2).Draw(t, "gain")
		}
		if math.Abs(gain) < 1e-9 { // below the rounding of an interpolated speed-up
			gain = 0
		}
		points = append(points, containers.CurvePoint{Containers: last.Containers + step, Speedup: max(0.05, last.Speedup+gain*float64(step))})
	}
	return points
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		points := drawPoints(t, false)
		c := curve(t, points...)
		peak, gain := c.Peak(), math.Inf(1)
		for n := 1; n <= 20; n++ {
			s, e := c.Speedup(n), c.Envelope(float64(n))
			if e < s-1e-9 || n > 1 && e-c.Envelope(float64(n-1)) > gain+1e-9 {
				t.Fatalf("on %d: curve %v, envelope %v of %v", n, s, e, points)
			}
			if n > 1 {
				gain = e - c.Envelope(float64(n-1))
			}
			k := c.Fastest(n)
			if k < 1 || k > n || peak > 0 && k > peak {
				t.Fatalf("fastest %d of %d: %v", k, n, points)
			}
			for other := 1; other <= n; other++ {
				if x := c.Speedup(other); x > c.Speedup(k)*(1+1e-8) || other < k && x >= c.Speedup(k) {
					t.Fatalf("fastest %d of %d, and %d is as fast: %v", k, n, other, points)
				}
			}
			all := c.Corners(n)
			if !slices.IsSorted(all) || all[len(all)-1] != k {
				t.Fatalf("corners %v up to %d: the fastest is %d", all, n, k)
			}
		}
		for _, p := range points {
			if best := c.Speedup(max(peak, 20)); p.Speedup > best+1e-9 {
				t.Fatalf("%v exceeds the most %v", p, best)
			}
		}
	})
}

// A step as that of TeraSort: on 9 and 10 containers it is no faster than on 8.
func TestFastestOfAStep(t *testing.T) {
	t.Parallel()
	c := curve(t, containers.CurvePoint{Containers: 1, Speedup: 1}, containers.CurvePoint{Containers: 8, Speedup: 8}, containers.CurvePoint{Containers: 9, Speedup: 7},
		containers.CurvePoint{Containers: 16, Speedup: 12}, containers.CurvePoint{Containers: 20, Speedup: 11})
	for n, want := range map[int]int{1: 1, 5: 5, 8: 8, 9: 8, 10: 8, 11: 11, 15: 15, 16: 16, 17: 16, 400: 16} {
		if got := c.Fastest(n); got != want {
			t.Errorf("%d containers: fastest on %d, want %d", n, got, want)
		}
	}
	if c.Peak() != 16 || c.Envelope(12) != 10 || c.Speedup(9) != 7 || c.Speedup(400) != 12 {
		t.Errorf("peak %d, envelope %v on 12, curve %v on 9 and %v on 400", c.Peak(), c.Envelope(12), c.Speedup(9), c.Speedup(400))
	}
	open := curve(t, containers.CurvePoint{Containers: 1, Speedup: 1}, containers.CurvePoint{Containers: 3, Speedup: 2})
	if open.Peak() != 0 || open.Speedup(5) != 3 || open.Fastest(500) != 500 {
		t.Errorf("without a peak: %d, %v, %d", open.Peak(), open.Speedup(5), open.Fastest(500))
	}
}

func TestBadCurves(t *testing.T) {
	t.Parallel()
	p := func(n int, s float64) containers.CurvePoint { return containers.CurvePoint{Containers: n, Speedup: s} }
	for want, points := range map[string][]containers.CurvePoint{
		": 0 points; must be from 2 to 64":                     {},
		": 1 points":                                           {p(1, 1)},
		": 100000 points":                                      make([]containers.CurvePoint, 100_000),
		"points[0] is a speed-up of 1 on 2 containers":         {p(2, 1), p(3, 2)},
		"points[0] is a speed-up of 2 on 1 containers":         {p(1, 2), p(3, 2)},
		"points[2].containers is 4, not above the previous 4":  {p(1, 1), p(4, 2), p(4, 3)},
		"points[1].containers is -4, not above the previous 1": {p(1, 1), p(-4, 2)},
		"points[1].containers is 1000000000; the maximum":      {p(1, 1), p(1_000_000_000, 3)},
		"points[1].speedup is NaN":                             {p(1, 1), p(2, math.NaN())},
		"points[1].speedup is +Inf":                            {p(1, 1), p(2, math.Inf(1))},
		"points[1].speedup is 0; it must be above 0":           {p(1, 1), p(2, 0)},
		"points[1].speedup is -1; it must be above 0 and a":    {p(1, 1), p(2, -1)},
	} {
		if _, err := containers.NewCurve(points); !errors.Is(err, containers.ErrCurve) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Of jobs with curves, none is given more than its peak, or containers that make it no faster; of concave curves, no division
// within the peaks has a smaller sum of delays.
func TestStretchWithCurves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, rapid.IntRange(1, 4).Draw(t, "jobs"))
		concave := rapid.Bool().Draw(t, "concave")
		least := 0
		for i := range jobs {
			jobs[i].Known, jobs[i].Uncapped = true, second // all are late: nobody stops at what it needs
			if rapid.IntRange(0, 3).Draw(t, "curve") > 0 {
				jobs[i].Curve = curve(t, drawPoints(t, concave)...)
			}
			least += max(jobs[i].Least, jobs[i].Overhead+1)
		}
		total := least + rapid.IntRange(0, 9).Draw(t, "spare")
		for _, p := range containers.Policies() {
			plan := testkit.Need(containers.Allocate(p, total, jobs, containers.Settings{Epsilon: -1}))(t)
			sum := 0
			for i, n := range whole(plan) {
				j := jobs[i]
				sum += n
				if k := n - j.Overhead; n > max(j.Least, j.Overhead+1) && (j.Curve.Peak() > 0 && k > j.Curve.Peak() || p == containers.Stretch && j.Curve.Fastest(k) != k) {
					t.Fatalf("%s gives %s %d for its tasks, beyond its peak %d or no faster", p, j.Name, k, j.Curve.Peak())
				}
			}
			if sum > total {
				t.Fatalf("%s: %d containers of %d", p, sum, total)
			}
			if p != containers.Stretch || !concave || wronged(jobs, total, whole(plan)) {
				continue
			}
			try(jobs, total, make([]int, len(jobs)), 0, func(given []int) {
				if other := containers.StretchOf(total, jobs, given); !wronged(jobs, total, given) && other < plan.Stretch-1e-9*(1+plan.Stretch) {
					t.Fatalf("%v gives %v, %v only %v", whole(plan), plan.Stretch, given, other)
				}
			})
		}
	})
}
