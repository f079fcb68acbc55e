// Claims: the surface is 1 at N = m = 1; with Table 3.1's parameters and one r it is Table 3.3's USBA column within the rounding of
// the printed parameters; speed-ups made of Table 3.1's parameters give the parameters back; the measured column of Table 3.3 is
// fitted within the dissertation's bounds; the relative speed-up is (3.11); what cannot be fitted is refused with its reason.
package usba_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/scaling/regress"
	"headroom/jobs/scaling/usba"

	"pgregory.net/rapid"
)

// printed are Table 3.1 (a), with r by least squares on Table 3.3's USBA column.
func printed() map[string]usba.Model {
	return map[string]usba.Model{
		"Bayes":   {R: 0.557, Alpha: 1.58, Beta: 0.051, Gamma: -0.006, Eps: 0.044, Theta: 19.09},
		"RF":      {R: 0.825, Alpha: 1.938, Beta: 0.074, Gamma: -0.009, Eps: 0.04389, Theta: 18.983},
		"SVM":     {R: 2.279, Alpha: 0.807, Beta: 0.14, Eps: 0.037, Theta: 19.905},
		"NWeight": {R: 0.792, Alpha: 2.505, Beta: 0.106, Gamma: -0.022, Eps: 0.04, Theta: 19.516},
	}
}

// grid is the dissertation's: m is 1, 1/2, 1/4 and 1/8 of N.
func grid(m usba.Model, most int) (points []usba.Point) {
	for n := 1; n <= most; n *= 2 {
		for d := n; d >= 1 && d >= n/8; d /= 2 {
			points = append(points, usba.Point{N: n, M: d, Speedup: m.Speedup(float64(n), float64(d))})
		}
	}
	return points
}

func TestTable31IsFound(t *testing.T) {
	t.Parallel()
	for name, m := range printed() {
		f := testkit.Need(usba.Fit(grid(m, 256), nil))(t)
		for _, x := range []struct{ got, want float64 }{
			{f.R, m.R}, {f.Alpha, m.Alpha}, {f.Beta, m.Beta}, {f.Gamma, m.Gamma}, {f.Eps, m.Eps}, {f.Theta, m.Theta},
		} {
			if math.Abs(x.got-x.want) > 1e-3*max(math.Abs(x.want), 0.1) {
				t.Errorf("%s: %+v, want %+v", name, f.Model, m)
			}
		}
	}
}

// The printed USBA column, and the deviation that the rounding of the parameters explains.
func TestTable33(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ n, m, bayes, rf, svm, nweight float64 }{
		{1, 1, 1, 1, 1, 1}, {8, 8, 4, 3.3, 2, 3.3}, {64, 32, 15.3, 12, 7, 11}, {128, 32, 26.2, 21, 13.1, 20.7}, {256, 256, 19.1, 13.5, 6.3, 10.7},
	} {
		for name, want := range map[string]float64{"Bayes": x.bayes, "RF": x.rf, "SVM": x.svm, "NWeight": x.nweight} {
			if got := printed()[name].Speedup(x.n, x.m); math.Abs(got/want-1) > 0.06 {
				t.Errorf("%s at %v, %v: %v, printed %v", name, x.n, x.m, got, want)
			}
		}
	}
}

func TestOneAtOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := usba.Model{
			R: rapid.Float64Range(0.01, 100).Draw(t, "r"), Alpha: rapid.Float64Range(0, 5).Draw(t, "alpha"),
			Beta: rapid.Float64Range(0, 1).Draw(t, "beta"), Eps: rapid.Float64Range(0, 1).Draw(t, "eps"), Theta: rapid.Float64Range(1, 50).Draw(t, "theta"),
		}
		if p, q, s := m.P(1, 1), m.Q(1), m.Speedup(1, 1); math.Abs(p-1) > 1e-12 || math.Abs(q-1) > 1e-12 || math.Abs(s-1) > 1e-12 {
			t.Errorf("p %v, q %v, S %v", p, q, s)
		}
		n := float64(rapid.IntRange(1, 500).Draw(t, "N"))
		if a, b := m.Relative(n, n, 1), m.Speedup(n, n)/m.Speedup(n, 1); math.Abs(a-b) > 1e-12 {
			t.Errorf("(3.11): %v, %v", a, b)
		}
	})
}

func TestPeak(t *testing.T) {
	t.Parallel()
	m := printed()["NWeight"]
	d, s, ok := m.Peak(256)
	if !ok || s < m.Speedup(256, float64(d+1)) || s < m.Speedup(256, float64(d-1)) {
		t.Errorf("peak %v at %d, %v", s, d, ok)
	}
	if _, _, ok := (usba.Model{R: 1, Alpha: 1, Theta: 1}).Peak(64); ok {
		t.Error("a surface that only rises has a peak")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	m := printed()["Bayes"]
	var diagonal []usba.Point
	for n := 1; n <= 1024; n *= 2 {
		diagonal = append(diagonal, usba.Point{N: n, M: n, Speedup: m.Speedup(float64(n), float64(n))})
	}
	for _, x := range []struct {
		points []usba.Point
		want   error
		text   string
	}{
		{diagonal, regress.ErrCollinear, "alpha"},
		{grid(m, 4), regress.ErrTooFew, "measure at least"},
		{nil, regress.ErrTooFew, "0 usable points"},
		{[]usba.Point{{N: 0, M: 1, Speedup: 1}}, regress.ErrNumber, "points[0]: n is 0"},
		{[]usba.Point{{N: 1, M: -1, Speedup: 1}}, regress.ErrNumber, "points[0]: m is -1"},
		{[]usba.Point{{N: 2, M: 1, Speedup: math.NaN()}}, regress.ErrNumber, "points[0]: speedup is NaN"},
		{[]usba.Point{{N: 2, M: 1, Speedup: 0}}, regress.ErrNumber, "points[0]: speedup is 0"},
	} {
		if _, err := usba.Fit(x.points, nil); !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%v, want %v with %q", err, x.want, x.text)
		}
	}
}
