package ipso

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"headroom/jobs/scaling/regress"

	"gonum.org/v1/gonum/stat/distuv"
)

// Workloads are the parts of a job at a scale-out degree, each in seconds of one unit.
type Workloads struct {
	N int
	// Parallel is the sum over all tasks (2.1), Slowest the longest of them, Serial the merging (2.2), Overhead what scaling out adds
	// (2.6).
	Parallel, Slowest, Serial, Overhead float64
}

// Speedup returns the measured one (2.7).
func (w Workloads) Speedup() float64 {
	return (w.Parallel + w.Serial) / (w.Slowest + w.Serial + w.Overhead)
}

// Line is a straight line.
type Line struct{ Intercept, Slope regress.Estimate }

// At returns the line's value.
func (l *Line) At(n float64) float64 { return l.Intercept.Value + l.Slope.Value*n }

// Stepped is a line that may change at a degree, as where a buffer no longer fits the memory.
type Stepped struct {
	// Above is the line from degree From on, and Below the one before; without a change From is 0.
	Below, Above Line
	From         int
}

// Factors are the three scaling factors as measured (2.3), (2.4), (2.6).
type Factors struct {
	Eta float64
	EX  Line
	IN  Stepped
	// Beta and Gamma are of q(n) = beta*n^gamma; 0 where no overhead was measured.
	Beta, Gamma regress.Estimate
	// Spread is by what the slowest task exceeds the mean of its run.
	Spread float64
}

// FitFactors fits the factors. One of the measurements must be that of n = 1.
func FitFactors(all []Workloads) (*Factors, error) {
	base, err := baseline(all)
	if err != nil {
		return nil, err
	}
	f := &Factors{Eta: base.Parallel / (base.Parallel + base.Serial)}
	var n, ex, in, q []float64
	for _, w := range all {
		n, ex = append(n, float64(w.N)), append(ex, w.Parallel/base.Parallel)
		q = append(q, w.Overhead*float64(w.N)/w.Parallel)
		f.Spread += w.Slowest * float64(w.N) / w.Parallel / float64(len(all))
		if base.Serial > 0 {
			in = append(in, w.Serial/base.Serial)
		}
	}
	if f.EX, err = FitLine(n, ex); err != nil {
		return nil, fmt.Errorf("ipso: EX: %w", err)
	}
	if base.Serial > 0 {
		if f.IN, err = FitStepped(n, in); err != nil {
			return nil, fmt.Errorf("ipso: IN: %w", err)
		}
	}
	if f.Beta, f.Gamma, err = fitQ(n, q); err != nil {
		return nil, fmt.Errorf("ipso: q: %w", err)
	}
	return f, nil
}

// baseline checks the measurements and returns that of n = 1.
func baseline(all []Workloads) (*Workloads, error) {
	var base *Workloads
	for i := range all {
		w := &all[i]
		switch {
		case w.N < 1 || w.N > DegreeMost:
			return nil, fmt.Errorf("ipso: %w: measurement %d: n is %d; it must be from 1 to %d", regress.ErrNumber, i, w.N, DegreeMost)
		case !(w.Parallel > 0 && w.Slowest > 0 && w.Serial >= 0 && w.Overhead >= 0) || math.IsInf(w.Parallel+w.Slowest+w.Serial+w.Overhead, 1):
			return nil, fmt.Errorf("ipso: %w: measurement %d: parallel work and slowest task must be above 0, serial work and overhead 0 or more", regress.ErrNumber, i)
		case w.N == 1:
			base = w
		}
	}
	if base == nil {
		return nil, fmt.Errorf("ipso: %w: no measurement at n = 1, the reference of the factors", regress.ErrTooFew)
	}
	return base, nil
}

// FitLine returns linear regression.
func FitLine(x, y []float64) (Line, error) {
	fit, err := regress.Solve(regress.Problem{
		Parameters: []regress.Parameter{{Name: "intercept", Low: -1e12, High: 1e12}, {Name: "slope", Low: -1e12, High: 1e12}},
		Rows:       len(x), Y: func(i int) float64 { return y[i] },
		Model:  func(p []float64, i int) float64 { return p[0] + p[1]*x[i] },
		Starts: [][]float64{{0, 0}},
	})
	if err != nil {
		return Line{}, err
	}
	return Line{fit.Estimates[0], fit.Estimates[1]}, nil
}

// sideLeast is how many points each side of a step needs for a line with bounds.
const sideLeast = 3

// stepped is the p-value, for all degrees that a step was sought at, below which there is one.
const stepped = 0.01

// FitStepped returns linear regression with at most one step, by Chow's test with Bonferroni's correction.
func FitStepped(x, y []float64) (Stepped, error) {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	sx, sy := make([]float64, len(x)), make([]float64, len(x))
	for i, k := range order {
		sx[i], sy[i] = x[k], y[k]
	}
	whole, err := FitLine(sx, sy)
	if err != nil {
		return Stepped{}, err
	}
	s, least, tried := Stepped{Above: whole}, math.Inf(1), 0
	for at := sideLeast; at <= len(sx)-sideLeast; at++ {
		below, err1 := FitLine(sx[:at], sy[:at])
		above, err2 := FitLine(sx[at:], sy[at:])
		if err1 != nil || err2 != nil || sx[at] == sx[at-1] {
			continue
		}
		tried++
		if sse := miss(&below, sx[:at], sy[:at]) + miss(&above, sx[at:], sy[at:]); sse < least {
			least, s = sse, Stepped{Below: below, Above: above, From: int(sx[at])}
		}
	}
	df := float64(len(sx) - 4)
	one := miss(&whole, sx, sy)
	rounding := float64(len(sx)) * math.Pow(exact*slices.Max(sy), 2)
	if tried == 0 || df < 1 || one <= rounding {
		return Stepped{Above: whole}, nil
	}
	ratio := (one - least) / 2 / (max(least, rounding) / df)
	if !(ratio > 0) || (distuv.F{D1: 2, D2: df}).Survival(ratio)*float64(tried) > stepped {
		return Stepped{Above: whole}, nil
	}
	return s, nil
}

// miss returns the sum of squared residuals.
func miss(l *Line, x, y []float64) (sse float64) {
	for i := range x {
		sse += (y[i] - l.At(x[i])) * (y[i] - l.At(x[i]))
	}
	return sse
}

// fitQ returns a straight line through the logarithms of the overheads above n = 1; none where none was measured.
func fitQ(n, q []float64) (beta, gamma regress.Estimate, err error) {
	var x, y []float64
	for i := range n {
		if n[i] > 1 && q[i] > 0 {
			x, y = append(x, math.Log(n[i])), append(y, math.Log(q[i]))
		}
	}
	beta, gamma = regress.Estimate{Name: "beta", P: math.NaN()}, regress.Estimate{Name: "gamma", P: math.NaN()}
	if len(x) == 0 {
		return beta, gamma, nil
	}
	l, err := FitLine(x, y)
	if err != nil {
		return beta, gamma, err
	}
	gamma, beta = l.Slope, l.Intercept
	gamma.Name, beta.Name = "gamma", "beta"
	beta.Value, beta.Low, beta.High, beta.P = math.Exp(beta.Value), math.Exp(beta.Low), math.Exp(beta.High), math.NaN()
	return beta, gamma, nil
}

// Model returns the asymptotic form. Where the confidence interval of a slope holds 0, the factor counts as constant.
func (f *Factors) Model() Model {
	m := Model{Eta: f.Eta, Alpha: 1, Beta: f.Beta.Value, Gamma: max(0, f.Gamma.Value)}
	grows := func(l *Line) bool { return l.Slope.Low > 0 }
	switch ex, in := grows(&f.EX), f.Eta < 1 && grows(&f.IN.Above); {
	case ex && in:
		m.Alpha = f.EX.Slope.Value / f.IN.Above.Slope.Value
	case ex:
		m.Delta = 1
		if f.Eta < 1 {
			m.Alpha = f.EX.Slope.Value / f.IN.Above.At(1)
		}
	}
	return m
}
