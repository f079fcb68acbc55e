package usba

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"headroom/jobs/scaling/regress"

	"gonum.org/v1/gonum/mat"
)

// Point is a measured speed-up of a job of size N on M units.
type Point struct {
	N, M    int
	Speedup float64
}

// Fitted is a surface fitted to speed-ups.
type Fitted struct {
	Model

	// Fit has the parameters in the order alpha, beta, gamma, eps, theta, r.
	*regress.Fit
}

// The parameters' places.
const (
	alpha = iota
	beta
	gamma
	eps
	theta
	ratio
)

func of(p []float64) Model {
	return Model{Alpha: p[alpha], Beta: p[beta], Gamma: p[gamma], Eps: p[eps], Theta: p[theta], R: p[ratio]}
}

// Fit fits (3.14) to speed-ups, by relative errors. held are parameters that are known, by name: the dissertation knows r, and
// gamma = 0 of SVM. Where speed-ups do not say how the launch grows, it is taken as constant: eps = 0.
func Fit(points []Point, held map[string]float64) (*Fitted, error) {
	used, most, err := check(points)
	if err != nil {
		return nil, err
	}
	whole, err := solve(used, most, held)
	if _, known := held["eps"]; known || (err != nil && !errors.Is(err, regress.ErrCollinear)) {
		return whole, err
	}
	constant := maps.Clone(held)
	if constant == nil {
		constant = map[string]float64{}
	}
	constant["eps"], constant["theta"] = 0, 1
	plain, failed := solve(used, most, constant)
	if failed != nil || (err == nil && cost(whole.Fit, len(used)) <= cost(plain.Fit, len(used))) {
		return whole, err
	}
	return plain, nil
}

// exact is the relative residual that counts as rounding.
const exact = 1e-7

// cost returns Schwarz's criterion: the less, the better the surface explains the points for its number of parameters.
func cost(f *regress.Fit, points int) float64 {
	n := float64(points)
	return n*math.Log(f.SSE/n+exact*exact) + (n-float64(f.DF))*math.Log(n)
}

func solve(used []Point, most float64, held map[string]float64) (*Fitted, error) {
	parameters := parameters(most)
	regress.Hold(parameters, held)
	fit, err := regress.Solve(regress.Problem{
		Parameters: parameters, Rows: len(used), Y: func(i int) float64 { return math.Log(used[i].Speedup) },
		Model: func(p []float64, i int) float64 {
			return math.Log(of(p).Speedup(float64(used[i].N), float64(used[i].M)))
		},
		Starts: starts(used, held),
	})
	if err != nil {
		return nil, fmt.Errorf("usba: %w", err)
	}
	return &Fitted{Model: of(fit.Values()), Fit: fit}, nil
}

// parameters returns those of the surface with the bounds of the search: no executor more makes the launch longer by more than the launch of
// the first, and neither launch nor stages are less than a hundredth of the other.
func parameters(most float64) []regress.Parameter {
	return []regress.Parameter{
		{Name: "alpha", Low: -1e3, High: 1e3},
		{Name: "beta", Low: -1e3, High: 1e3},
		{Name: "gamma", Low: -1e3, High: 1e3},
		{Name: "eps", Low: 0, High: 1},
		{Name: "theta", Low: 1, High: max(2, most)},
		{Name: "r", Low: 0.01, High: 100},
	}
}

// check returns the points that say something, and their largest degree: at N = m = 1 every surface is 1.
func check(points []Point) (used []Point, most float64, err error) {
	for i, p := range points {
		switch {
		case p.N < 1 || p.N > sizeMost:
			return nil, 0, fmt.Errorf("usba: %w: points[%d]: n is %d; it must be from 1 to %d", regress.ErrNumber, i, p.N, sizeMost)
		case p.M < 1 || p.M > sizeMost:
			return nil, 0, fmt.Errorf("usba: %w: points[%d]: m is %d; it must be from 1 to %d", regress.ErrNumber, i, p.M, sizeMost)
		case !(p.Speedup > 0) || math.IsInf(p.Speedup, 1):
			return nil, 0, fmt.Errorf("usba: %w: points[%d]: speedup is %v; it must be above 0", regress.ErrNumber, i, p.Speedup)
		case p.N > 1 || p.M > 1:
			used, most = append(used, p), max(most, float64(p.M))
		}
	}
	return used, most, nil
}

// starts are, for launches from short to long and thresholds from low to high, the solutions of the linear rest: with r and theta
// given, (r+N)/S is linear in the others.
func starts(points []Point, held map[string]float64) (all [][]float64) {
	degrees := map[int]bool{}
	for _, p := range points {
		degrees[p.M] = true
	}
	var thresholds []float64
	for d := range degrees {
		thresholds = append(thresholds, float64(d), 0.6*float64(d))
	}
	slices.Sort(thresholds)
	for _, r := range known(held, "r", []float64{0.03, 0.2, 0.6, 1, 3, 10}) {
		for _, at := range known(held, "theta", thin(thresholds)) {
			all = append(all, linear(points, r, at))
		}
		// A linear solution may give the job no time at some point; this one never does.
		all = append(all, []float64{1, 0.05, 0, 0.05, 10, r})
	}
	return all
}

// thresholdsMost is how many starting points for theta are enough: the surface changes smoothly between them.
const thresholdsMost = 12

// thin keeps some of sorted values, the least and the largest among them.
func thin(values []float64) []float64 {
	if len(values) <= thresholdsMost {
		return values
	}
	var kept []float64
	for i := range thresholdsMost {
		kept = append(kept, values[i*(len(values)-1)/(thresholdsMost-1)])
	}
	return kept
}

func known(held map[string]float64, name string, guesses []float64) []float64 {
	if x, ok := held[name]; ok {
		return []float64{x}
	}
	return guesses
}

// linear solves for alpha, beta, gamma and eps, weighted as relative errors of the speed-up are.
func linear(points []Point, r, at float64) []float64 {
	a, y := mat.NewDense(len(points), 4, nil), mat.NewVecDense(len(points), nil)
	for i, p := range points {
		n, m := float64(p.N), float64(p.M)
		w := p.Speedup / (r + n)
		a.SetRow(i, []float64{w * math.Log(n/m), w * (m - 1), w * (n - 1), w * r * (min(m, at) - 1)})
		y.SetVec(i, w*((r+n)/p.Speedup-r-1))
	}
	start := []float64{1, 0.05, 0, 0.05, at, r}
	var svd mat.SVD
	if !svd.Factorize(a, mat.SVDThin) {
		return start
	}
	rank := svd.Rank(1e-9)
	if rank == 0 {
		return start
	}
	var x mat.VecDense
	svd.SolveVecTo(&x, y, rank)
	for i := alpha; i <= eps; i++ {
		start[i] = x.AtVec(i)
	}
	return start
}

// Predict returns the speed-up of a job, with the bounds within which 95 of 100 further measurements lie.
func (f *Fitted) Predict(n, m int) (speedup, low, high float64) {
	if n == 1 && m == 1 {
		return 1, 1, 1
	}
	speedup, low, high = f.Fit.Predict(func(p []float64) float64 { return math.Log(of(p).Speedup(float64(n), float64(m))) })
	return math.Exp(speedup), math.Exp(low), math.Exp(high)
}
