// Claims: the offline optimum is that of cases that can be worked out by hand; more joules never make it worse; the
// arbiter comes within a tenth of it in the mean, nearer than urgent-first, and never below it.
package arbitration

import (
	"math"
	"strings"
	"testing"
	"time"

	"headroom/units"
)

func TestOptimumByHand(t *testing.T) {
	t.Parallel()
	f := flow{slow: 10, fast: 20, watts: 100, refill: 0, potMost: 0}
	job := func(class Class, at, deadline int, floor float64) Job {
		return Job{Class: class, Arrival: time.Duration(at) * time.Second, Tasks: 100, Deadline: time.Duration(deadline) * time.Second, Floor: floor}
	}
	times := func(total ...float64) (out [][]float64) {
		for _, x := range total {
			out = append(out, []float64{x / 2, x / 2})
		}
		return out
	}
	rich := f
	rich.potMost = 1000 // 10 s of a sprint
	for name, x := range map[string]struct {
		f    flow
		jobs []Job
		work []float64
		want float64
	}{
		"one job":                    {f, []Job{job(Urgent, 0, 0, 1)}, []float64{200}, 20},
		"with joules":                {rich, []Job{job(Urgent, 0, 0, 1)}, []float64{200}, 10},
		"with too few":               {rich, []Job{job(Urgent, 0, 0, 1)}, []float64{300}, 20},
		"late":                       {f, []Job{job(Urgent, 0, 15, 1)}, []float64{200}, 20 + 2*5},
		"the shorter first":          {f, []Job{job(Urgent, 0, 0, 1), job(Urgent, 0, 0, 1)}, []float64{300, 100}, 10 + 40},
		"the urgent first":           {f, []Job{job(Tolerant, 0, 0, 1), job(Urgent, 0, 0, 1)}, []float64{100, 300}, 30 + 40*tolerantWeight},
		"preempted":                  {f, []Job{job(Tolerant, 0, 0, 1), job(Urgent, 10, 0, 1)}, []float64{200, 100}, 10 + 30*tolerantWeight},
		"joules kept for the urgent": {rich, []Job{job(Tolerant, 0, 0, 1), job(Urgent, 20, 0, 1)}, []float64{200, 200}, 10 + 20*tolerantWeight},
		// A third of 40 tasks is 13: 2 s sooner for 120 s of work, for 13 * 3 s * (0.5 + 13/80).
		"a price too high": {f, []Job{job(Tolerant, 0, 0, 0.6)}, []float64{150}, 15 * tolerantWeight},
		"a price that pays": {
			f,
			[]Job{job(Tolerant, 0, 0, 0.6), job(Tolerant, 0, 0, 1)},
			[]float64{6000, 10},
			(1 + 601 - 240 + 40*3) * tolerantWeight,
		},
	} {
		if got := optimum(x.f, x.jobs, times(x.work...)); math.Abs(got-x.want) > 1e-6*x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

func TestArbiterIsNearTheOptimum(t *testing.T) {
	t.Parallel()
	x, err := measureOptimum(t.Context(), seedRange{1, 40})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range x.Cases {
		if c.Arbiter < c.Optimum || c.UrgentFirst < c.Optimum || c.Optimum <= 0 {
			t.Errorf("%+v", c)
		}
	}
	if x.Mean > 1.1 || x.Worst > 1.35 || x.Mean > x.Other {
		t.Errorf("%.3f times the optimum in the mean, %.3f at worst; urgent-first %.3f", x.Mean, x.Worst, x.Other)
	}
	text, err := execute(t, "", "--optimum", "--seeds", "5", "--seed", "1")
	if err != nil || !strings.Contains(text, "urgent_first_mean: ") || strings.Count(text, "optimum: ") != 5 {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err = execute(t, "", "--optimum", "--seeds", "2", "-o", "json"); err != nil || !strings.Contains(text, `"urgent_first_mean"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// Joules and watts never make the optimum worse.
func TestOptimumIsMonotone(t *testing.T) {
	t.Parallel()
	l := &Load{Name: "small", Containers: perServer, For: time.Minute, Budget: []Step{{0, 250 * units.Watt}}, Jobs: smallCase}
	f := flowOf(l)
	for seed := range uint64(10) {
		var times [][]float64
		for _, j := range l.draw(seed) {
			times = append(times, j.times)
		}
		last := math.Inf(1)
		for _, joules := range []float64{0, 3000, 9000, 30_000} {
			g := f
			g.potMost = joules
			got := optimum(g, smallCase(seed), times)
			if got > last*(1+1e-3) { // sprints begin on a grid
				t.Errorf("seed %d: %v with %v J, %v with fewer", seed, got, joules, last)
			}
			last = got
		}
	}
}
