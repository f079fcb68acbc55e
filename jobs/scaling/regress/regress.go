package regress

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// Confidence is how sure bounds are to hold their value.
	Confidence = 0.95
	// stepsMost bounds the steps from one starting point: a fit that converges takes tens.
	stepsMost = 200
	// converged is the relative gain of a step below which the search ends.
	converged = 1e-13
	// flat is the ratio of the singular values of the scaled Jacobian below which parameters count as collinear:
	// numeric derivatives are exact to about 1e-9.
	flat = 1e-6
	// part is the step of numeric derivatives, relative to a parameter's size: the cube root of the precision.
	part = 6e-6
)

// Parameter is one parameter of a model.
type Parameter struct {
	Name string
	// Low and High bound the search, both included.
	Low, High float64
	// Fixed holds the parameter at a value; nil where it is to be fitted.
	Fixed *float64
}

// Hold fixes the parameters that are known, by name.
func Hold(parameters []Parameter, known map[string]float64) {
	for i := range parameters {
		if x, ok := known[parameters[i].Name]; ok {
			parameters[i].Fixed = new(x)
		}
	}
}

// Problem is what to fit.
type Problem struct {
	Parameters []Parameter
	// Rows is how many measurements there are; Y is what was measured, and Model what parameters make of a row.
	Rows  int
	Y     func(row int) float64
	Model func(p []float64, row int) float64
	// Starts are the starting points, at least one, each a value for each parameter.
	Starts [][]float64
}

// Estimate is a fitted parameter.
type Estimate struct {
	Name  string
	Value float64
	// Low and High are the bounds of the 95 % confidence interval, cut at those of the search.
	Low, High float64
	// P is the p-value of the hypothesis that the parameter is 0; NaN where Free is false.
	P float64
	// Free reports whether the parameter was fitted: false where it was fixed, or the best fit has it at a bound.
	Free bool
}

// Fit is the best fit.
type Fit struct {
	Estimates []Estimate
	// SSE is the sum of squared residuals, RMSE the root of their mean, DF the degrees of freedom.
	SSE, RMSE float64
	DF        int

	values   []float64
	free     []int
	cov      *mat.Dense // of the free parameters
	variance float64    // of a measurement
	problem  Problem
}

// Values returns the values of all parameters, in their order.
func (f *Fit) Values() []float64 { return append([]float64(nil), f.values...) }

// Solve finds the least squares from the best of the starting points.
func Solve(p Problem) (*Fit, error) {
	free := p.free()
	if p.Rows < len(free)+1 {
		return nil, tooFew(p.Rows, len(free))
	}
	var best []float64
	least := math.Inf(1)
	for _, start := range p.Starts {
		at, sse := p.descend(p.clip(start), free)
		if sse < least {
			best, least = at, sse
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: the model has no value at any starting point", ErrNumber)
	}
	return p.conclude(best, least)
}

// free returns the parameters that are not fixed.
func (p *Problem) free() (free []int) {
	for i := range p.Parameters {
		if p.Parameters[i].Fixed == nil {
			free = append(free, i)
		}
	}
	return free
}

// clip returns a starting point inside the bounds, with fixed values in place.
func (p *Problem) clip(start []float64) []float64 {
	at := make([]float64, len(p.Parameters))
	for i := range p.Parameters {
		q := &p.Parameters[i]
		if q.Fixed != nil {
			at[i] = *q.Fixed
			continue
		}
		at[i] = min(max(start[i], q.Low), q.High)
	}
	return at
}

// residuals returns measured minus modelled, and the sum of their squares; infinite where the model has no value.
func (p *Problem) residuals(at []float64) (r []float64, sse float64) {
	r = make([]float64, p.Rows)
	for row := range r {
		r[row] = p.Y(row) - p.Model(at, row)
		sse += r[row] * r[row]
	}
	if math.IsNaN(sse) {
		sse = math.Inf(1)
	}
	return r, sse
}

// descend returns Levenberg and Marquardt's method, inside the bounds.
func (p *Problem) descend(at []float64, free []int) ([]float64, float64) {
	r, sse := p.residuals(at)
	if math.IsInf(sse, 1) || len(free) == 0 {
		return at, sse
	}
	damping, j := 1e-3, p.jacobian(at, free)
	for range stepsMost {
		next, ok := p.step(at, free, j, r, damping)
		if !ok {
			break
		}
		nr, nsse := p.residuals(next)
		if !(nsse < sse) {
			if damping *= 10; damping > 1e12 {
				break
			}
			continue
		}
		gain := (sse - nsse) / sse
		at, r, sse, damping = next, nr, nsse, max(damping/10, 1e-15)
		if gain < converged {
			break
		}
		j = p.jacobian(at, free)
	}
	return at, sse
}

// step returns the damped Gauss-Newton step of the parameters that are not held by a bound; j is the Jacobian and r the residuals.
func (p *Problem) step(at []float64, free []int, j [][]float64, r []float64, damping float64) ([]float64, bool) {
	moving := p.moving(at, free, j, r)
	if len(moving) == 0 {
		return nil, false
	}
	normal, rhs := mat.NewDense(len(moving), len(moving), nil), mat.NewVecDense(len(moving), nil)
	for a, ca := range moving {
		for b, cb := range moving {
			normal.Set(a, b, dot(j[ca], j[cb]))
		}
		rhs.SetVec(a, dot(j[ca], r))
		d := normal.At(a, a)
		normal.Set(a, a, d*(1+damping)+math.SmallestNonzeroFloat32)
	}
	var delta mat.VecDense
	if err := delta.SolveVec(normal, rhs); err != nil {
		if _, near := err.(mat.Condition); !near { //nolint:errorlint // gonum returns it unwrapped
			return nil, false
		}
	}
	next := append([]float64(nil), at...)
	for a, c := range moving {
		i := free[c]
		next[i] = min(max(next[i]+delta.AtVec(a), p.Parameters[i].Low), p.Parameters[i].High)
		if math.IsNaN(next[i]) {
			return nil, false
		}
	}
	return next, true
}

// moving returns the columns of the free parameters that no bound holds: one at a bound may only move inside.
func (p *Problem) moving(at []float64, free []int, j [][]float64, r []float64) (moving []int) {
	for c, i := range free {
		q, slope := &p.Parameters[i], dot(j[c], r)
		if (at[i] <= q.Low && slope <= 0) || (at[i] >= q.High && slope >= 0) {
			continue
		}
		moving = append(moving, c)
	}
	return moving
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// jacobian has a column of derivatives for each free parameter.
func (p *Problem) jacobian(at []float64, free []int) [][]float64 {
	columns := make([][]float64, len(free))
	for c, i := range free {
		columns[c] = make([]float64, p.Rows)
		for row := range columns[c] {
			columns[c][row] = p.slope(at, i, func(q []float64) float64 { return p.Model(q, row) })
		}
	}
	return columns
}

// slope returns the derivative by parameter i, central where the bounds leave room.
func (p *Problem) slope(at []float64, i int, of func([]float64) float64) float64 {
	q := &p.Parameters[i]
	h := part * max(math.Abs(at[i]), 1e-3)
	low, high := append([]float64(nil), at...), append([]float64(nil), at...)
	low[i], high[i] = max(at[i]-h, q.Low), min(at[i]+h, q.High)
	if low[i] == high[i] {
		return 0
	}
	return (of(high) - of(low)) / (high[i] - low[i])
}

// conclude returns the fit at its end: with the covariance of the parameters that no bound holds.
func (p *Problem) conclude(at []float64, sse float64) (*Fit, error) {
	var inside []int
	for _, i := range p.free() {
		if q := &p.Parameters[i]; at[i] > q.Low && at[i] < q.High {
			inside = append(inside, i)
		}
	}
	f := &Fit{
		SSE: sse, RMSE: math.Sqrt(sse / float64(p.Rows)), DF: p.Rows - len(p.free()), values: at, free: inside, problem: *p,
	}
	f.variance = sse / float64(f.DF)
	if err := f.covariance(); err != nil {
		return nil, err
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(f.DF)}
	wide := t.Quantile((1 + Confidence) / 2)
	for i := range p.Parameters {
		q := &p.Parameters[i]
		e := Estimate{Name: q.Name, Value: at[i], Low: at[i], High: at[i], P: math.NaN()}
		if c := slices.Index(inside, i); c >= 0 {
			se := math.Sqrt(max(0, f.cov.At(c, c)))
			e.Free, e.Low, e.High, e.P = true, max(q.Low, at[i]-wide*se), min(q.High, at[i]+wide*se), 0
			if se > 0 {
				e.P = 2 * t.Survival(math.Abs(at[i])/se)
			}
		}
		f.Estimates = append(f.Estimates, e)
	}
	return f, nil
}

// covariance is that of the free parameters, by the singular values of the Jacobian with columns of length 1.
func (f *Fit) covariance() error {
	k := len(f.free)
	f.cov = &mat.Dense{}
	if k == 0 {
		return nil
	}
	j := f.problem.jacobian(f.values, f.free)
	scaled, norms := mat.NewDense(f.problem.Rows, k, nil), make([]float64, k)
	for c := range j {
		norms[c] = math.Sqrt(dot(j[c], j[c]))
		if norms[c] == 0 {
			return collinear([]string{f.name(c)})
		}
		for row, x := range j[c] {
			scaled.Set(row, c, x/norms[c])
		}
	}
	var svd mat.SVD
	if !svd.Factorize(scaled, mat.SVDThin) {
		return fmt.Errorf("%w: the derivatives at the best fit are not finite", ErrNumber)
	}
	s := svd.Values(nil)
	var v mat.Dense
	svd.VTo(&v)
	if s[k-1] < flat*s[0] {
		return collinear(f.involved(&v, k-1))
	}
	f.cov = mat.NewDense(k, k, nil)
	for a := range k {
		for b := range k {
			sum := 0.0
			for d := range k {
				sum += v.At(a, d) * v.At(b, d) / (s[d] * s[d])
			}
			f.cov.Set(a, b, sum*f.variance/norms[a]/norms[b])
		}
	}
	return nil
}

func (f *Fit) name(c int) string { return f.problem.Parameters[f.free[c]].Name }

// involved returns the parameters of a direction in which the model does not change.
func (f *Fit) involved(v *mat.Dense, direction int) (names []string) {
	for c := range f.free {
		if math.Abs(v.At(c, direction)) > 0.1 {
			names = append(names, f.name(c))
		}
	}
	return names
}

// Predict returns what a model makes of the fitted parameters, with the bounds within which 95 of 100 further measurements lie:
// those of the parameters and those of one measurement.
func (f *Fit) Predict(model func(p []float64) float64) (value, low, high float64) {
	value = model(f.values)
	slopes := make([]float64, len(f.free))
	for c, i := range f.free {
		slopes[c] = f.problem.slope(f.values, i, model)
	}
	variance := f.variance
	for a := range slopes {
		for b := range slopes {
			variance += slopes[a] * slopes[b] * f.cov.At(a, b)
		}
	}
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(f.DF)}.Quantile((1+Confidence)/2) * math.Sqrt(max(0, variance))
	return value, value - half, value + half
}
