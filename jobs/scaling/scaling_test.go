// Claims: each model gives back the curve that its points were made of; the degree is n, or m where n or n/m is fixed; given
// parameters and fitted ones are asked alike; what cannot be is refused with its reason.
package scaling_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/scaling"
)

// made are points of a curve.
func made(t *testing.T, model string, parameters map[string]float64, at [][2]int) (points []scaling.Point) {
	t.Helper()
	c := testkit.Need(scaling.Given(model, parameters))(t)
	for _, x := range at {
		points = append(points, scaling.Point{N: x[0], M: x[1], Speedup: c.Speedup(x[0], x[1])})
	}
	return points
}

func TestFitGivesTheCurveBack(t *testing.T) {
	t.Parallel()
	line := [][2]int{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {16, 0}, {32, 0}, {64, 0}}
	var area [][2]int
	for n := 1; n <= 128; n *= 2 {
		for m := n; m >= max(1, n/8); m /= 2 {
			area = append(area, [2]int{n, m})
		}
	}
	for model, x := range map[string]struct {
		parameters map[string]float64
		at         [][2]int
		kind       string
		peaked     bool
	}{
		scaling.Amdahl:    {map[string]float64{"eta": 0.9}, line, "III,1", false},
		scaling.Gustafson: {map[string]float64{"eta": 0.9}, line, "I", false},
		scaling.SunNi:     {map[string]float64{"eta": 0.9, "g": 0.5}, line, "II", false},
		scaling.IPSO:      {map[string]float64{"eta": 1, "delta": 1, "beta": 0.001, "gamma": 1.7}, line, "IV", true},
		scaling.USBA:      {map[string]float64{"r": 0.8, "alpha": 2, "beta": 0.08, "gamma": -0.01, "eps": 0.05, "theta": 12}, area, "IV", true},
	} {
		c := testkit.Need(scaling.Fit(model, made(t, model, x.parameters, x.at)))(t)
		for name, want := range x.parameters {
			if p := c.Parameters[name]; math.Abs(p.Value-want) > 1e-3 || p.Low > p.Value || p.High < p.Value {
				t.Errorf("%s: %s is %+v, want %v", model, name, p, want)
			}
		}
		_, _, ok := c.Peak(0)
		if c.Type != x.kind || ok != x.peaked || c.RMSE > 1e-4 {
			t.Errorf("%s: type %s, peak %v, RMSE %g", model, c.Type, ok, c.RMSE)
		}
		n, m := 200, 100
		if s, low, high := c.Predict(n, m); math.Abs(s-c.Speedup(n, m)) > 1e-9*s || low > s || high < s {
			t.Errorf("%s: %v from %v to %v, and %v", model, s, low, high, c.Speedup(n, m))
		}
	}
}

// Section 2.5.2: with N fixed, or N/m fixed, the degree is m.
func TestDegree(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		at       [][2]int
		n, m, of int
	}{
		"n alone":    {[][2]int{{2, 0}, {4, 0}, {8, 0}}, 16, 0, 16},
		"m the same": {[][2]int{{2, 1}, {4, 1}, {8, 1}}, 16, 1, 16},
		"n the same": {[][2]int{{64, 2}, {64, 4}, {64, 8}}, 64, 16, 16},
		"one ratio":  {[][2]int{{8, 2}, {16, 4}, {32, 8}}, 64, 16, 16},
	} {
		var points []scaling.Point
		want := testkit.Need(scaling.Given(scaling.Amdahl, map[string]float64{"eta": 0.9}))(t)
		for i, p := range x.at {
			points = append(points, scaling.Point{N: p[0], M: p[1], Speedup: want.At(0, []int{2, 4, 8}[i])})
		}
		c := testkit.Need(scaling.Fit(scaling.Amdahl, points))(t)
		if s := c.Speedup(x.n, x.m); math.Abs(s-want.At(0, x.of)) > 1e-6 || math.Abs(c.At(7, x.of)-s) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, s, want.At(0, x.of))
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	two := []scaling.Point{{N: 2, Speedup: 1.8}, {N: 4, Speedup: 3}, {N: 8, Speedup: 5}}
	for text, try := range map[string]func() error{
		"want one of ipso":   func() error { _, err := scaling.Fit("law", two); return err },
		"no parameter \"x\"": func() error { _, err := scaling.FitHeld(scaling.IPSO, two, map[string]float64{"x": 1}); return err },
		"lie on no line": func() error {
			_, err := scaling.Fit(scaling.IPSO, []scaling.Point{{2, 1, 1}, {4, 3, 2}, {9, 4, 3}})
			return err
		},
		"m is missing":    func() error { _, err := scaling.Fit(scaling.USBA, two); return err },
		"given in 1 of 2": func() error { _, err := scaling.Fit(scaling.IPSO, []scaling.Point{{2, 1, 1}, {4, 0, 2}}); return err },
		"m is -1":         func() error { _, err := scaling.Fit(scaling.IPSO, []scaling.Point{{2, -1, 1}}); return err },
		"parameter eta":   func() error { _, err := scaling.Given(scaling.IPSO, nil); return err },
		"parameter r":     func() error { _, err := scaling.Given(scaling.USBA, nil); return err },
		"eta is 3":        func() error { _, err := scaling.Given(scaling.Amdahl, map[string]float64{"eta": 3}); return err },
		"gamma is -1": func() error {
			_, err := scaling.Given(scaling.IPSO, map[string]float64{"eta": 1, "gamma": -1})
			return err
		},
		"points[1]: speedup": func() error {
			_, err := scaling.Fit(scaling.IPSO, []scaling.Point{{N: 2, Speedup: 1}, {N: 3}})
			return err
		},
		"has no parameter \"g": func() error {
			_, err := scaling.Given(scaling.Amdahl, map[string]float64{"eta": 1, "g": 1})
			return err
		},
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), text) ||
			!(errors.Is(err, scaling.ErrNumber) || errors.Is(err, scaling.ErrTooFew) || errors.Is(err, scaling.ErrCollinear)) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}
