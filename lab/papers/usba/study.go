// Package usba is `powerlab paper usba`: the results of USBA (Li, Duan, Che: "A Unified Scaling
// Model in the Era of Big Data Analytics", HP3C 2019; chapter 3 of Li's dissertation), computed by
// package jobs/scaling/usba. The printed parameters of Table 3.1 and our own fit are judged on the
// measured speed-ups of Table 3.3, the only printed measurements. Nothing is random.
package usba

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/jobs/scaling/regress"
	"headroom/jobs/scaling/usba"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// smallMost is the largest size of the training set (section 3.4.4).
const smallMost = 64

// rules are what the study computes with; a mutant has a mistake in one.
type rules struct {
	speedup func(m usba.Model, n, degree float64) float64
	fit     func(points []usba.Point, held map[string]float64) (*usba.Fitted, error) // our own, to the measured speed-ups
}

func honest() rules { return rules{speedup: usba.Model.Speedup, fit: usba.Fit} }

// result holds the figures of a benchmark; deviations are in percent.
type result struct {
	benchmark
	ratio regress.Estimate // fitted to the printed model
	off   float64          // the largest deviation from it
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
		report.Judge("F6/"+x.name+"-p", "ours: p-value of "+name, "", report.Once(p), p < 0.05, "to be below 0.05, as printed"),
		report.From(x.high, report.AtMost(x.high), percent("F6/-far", "ours, fitted to N up to 64: mean error for N above 64",
			x.ownFar, x.ownFar < 1.5*x.high, "launch as printed in Table 3.1 (b), gamma = 0")),
	}
}

// NewCommand is `powerlab paper usba`.
func NewCommand() *cobra.Command {
	return papers.Study{
		Paper: "usba", Seeds: 1,
		Short: "How jobs of many stages scale with size and degree (USBA)",
		Long: `Computes USBA's results: Tables 3.1 and 3.3 with the errors that the dissertation claims, and a fit to the measured
speed-ups of Table 3.3, the only measurements that it prints. Nothing is random: --seed and --seeds have no effect.`,
		Run: func(context.Context, *papers.Options) (*papers.Result, error) {
			targets, err := honest().judged()
			return &papers.Result{Targets: targets}, err
		},
	}.Command()
}

// row is a row of Table 3.3: what was measured, and what the paper's model gave, in the order of benchmarks.
type row struct {
	n, m               int
	measured, modelled [4]float64
}

func table33() []row {
	return []row{
		{1, 1, [4]float64{1.0, 1.0, 1.0, 1.0}, [4]float64{1.0, 1.0, 1.0, 1.0}},
		{8, 2, [4]float64{2.2, 1.8, 2.3, 2.1}, [4]float64{2.3, 1.9, 2.2, 1.7}},
		{8, 4, [4]float64{3.3, 2.2, 2.4, 2.7}, [4]float64{2.9, 2.5, 2.2, 2.3}},
		{8, 8, [4]float64{4.2, 2.9, 2.2, 3.3}, [4]float64{4.0, 3.3, 2.0, 3.3}},
		{64, 32, [4]float64{17.0, 12.3, 7.3, 10.0}, [4]float64{15.3, 12.0, 7.0, 11.0}},
		{64, 64, [4]float64{15.8, 10.0, 4.6, 8.7}, [4]float64{13.4, 9.9, 4.9, 8.5}},
		{96, 48, [4]float64{23.3, 16.0, 8.0, 14.2}, [4]float64{19.9, 15.2, 8.3, 13.9}},
		{96, 96, [4]float64{18.1, 11.4, 5.3, 8.6}, [4]float64{15.4, 11.2, 5.4, 9.3}},
		{128, 32, [4]float64{23.6, 21.8, 13.5, 17.2}, [4]float64{26.2, 21.0, 13.1, 20.7}},
		{128, 64, [4]float64{25.1, 18.7, 8.8, 18.3}, [4]float64{23.4, 17.7, 9.2, 16.1}},
		{128, 128, [4]float64{16.7, 12.8, 6.1, 10.3}, [4]float64{16.7, 12.0, 5.7, 9.8}},
		{192, 48, [4]float64{34.0, 28.9, 16.7, 27.2}, [4]float64{35.9, 28.4, 15.8, 29.3}},
		{192, 96, [4]float64{31.6, 22.0, 9.6, 21.5}, [4]float64{28.5, 21.2, 10.4, 19.2}},
		{192, 192, [4]float64{18.4, 13.5, 7.2, 10.5}, [4]float64{18.2, 13.0, 6.1, 10.4}},
		{256, 64, [4]float64{38.8, 33.9, 18.5, 32.6}, [4]float64{44.2, 34.7, 17.7, 37.0}},
		{256, 128, [4]float64{32.1, 21.6, 10.4, 22.7}, [4]float64{32.0, 23.6, 11.1, 21.3}},
		{256, 256, [4]float64{16.8, 14.0, 5.9, 10.0}, [4]float64{19.1, 13.5, 6.3, 10.7}},
	}
}

// benchmark has Table 3.1's parameters, but for r, and what is claimed of it.
type benchmark struct {
	name string
	// r and match are what the survey of the papers derived: the ratio, and the largest deviation from the printed model. error is the
	// claimed bound of the relative error, mean that of the printed column, low and high the claimed mean error of the predictions, %.
	r, match, error, mean, low, high float64
	monotone                         bool       // the speed-up of a fixed size falls with m from 3 on
	modelling, prediction            usba.Model // parts (a) and (b), the latter from sizes up to 64
}

func benchmarks() []benchmark {
	model := func(alpha, beta, gamma, eps, theta float64) usba.Model {
		return usba.Model{Alpha: alpha, Beta: beta, Gamma: gamma, Eps: eps, Theta: theta}
	}
	return []benchmark{
		{"bayes", 0.557, 4.7, 15, 8.1, 6, 12, false, model(1.58, 0.051, -0.006, 0.044, 19.09), model(1.555, 0.031, -1.91e-6, 0.050, 15.367)},
		{"rf", 0.825, 5.6, 15, 4.9, 6, 12, false, model(1.938, 0.074, -0.009, 0.04389, 18.983), model(2.194, 0.085, -0.021, 0.049, 15.612)},
		{"svm", 2.279, 6.0, 15, 5.8, 6, 12, true, model(0.807, 0.14, 0, 0.037, 19.905), model(0.886, 0.137, 0, 0.037, 19.783)},
		{"nweight", 0.792, 2.4, 21, 8.2, 18.5, 19.5, false, model(2.505, 0.106, -0.022, 0.04, 19.516), model(2.067, 0.09, -1.09e-6, 0.040, 19.044)},
	}
}
