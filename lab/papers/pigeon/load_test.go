package pigeon

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// line is a job of a trace.
func line(arrival float64, times []float64) string {
	var b strings.Builder
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	fmt.Fprintf(&b, "%.6f %d %.6f", arrival, len(times), sum/float64(len(times)))
	for _, t := range times {
		fmt.Fprintf(&b, " %.6f", t)
	}
	return b.String() + "\n"
}

// The generator's laws have the published moments exactly, and its jobs have them within what their number leaves.
func TestGeneratedMoments(t *testing.T) {
	t.Parallel()
	for _, p := range allPublished() {
		short, long := p.laws()
		if got := (1-longPart)*short.fan.mean() + longPart*long.fan.mean(); math.Abs(got*p.scale/p.fanMean-1) > 1e-6 {
			t.Errorf("%s: mean fan-out %v, want %v", p.name, got, p.fanMean/p.scale)
		}
		if got := (1-longPart)*short.time.mean() + longPart*long.time.mean(); math.Abs(got/p.mean-1) > 1e-6 {
			t.Errorf("%s: mean time %v, want %v", p.name, got, p.mean)
		}
		jobs := p.generate(7, 400_000)
		tasks, work, means, shorts := 0, 0.0, 0.0, 0
		for _, j := range jobs {
			tasks += len(j.Times)
			work += j.Work()
			means += j.Mean
			if j.Mean <= p.cutoff {
				shorts++
			}
			for _, x := range j.Times {
				if x < p.least || x > p.most {
					t.Fatalf("%s: a task of %v s", p.name, x)
				}
			}
		}
		n := float64(len(jobs))
		if tasks != 400_000 || math.Abs(float64(tasks)/n*p.scale/p.fanMean-1) > 0.15 || math.Abs(means/n/p.mean-1) > 0.1 || math.Abs(float64(shorts)/n-0.9) > 0.03 {
			t.Errorf("%s: %d jobs, fan-out %.2f, time %.1f, short %.3f", p.name, len(jobs), float64(tasks)/n, means/n, float64(shorts)/n)
		}
		if got := work / jobs[len(jobs)-1].Arrival / float64(p.size()); math.Abs(got-p.load) > 1e-9 {
			t.Errorf("%s: load %v", p.name, got)
		}
	}
}

func TestEqualJobs(t *testing.T) {
	t.Parallel()
	jobs := equal(3, 2000, 10, 0.1, 45)
	work := 0.0
	for _, j := range jobs {
		work += j.Work() + held*float64(len(j.Times))
	}
	if got := work / jobs[len(jobs)-1].Arrival; math.Abs(got/45-1) > 1e-9 {
		t.Errorf("keeps %v workers busy, want 45", got)
	}
}

// Percentiles are within 0.1 % of the exact ones, interpolated between ranks.
func TestPercentiles(t *testing.T) {
	t.Parallel()
	var values []float64
	for i := range 1001 {
		values = append(values, math.Exp(float64((i*10)%1001)/100))
	}
	got := percentiles(values)
	for i, want := range []float64{5, 9, 9.9} {
		if want = math.Exp(want); math.Abs(got[i]/want-1) > 0.001 {
			t.Errorf("%v, want %v", got[i], want)
		}
	}
	if one := percentiles([]float64{3}); one != [3]float64{3, 3, 3} || !math.IsNaN(percentiles(nil)[0]) {
		t.Errorf("%v of one value", one)
	}
}
