package usba

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/jobs/scaling/regress"
	"headroom/jobs/scaling/usba"
	"headroom/lab/report"
)

const (
	// smallMost is the largest size of the training set (section 3.4.4).
	smallMost = 64
	// significantAt is the p-value below which a parameter counts.
	significantAt = 0.05
)

// rules are what the study computes with; a mutant has a mistake in one.
type rules struct {
	speedup func(m usba.Model, n, degree float64) float64
	// fit is our own, to the measured speed-ups.
	fit func(points []usba.Point, held map[string]float64) (*usba.Fitted, error)
}

func honest() rules { return rules{speedup: usba.Model.Speedup, fit: usba.Fit} }

// result holds the figures of a benchmark; deviations are in percent.
type result struct {
	benchmark
	// ratio is fitted to the printed model, off the largest deviation from it.
	ratio regress.Estimate
	off   float64
	// worst and average are of the printed parameters from what was measured, far of the prediction parameters above smallMost; own... of our fit.
	worst, average, ownWorst, ownAverage, far, ownFar float64
	own                                               *usba.Fitted
	// higher is the part of the pairs of one degree in which the larger size has the larger speed-up, of the model, peaked that of the
	// sizes from 64 on whose speed-up peaks below m = N, falling that of those whose speed-up falls from m = 3.
	higher, peaked, falling float64
}

func (r rules) one(i int, b benchmark) (*result, error) {
	x := &result{benchmark: b}
	var err error
	if x.ratio, err = r.ratio(i, b.modelling); err != nil {
		return nil, err
	}
	printed, predicting := b.modelling, b.prediction
	printed.R, predicting.R = x.ratio.Value, x.ratio.Value
	var all, small []usba.Point
	for _, row := range table33() {
		p := usba.Point{N: row.n, M: row.m, Speedup: row.measured[i]}
		if all = append(all, p); p.N <= smallMost {
			small = append(small, p)
		}
		x.off = max(x.off, 100*math.Abs(r.speedup(printed, float64(row.n), float64(row.m))/row.modelled[i]-1))
	}
	x.worst, x.average = r.errors(printed, all, 0)
	held := map[string]float64{}
	if b.monotone { // the table leaves gamma of SVM out
		held["gamma"] = 0
	}
	if x.own, err = r.fit(all, held); err != nil {
		return nil, err
	}
	x.ownWorst, x.ownAverage = r.errors(x.own.Model, all, 0)
	_, x.far = r.errors(predicting, all, smallMost)
	// q is measured apart; gamma shows itself only beyond what was measured.
	near, err := r.fit(small, map[string]float64{"r": x.ratio.Value, "eps": predicting.Eps, "theta": predicting.Theta, "gamma": 0})
	if err != nil {
		return nil, err
	}
	_, x.ownFar = r.errors(near.Model, all, smallMost)
	r.shape(x, printed)
	return x, nil
}

// ratio fits r to the printed model's column, by least squares of relative errors.
func (r rules) ratio(i int, m usba.Model) (regress.Estimate, error) {
	rows := table33()
	fit, err := regress.Solve(regress.Problem{
		Parameters: []regress.Parameter{{Name: "r", Low: 0.01, High: 100}},
		Rows:       len(rows), Y: func(k int) float64 { return math.Log(rows[k].modelled[i]) },
		Model: func(p []float64, k int) float64 {
			m.R = p[0]
			return math.Log(r.speedup(m, float64(rows[k].n), float64(rows[k].m)))
		},
		Starts: [][]float64{{0.3}, {1}, {3}},
	})
	if err != nil {
		return regress.Estimate{}, err
	}
	return fit.Estimates[0], nil
}

// errors are the largest and the mean relative error above a size, in percent.
func (r rules) errors(m usba.Model, all []usba.Point, above int) (worst, mean float64) {
	n := 0.0
	for _, p := range all {
		if p.N <= above {
			continue
		}
		e := 100 * math.Abs(r.speedup(m, float64(p.N), float64(p.M))/p.Speedup-1)
		worst, mean, n = max(worst, e), mean+e, n+1
	}
	return worst, mean / n
}

// shape checks the surface on the paper's sizes.
func (r rules) shape(x *result, m usba.Model) {
	at := func(n, d int) float64 { return r.speedup(m, float64(n), float64(d)) }
	part := func(n, of int) float64 { return 100 * float64(n) / float64(of) }
	higher, peaked, falling, sizes := 0, 0, 0, []int{64, 96, 128, 192, 256}
	degrees := []int{8, 16, 32, 64}
	for _, d := range degrees {
		for k := 1; k < 4; k++ {
			if at((k+1)*d, d) > at(k*d, d) {
				higher++
			}
		}
	}
	for _, n := range sizes {
		best, falls := n/8, true
		for d := n/8 + 1; d <= n; d++ {
			if at(n, d) > at(n, best) {
				best = d
			}
			falls = falls && at(n, d) < at(n, d-1)
		}
		if best < n {
			peaked++
		}
		if falls {
			falling++
		}
	}
	x.higher, x.peaked, x.falling = part(higher, 3*len(degrees)), part(peaked, len(sizes)), part(falling, len(sizes))
}

// judged makes and judges everything: F1, that the surface is 1 at N = m = 1, to F6.
func (r rules) judged() ([]report.Target, error) {
	all, off := make([]report.Target, 1), 0.0
	for i, b := range benchmarks() {
		x, err := r.one(i, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		m := b.modelling
		m.R = x.ratio.Value
		off = max(off, math.Abs(r.speedup(m, 1, 1)-1))
		all = slices.Concat(all, x.targets())
	}
	all[0] = report.Judge("F1/one", "S(1,1): largest distance from 1", "", report.Once(off), off < 1e-12, "exact but for rounding")
	return all, nil
}

// targets are F2 to F5, what the printed parameters give, and F6, our fit to the speed-ups alone.
func (x *result) targets() []report.Target {
	r := report.Stat{Mean: x.ratio.Value, Low: x.ratio.Low, High: x.ratio.High, Known: true}
	percent := func(id, what string, got float64, ordered bool, note string) report.Target {
		return report.Judge(strings.Replace(id, "/", "/"+x.name, 1), what, "%", report.Once(got), ordered, note)
	}
	all := report.AtLeast(100)
	shape := percent("F5/-peaks", "sizes whose speed-up peaks below m = N", x.peaked, x.peaked > 50, "")
	name, p := "alpha", x.own.Estimates[0].P
	if x.monotone { // its alpha is small, and its p-value the largest of Table 3.1's
		shape = percent("F5/-falls", "sizes whose speed-up falls with m", x.falling, x.falling > 50, "")
		name, p = "beta", x.own.Estimates[1].P
	}
	return []report.Target{
		report.From(x.r, report.Around(x.r, 0.01*x.r), report.Judge("F2/"+x.name+"-r", "ratio of launch and stages, fitted to Table 3.3's USBA column", "",
			r, r.Mean > 0.1, "not printed; derived by least squares")),
		report.From(0, report.AtMost(x.match+0.2), percent("F2/", "Table 3.1 (a): largest deviation from Table 3.3's USBA column",
			x.off, x.off < 10, "what the rounding of the parameters leaves")),
		report.From(x.error, report.AtMost(x.error+0.5), percent("F3/", "Table 3.1 (a): largest relative error", x.worst, x.worst < 2*x.error, "")),
		report.From(x.mean, report.Around(x.mean, 1), percent("F3/-mean", "Table 3.1 (a): mean relative error", x.average, x.average < x.error, "")),
		report.From(x.high, report.Range{Low: x.low, High: x.high}, percent("F4/", "Table 3.1 (b): mean error of the predictions for N above 64",
			x.far, x.far >= x.low && x.far <= x.high, "the claim has to hold on the rows that are printed; it is not widened")),
		report.From(100, all, percent("F5/-size", "cases of a fixed m in which a larger N/m gives a larger speed-up", x.higher, x.higher > 50, "")),
		report.From(100, all, shape),
		report.From(x.error, report.AtMost(x.error+0.5), percent("F6/", "ours, fitted to the measured speed-ups alone: largest relative error",
			x.ownWorst, x.ownWorst < 1.2*x.error, "")),
		percent("F6/-mean", "ours: mean relative error", x.ownAverage, x.ownAverage < x.average, fmt.Sprintf("to be below %.1f %% of the printed parameters", x.average)),
		report.Judge("F6/"+x.name+"-p", "ours: p-value of "+name, "", report.Once(p), p < significantAt, "to be below 0.05, as printed"),
		report.From(x.high, report.AtMost(x.high), percent("F6/-far", "ours, fitted to N up to 64: mean error for N above 64",
			x.ownFar, x.ownFar < 1.5*x.high, "launch as printed in Table 3.1 (b), gamma = 0")),
	}
}
