// Package ipso is `powerlab paper ipso`: the results of IPSO (Li, Duan, Nguyen, Che, Lei, Jiang:
// "IPSO: A Scaling Model for Data-Intensive Applications", ICDCS 2019; chapter 2 of Li's
// dissertation), computed by package jobs/scaling/ipso. The paper prints Table 2.1; for the other
// cases only slopes, a step and a bound, so measurements of that shape are generated, with noise, from seeds.
package ipso

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"headroom/jobs/scaling/ipso"
	"headroom/jobs/scaling/regress"
	"headroom/lab/papers"
)

// table21 is Table 2.1: collaborative filtering of fixed size, in seconds.
func table21() []ipso.Workloads {
	return []ipso.Workloads{
		{N: 10, Slowest: 209.0, Overhead: 5.5},
		{N: 30, Slowest: 79.3, Overhead: 17.7},
		{N: 60, Slowest: 43.7, Overhead: 36.0},
		{N: 90, Slowest: 31.1, Overhead: 54.3},
	}
}

// taskAlone is E[T_p,1(1)] as printed, s.
const taskAlone = 1602.5

// rules are what the study computes with; a mutant has a mistake in one.
type rules struct {
	// speedup is (2.16), measured (2.7).
	speedup  func(m ipso.Model, n float64) float64
	measured func(w ipso.Workloads) float64
	kind     func(m ipso.Model) ipso.Type
	peak     func(m ipso.Model) (int, float64, bool)
	table    func() []ipso.Workloads
	bound    func(m ipso.Model) (float64, bool)
	stepped  func(x, y []float64) (ipso.Stepped, error)
	// overhead is q(n) by (2.6) from a job's overhead.
	overhead func(w ipso.Workloads) float64
	fit      func(points []ipso.Point, held map[string]float64) (*ipso.Fitted, error)
}

func honest() rules {
	return rules{
		speedup: ipso.Model.Speedup, measured: ipso.Workloads.Speedup, kind: ipso.Model.Type, peak: ipso.Model.Peak, table: table21, bound: ipso.Model.Bound, stepped: ipso.FitStepped,
		overhead: func(w ipso.Workloads) float64 { return float64(w.N) * w.Overhead / taskAlone },
		fit:      ipso.Fit,
	}
}

// filtering is what is computed of Table 2.1.
type filtering struct {
	line     ipso.Line // W_o
	residual float64   // the largest of that line
	slope    regress.Estimate
	slowest  []float64 // a and b of a*n^b through E[max T]
	offset   []float64 // a, b and c of a*n^b + c
	points   []ipso.Point
	fitted   *ipso.Fitted // (2.16) with a fixed size, through the speed-ups alone
}

// filter computes all of it.
func (r rules) filter() (*filtering, error) {
	f := &filtering{}
	var n, wo, logN, logQ, slowest []float64
	for _, w := range r.table() {
		w.Parallel = taskAlone
		n, wo, slowest = append(n, float64(w.N)), append(wo, w.Overhead), append(slowest, w.Slowest)
		logN, logQ = append(logN, math.Log(float64(w.N))), append(logQ, math.Log(r.overhead(w)))
		f.points = append(f.points, ipso.Point{N: w.N, Speedup: r.measured(w)})
	}
	var q ipso.Line
	errs := make([]error, 5)
	f.line, errs[0] = ipso.FitLine(n, wo)
	q, errs[1] = ipso.FitLine(logN, logQ)
	f.slowest, errs[2] = curve(n, slowest, []float64{taskAlone, -1})
	f.offset, errs[3] = curve(n, slowest, []float64{taskAlone, -1, 0}, []float64{taskAlone, -0.9, 3})
	f.fitted, errs[4] = r.fit(f.points, map[string]float64{"delta": 0})
	for i := range n {
		f.residual = max(f.residual, math.Abs(wo[i]-f.line.At(n[i])))
	}
	f.slope = q.Slope
	return f, errors.Join(errs...)
}

// curve fits a*n^b, or a*n^b + c where the starts have three values, by least squares.
func curve(n, y []float64, starts ...[]float64) ([]float64, error) {
	all := []regress.Parameter{{Name: "a", Low: 0, High: 1e6}, {Name: "b", Low: -5, High: 5}, {Name: "c", Low: -100, High: 100}}
	fit, err := regress.Solve(regress.Problem{
		Parameters: all[:len(starts[0])],
		Rows:       len(n), Y: func(i int) float64 { return y[i] },
		Model: func(p []float64, i int) float64 {
			x := p[0] * math.Pow(n[i], p[1])
			if len(p) > 2 {
				x += p[2]
			}
			return x
		},
		Starts: starts,
	})
	if err != nil {
		return nil, err
	}
	return fit.Values(), nil
}

// speedup is (2.18) with the curves through Table 2.1.
func (f *filtering) speedup(n float64) float64 {
	return taskAlone / (f.slowest[0]*math.Pow(n, f.slowest[1]) + f.line.At(n))
}

// program is a MapReduce program of section 2.5.1: its parallel part at n = 1, and how its serial work grows.
type program struct {
	name     string
	eta      float64
	in       func(n float64) float64
	from, to int // the degrees that it is fitted on
}

// TeraSort's reducer no longer fits its memory at this degree, and its serial work steps up.
const (
	teraStep  = 15
	teraBelow = 0.15
	teraAbove = 0.25
	teraJump  = 1.3
	teraRatio = 4.3
	teraBound = 3.0
)

// programs are the four. The slopes of TeraSort are printed. That of Sort is not: 0.5 is from Fig. 2.6's order. WordCount and QMC have
// IN = 1, and QMC no serial work.
func programs() []program {
	tera := func(n float64) float64 {
		if n < teraStep {
			return 1 + teraBelow*(n-1)
		}
		return teraJump*(1+teraBelow*(teraStep-1)) + teraAbove*(n-teraStep)
	}
	return []program{
		{"wordcount", 0.9, func(float64) float64 { return 1 }, 1, 16},
		{"qmc", 1, func(float64) float64 { return 0 }, 1, 16},
		{"sort", 0.5, func(n float64) float64 { return 1 + 0.5*(n-1) }, 1, 16},
		{"terasort", 0.317, tera, 16, 64},
	}
}

// noise is the deviation of measured times, as a part of them.
const noise = 0.02

// degreeFar is what is predicted: the largest of Fig. 2.7.
const degreeFar = 160

// degrees are those of Fig. 2.6.
func degrees() []int { return []int{1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 56, 64} }

// measure draws a program's workloads at all degrees, as means of repeated runs are.
func (p *program) measure(r *rand.Rand) (all []ipso.Workloads) {
	off := func() float64 { return math.Exp(noise * r.NormFloat64()) }
	for _, n := range degrees() {
		w := ipso.Workloads{N: n, Parallel: 100 * p.eta * float64(n) * off(), Serial: 100 * (1 - p.eta) * p.in(float64(n)) * off()}
		w.Slowest = w.Parallel / float64(n) * 1.05
		all = append(all, w)
	}
	return all
}

// predicted is by how many percent the speed-up at the far degree is missed by the factors that were fitted on degrees from and to, and by
// Gustafson's law. The workloads at n = 1 are always known.
func (r rules) predicted(p *program, from, to int, random *rand.Rand) (ours, gustafson float64, err error) {
	var n, ex, in []float64
	all := p.measure(random)
	base := all[0]
	for _, w := range all {
		if w.N < from || w.N > to {
			continue
		}
		n, ex = append(n, float64(w.N)), append(ex, w.Parallel/base.Parallel)
		if p.eta < 1 {
			in = append(in, w.Serial/base.Serial)
		}
	}
	eta := base.Parallel / (base.Parallel + base.Serial)
	lineEX, err := ipso.FitLine(n, ex)
	var lineIN ipso.Stepped
	if err == nil && p.eta < 1 {
		lineIN, err = r.stepped(n, in)
	}
	w := ipso.Workloads{Parallel: eta * lineEX.At(degreeFar), Serial: (1 - eta) * lineIN.Above.At(degreeFar)}
	w.Slowest = w.Parallel / degreeFar * base.Slowest / base.Parallel
	truth := ipso.Workloads{Parallel: 100 * p.eta * degreeFar, Slowest: 105 * p.eta, Serial: 100 * (1 - p.eta) * p.in(degreeFar)}.Speedup()
	return 100 * math.Abs(r.measured(w)/truth-1), 100 * math.Abs(r.speedup(ipso.Gustafson(eta), degreeFar)/truth-1), err
}

// NewCommand is `powerlab paper ipso`.
func NewCommand() *cobra.Command {
	return papers.Study{
		Paper: "ipso", Seeds: 20,
		Short: "How data-intensive jobs scale out (IPSO)",
		Long: `Computes IPSO's results: the laws that are its special cases, the scaling types with their bounds, Table 2.1 with its
peak, TeraSort's step, and predictions ten times beyond the measured range. Table 2.1 is the paper's own. The paper does
not print its other measurements; they are generated from the printed slopes, with noise drawn from the seed.`,
		Run: func(_ context.Context, o *papers.Options) (*papers.Result, error) {
			targets, err := honest().judged(o.Seed, o.Seeds)
			return &papers.Result{Targets: targets}, err
		},
	}.Command()
}
