package usba

import (
	"fmt"
	"math"
	"slices"

	"headroom/jobs/scaling/regress"
	"headroom/jobs/scaling/usba"
	"headroom/lab/report"
)

// smallMost is the largest size of the training set (section 3.4.4).
const smallMost = 64

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
	// r is fitted to the printed model, and its bounds; match the largest deviation from it.
	r     regress.Estimate
	match float64
	// worst and mean are of the printed parameters from what was measured, ownWorst and ownMean of our fit.
	worst, mean, ownWorst, ownMean float64
	own                            *usba.Fitted
	// far is the mean error of the printed prediction parameters above smallMost, ownFar of our fit to sizes up to it.
	far, ownFar float64
	// higher is the part of the pairs of one degree in which the larger size has the larger speed-up, of the model.
	higher float64
	// peaked is the part of the sizes from 64 on whose speed-up peaks below m = N; falling, of the sizes whose speed-up falls from m = 3.
	peaked, falling float64
}

func (r rules) one(i int, b benchmark) (*result, error) {
	x := &result{benchmark: b}
	var err error
	if x.r, err = r.ratio(i, b.modelling); err != nil {
		return nil, err
	}
	printed, predicting := b.modelling, b.prediction
	printed.R, predicting.R = x.r.Value, x.r.Value
	var all, small []usba.Point
	for _, row := range table33() {
		p := usba.Point{N: row.n, M: row.m, Speedup: row.measured[i]}
		if all = append(all, p); p.N <= smallMost {
			small = append(small, p)
		}
		x.match = max(x.match, 100*math.Abs(r.speedup(printed, float64(row.n), float64(row.m))/row.modelled[i]-1))
	}
	x.worst, x.mean = r.errors(printed, all, 0)
	held := map[string]float64{}
	if b.monotone { // the table leaves gamma of SVM out
		held["gamma"] = 0
	}
	if x.own, err = r.fit(all, held); err != nil {
		return nil, err
	}
	x.ownWorst, x.ownMean = r.errors(x.own.Model, all, 0)
	_, x.far = r.errors(predicting, all, smallMost)
	// q is measured apart; gamma shows itself only beyond what was measured.
	near, err := r.fit(small, map[string]float64{"r": x.r.Value, "eps": predicting.Eps, "theta": predicting.Theta, "gamma": 0})
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
	pairs, higher, sizes, peaked, falling := 0.0, 0.0, 0.0, 0.0, 0.0
	for d := 8; d <= 64; d *= 2 {
		for k := 1; k < 4; k++ {
			pairs++
			if r.speedup(m, float64((k+1)*d), float64(d)) > r.speedup(m, float64(k*d), float64(d)) {
				higher++
			}
		}
	}
	for _, n := range []int{64, 96, 128, 192, 256} {
		sizes++
		at, best, falls := 0, 0.0, true
		for d := max(1, n/8); d <= n; d++ {
			s := r.speedup(m, float64(n), float64(d))
			if s > best {
				at, best = d, s
			}
			falls = falls && (d == max(1, n/8) || s < r.speedup(m, float64(n), float64(d-1)))
		}
		if at < n {
			peaked++
		}
		if falls {
			falling++
		}
	}
	x.higher, x.peaked, x.falling = 100*higher/pairs, 100*peaked/sizes, 100*falling/sizes
}

// significantAt is the p-value below which a parameter counts.
const significantAt = 0.05

// judged makes and judges everything: F1, that the surface is 1 at N = m = 1, to F6.
func (r rules) judged() ([]report.Target, error) {
	all, off := make([]report.Target, 1), 0.0
	for i, b := range benchmarks() {
		x, err := r.one(i, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		m := b.modelling
		m.R = x.r.Value
		off = max(off, math.Abs(r.speedup(m, 1, 1)-1))
		all = slices.Concat(all, x.printedTargets(), x.ownTargets())
	}
	all[0] = report.Judge("F1/one", "S(1,1): largest distance from 1", "", report.Once(off), off < 1e-12, "exact but for rounding")
	return all, nil
}

// printedTargets are F2 to F5: what the printed parameters give.
func (x *result) printedTargets() []report.Target {
	r := report.Stat{Mean: x.r.Value, Low: x.r.Low, High: x.r.High, Known: true}
	inside := x.far >= x.low && x.far <= x.high
	all := []report.Target{
		report.From(x.benchmark.r, report.Around(x.benchmark.r, 0.01*x.benchmark.r), report.Judge("F2/"+x.name+"-r", "ratio of launch and stages, fitted to Table 3.3's USBA column", "", r, r.Mean > 0.1, "not printed; derived by least squares")),
		report.From(0, report.AtMost(x.benchmark.match+0.2), report.Judge("F2/"+x.name, "Table 3.1 (a): largest deviation from Table 3.3's USBA column", "%", report.Once(x.match), x.match < 10, "what the rounding of the parameters leaves")),
		report.From(x.error, report.AtMost(x.error+0.5), report.Judge("F3/"+x.name, "Table 3.1 (a): largest relative error", "%", report.Once(x.worst), x.worst < 2*x.error, "")),
		report.From(x.benchmark.mean, report.Around(x.benchmark.mean, 1), report.Judge("F3/"+x.name+"-mean", "Table 3.1 (a): mean relative error", "%", report.Once(x.mean), x.mean < x.error, "")),
		report.From(x.high, report.Range{Low: x.low, High: x.high}, report.Judge("F4/"+x.name, "Table 3.1 (b): mean error of the predictions for N above 64", "%", report.Once(x.far), inside, "the claim has to hold on the rows that are printed; it is not widened")),
		report.From(100, report.AtLeast(100), report.Judge("F5/"+x.name+"-size", "cases of a fixed m in which a larger N/m gives a larger speed-up", "%", report.Once(x.higher), x.higher > 50, "")),
	}
	shape, what, part := "-peaks", "sizes whose speed-up peaks below m = N", x.peaked
	if x.monotone {
		shape, what, part = "-falls", "sizes whose speed-up falls with m", x.falling
	}
	return append(all, report.From(100, report.AtLeast(100), report.Judge("F5/"+x.name+shape, what, "%", report.Once(part), part > 50, "")))
}

// ownTargets are F6: our fit to the speed-ups alone.
func (x *result) ownTargets() []report.Target {
	beta := x.own.Estimates[1]
	name := "alpha"
	p := x.own.Estimates[0].P
	if x.monotone { // its alpha is small, and its p-value the largest of Table 3.1's
		name, p = "beta", beta.P
	}
	return []report.Target{
		report.From(x.error, report.AtMost(x.error+0.5), report.Judge("F6/"+x.name, "ours, fitted to the measured speed-ups alone: largest relative error", "%", report.Once(x.ownWorst), x.ownWorst < 1.2*x.error, "")),
		report.Judge("F6/"+x.name+"-mean", "ours: mean relative error", "%", report.Once(x.ownMean), x.ownMean < x.mean, fmt.Sprintf("to be below %.1f %% of the printed parameters", x.mean)),
		report.Judge("F6/"+x.name+"-p", "ours: p-value of "+name, "", report.Once(p), p < significantAt, "to be below 0.05, as printed"),
		report.From(x.high, report.AtMost(x.high), report.Judge("F6/"+x.name+"-far", "ours, fitted to N up to 64: mean error for N above 64", "%", report.Once(x.ownFar), x.ownFar < 1.5*x.high, "launch as printed in Table 3.1 (b), gamma = 0")),
	}
}
