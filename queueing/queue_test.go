package queueing

import (
	"math"
	"testing"
	"time"
)

func dias(t *testing.T, theta float64, mean float64) PH {
	t.Helper()
	p, err := TaskLevel(TaskModel{Slots: 20, Maps: Exactly(50), Reduces: Exactly(10), MapDrop: theta, MapMean: mean, ReduceMean: mean, Setup: mean / 2, Shuffle: mean / 4})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The DIAS case of section 4.1 and the M/M/1 queue come out.
func TestSmoke(t *testing.T) {
	lo, hi := dias(t, 0, 20), dias(t, 0, 9)
	t.Log(lo.Phases(), lo.Mean(), hi.Mean(), lo.CV2())
	lam := 0.8 / (0.9*lo.Mean() + 0.1*hi.Mean())
	for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
		start := time.Now()
		r, err := Solve(Queue{d, Arrivals{Rates: []float64{0.9 * lam, 0.1 * lam}}, []PH{lo, hi}}, Options{Moments: 3, Percentiles: []float64{0.5, 0.95}})
		t.Log(time.Since(start), err)
		for _, c := range r.Classes {
			t.Log(c.Wait.Mean, c.Wait.Moments, c.Wait.Percentiles, c.Sojourn.Mean, c.Sojourn.Moments, c.Sojourn.Percentiles)
		}
	}
	// M/M/1
	e, _ := Exponential(1)
	r, err := Solve(Queue{NonPreemptive, Arrivals{Rates: []float64{0.8}}, []PH{e}}, Options{Moments: 3, Percentiles: []float64{0.5, 0.95, 0.999, 1 - 1e-6}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Classes[0].Sojourn.Percentiles {
		want := -math.Log(1-p.P) / 0.2
		t.Log(p.P, p.At, p.At/want-1)
	}
}
