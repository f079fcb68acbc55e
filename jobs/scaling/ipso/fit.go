package ipso

import (
	"fmt"
	"math"

	"headroom/jobs/scaling/regress"
)

// Point is a measured speed-up.
type Point struct {
	N       int
	Speedup float64
}

// Fitted is a model fitted to speed-ups.
type Fitted struct {
	Model

	// Fit has the parameters in the order eta, alpha, delta, beta, gamma.
	*regress.Fit
}

const (
	// caution is what a parameter costs in the choice of a model beyond Schwarz's ln(points): without it, noise of 3 % on six
	// Amdahl points looks like a peak in a third of the cases, with it in one of ten.
	caution = 5
	// exact is the residual, relative to the largest speed-up, that counts as rounding.
	exact = 1e-7
)

// family returns the models that are tried, simplest first: what each of them holds fixed. alpha and eta appear only as
// eta*alpha/(1-eta), and the speed-up is 1 at n = 1, so alpha is 1.
func family(held map[string]float64) []map[string]float64 {
	all := []map[string]float64{
		{"eta": 1, "delta": 1, "beta": 0, "gamma": 0}, // n
		{"delta": 0, "beta": 0, "gamma": 0},           // Amdahl
		{"delta": 1, "beta": 0, "gamma": 0},           // Gustafson
		{"eta": 1, "delta": 1, "gamma": 1},            // bounded by overhead alone
		{"beta": 0, "gamma": 0},                       // in proportion alone
		{"eta": 1, "delta": 1},                        // overhead alone (2.17)
		{"delta": 0, "gamma": 1},
		{"delta": 1, "gamma": 1},
		{"delta": 0}, // fixed size
		{"delta": 1}, // fixed time
		{},
	}
	var kept []map[string]float64
	for _, fixed := range all {
		if agree(fixed, held) {
			kept = append(kept, fixed)
		}
	}
	return kept
}

// agree adds what is held to a model's own, unless they contradict each other.
func agree(fixed, held map[string]float64) bool {
	for name, x := range held {
		if y, ok := fixed[name]; ok && y != x {
			return false
		}
		fixed[name] = x
	}
	return true
}

// Fit fits (2.16) to speed-ups. held are parameters that are known, by name. Of the nested models that is taken which
// explains the points best for its number of parameters.
func Fit(points []Point, held map[string]float64) (*Fitted, error) {
	used, err := check(points)
	if err != nil {
		return nil, err
	}
	var best *Fitted
	var failed error
	for _, fixed := range family(held) {
		f, err := solve(used, fixed)
		if err != nil {
			if failed == nil {
				failed = err
			}
			continue
		}
		if best == nil || cost(f.Fit, used) < cost(best.Fit, used) {
			best = f
		}
	}
	if best == nil {
		if failed == nil {
			failed = fmt.Errorf("%w: these parameters cannot be fixed together", regress.ErrNumber)
		}
		return nil, fmt.Errorf("ipso: %w", failed)
	}
	return best, nil
}

// Law fits one form of the model: what is fixed by name, no other form is tried.
func Law(points []Point, fixed map[string]float64) (*Fitted, error) {
	used, err := check(points)
	if err != nil {
		return nil, err
	}
	f, err := solve(used, fixed)
	if err != nil {
		return nil, fmt.Errorf("ipso: %w", err)
	}
	return f, nil
}

// check returns the points that say something: not those at n = 1, where every model gives 1.
func check(points []Point) ([]Point, error) {
	var used []Point
	degrees := map[int]bool{}
	for i, p := range points {
		switch {
		case p.N < 1 || p.N > DegreeMost:
			return nil, fmt.Errorf("ipso: %w: points[%d]: n is %d; it must be from 1 to %d", regress.ErrNumber, i, p.N, DegreeMost)
		case !(p.Speedup > 0) || math.IsInf(p.Speedup, 1):
			return nil, fmt.Errorf("ipso: %w: points[%d]: speedup is %v; it must be above 0", regress.ErrNumber, i, p.Speedup)
		case p.N > 1:
			used = append(used, p)
			degrees[p.N] = true
		}
	}
	if len(degrees) == 1 && len(used) > 1 {
		return nil, fmt.Errorf("ipso: %w: all have n = %d; measure at other degrees", regress.ErrCollinear, used[0].N)
	}
	if len(degrees) < 2 {
		return nil, fmt.Errorf("ipso: %w: %d above n = 1; measure at two or more degrees (three to find the peak)", regress.ErrTooFew, len(degrees))
	}
	return used, nil
}

// cost returns Schwarz's criterion with caution: the less, the better the model explains the points for its number of parameters.
func cost(f *regress.Fit, points []Point) float64 {
	most, n := 0.0, float64(len(points))
	for _, p := range points {
		most = max(most, p.Speedup)
	}
	return n*math.Log(f.SSE/n+exact*exact*most*most) + (n-float64(f.DF))*(caution+math.Log(n))
}

// solve fits one model of the family.
func solve(points []Point, fixed map[string]float64) (*Fitted, error) {
	parameters := []regress.Parameter{
		{Name: "eta", Low: 0, High: 1},
		{Name: "alpha", Fixed: new(1.0)},
		{Name: "delta", Low: 0, High: 1},
		{Name: "beta", Low: 0, High: 1e3},
		{Name: "gamma", Low: 1e-3, High: 6},
	}
	regress.Hold(parameters, fixed)
	fit, err := regress.Solve(regress.Problem{
		Parameters: parameters, Rows: len(points), Y: func(i int) float64 { return points[i].Speedup },
		Model:  func(p []float64, i int) float64 { return of(p).Speedup(float64(points[i].N)) },
		Starts: starts(points),
	})
	if err != nil {
		return nil, err
	}
	return &Fitted{Model: of(fit.Values()), Fit: fit}, nil
}

func of(p []float64) Model {
	return Model{Eta: p[0], Alpha: p[1], Delta: p[2], Beta: p[3], Gamma: p[4]}
}

// starts returns starting points all over the range: overheads that cost half the speed-up around the degrees that were measured.
func starts(points []Point) (all [][]float64) {
	most := 0.0
	for _, p := range points {
		most = max(most, float64(p.N))
	}
	for _, eta := range []float64{0.5, 0.95} {
		for _, delta := range []float64{0.2, 0.7} {
			for _, gamma := range []float64{0.5, 1.2, 2} {
				all = append(all, []float64{eta, 1, delta, math.Pow(most, -gamma), gamma})
			}
		}
	}
	return all
}

// Predict returns the speed-up at a degree, with the bounds within which 95 of 100 further measurements lie.
func (f *Fitted) Predict(n int) (speedup, low, high float64) {
	if n == 1 {
		return 1, 1, 1
	}
	speedup, low, high = f.Fit.Predict(func(p []float64) float64 { return of(p).Speedup(float64(n)) })
	return speedup, max(0, low), high
}
