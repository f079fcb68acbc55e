// Claims: a straight line is fitted with the bounds and p-values of the textbook; a model that is not linear is found
// from afar; bounds hold; what cannot be told apart, or from too few rows, is an error that names it.
package regress_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/scaling/regress"
)

func line(x, y []float64) regress.Problem {
	return regress.Problem{
		Parameters: []regress.Parameter{{Name: "a", Low: -1e6, High: 1e6}, {Name: "b", Low: -1e6, High: 1e6}},
		Rows:       len(x), Y: func(i int) float64 { return y[i] },
		Model:  func(p []float64, i int) float64 { return p[0] + p[1]*x[i] },
		Starts: [][]float64{{0, 0}},
	}
}

// R: x <- 1:5; y <- c(2.1, 3.9, 6.2, 7.8, 10.1); summary(lm(y ~ x)); confint; predict(interval = "prediction").
func TestLine(t *testing.T) {
	t.Parallel()
	f := testkit.Need(regress.Solve(line([]float64{1, 2, 3, 4, 5}, []float64{2.1, 3.9, 6.2, 7.8, 10.1})))(t)
	b := f.Estimates[1]
	// By hand: b = 19.9/10, residual variance 0.107/3, se(b) = sqrt(0.03567/10) = 0.05972, t(3) = 3.18245.
	if math.Abs(b.Value-1.99) > 1e-9 || math.Abs(b.Low-(1.99-3.18245*0.0597216)) > 1e-4 || math.Abs(b.High-(1.99+3.18245*0.0597216)) > 1e-4 {
		t.Errorf("slope %+v", b)
	}
	if b.P > 1e-3 || f.Estimates[0].P < 0.5 || f.DF != 3 {
		t.Errorf("p of the slope %g, of the intercept %g, df %d", b.P, f.Estimates[0].P, f.DF)
	}
	// A further measurement at x = 6: variance 0.03567*(1 + 1/5 + 9/10).
	v, low, high := f.Predict(func(p []float64) float64 { return p[0] + 6*p[1] })
	half := 3.18245 * math.Sqrt(0.107/3*2.1)
	if math.Abs(v-11.99) > 1e-8 || math.Abs(high-low-2*half) > 1e-4 {
		t.Errorf("%v from %v to %v, want 11.99 and %v", v, low, high, 2*half)
	}
}

func TestCurveFromAfar(t *testing.T) {
	t.Parallel()
	p := regress.Problem{
		Parameters: []regress.Parameter{{Name: "a", Low: 0, High: 100}, {Name: "b", Low: 0, High: 5}},
		Rows:       12, Y: func(i int) float64 { return 3 * math.Pow(float64(i+1), 1.7) },
		Model:  func(p []float64, i int) float64 { return p[0] * math.Pow(float64(i+1), p[1]) },
		Starts: [][]float64{{50, 0.1}},
	}
	f := testkit.Need(regress.Solve(p))(t)
	if v := f.Values(); math.Abs(v[0]-3) > 1e-6 || math.Abs(v[1]-1.7) > 1e-6 {
		t.Errorf("%v", v)
	}
	p.Parameters[1].High = 1.5
	f = testkit.Need(regress.Solve(p))(t)
	if e := f.Estimates[1]; e.Value != 1.5 || e.Free || !math.IsNaN(e.P) {
		t.Errorf("a parameter at its bound: %+v", e)
	}
	p.Parameters[1].Fixed = new(1.7)
	f = testkit.Need(regress.Solve(p))(t)
	if e := f.Estimates[0]; math.Abs(e.Value-3) > 1e-6 || f.Estimates[1].Value != 1.7 || f.DF != 11 {
		t.Errorf("with a fixed exponent: %+v", f.Estimates)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	_, err := regress.Solve(line([]float64{1, 2}, []float64{1, 2}))
	if !errors.Is(err, regress.ErrTooFew) || !strings.Contains(err.Error(), "at least 3") {
		t.Error(err)
	}
	_, err = regress.Solve(line([]float64{2, 2, 2}, []float64{1, 2, 3}))
	if !errors.Is(err, regress.ErrCollinear) || !strings.Contains(err.Error(), "a, b") {
		t.Error(err)
	}
	_, err = regress.Solve(line([]float64{0, 0, 0}, []float64{1, 2, 3}))
	if !errors.Is(err, regress.ErrCollinear) || !strings.Contains(err.Error(), "determine b") {
		t.Error(err)
	}
	_, err = regress.Solve(line([]float64{1, 2, 3}, []float64{1, 2, math.NaN()}))
	if !errors.Is(err, regress.ErrNumber) {
		t.Error(err)
	}
}
