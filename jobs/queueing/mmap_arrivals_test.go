// Claims: matrices that are no marked Markovian process are refused, by name of the place;
// rates, phases and correlations are those of known processes and of what is drawn; a
// superposition has the arrivals of both.
package queueing

import (
	"math"
	"strings"
	"testing"

	"headroom/internal/testkit"

	"gonum.org/v1/gonum/mat"
)

// Every mistake is told with its matrix, row and column.
func TestMMAPValidation(t *testing.T) {
	t.Parallel()
	good := func() []*mat.Dense { return []*mat.Dense{square(-2, 1, 0.5, -1), square(1, 0, 0, 0.5)} }
	change := func(k, i, j int, x float64) []*mat.Dense {
		d := good()
		d[k].Set(i, j, x)
		return d
	}
	if _, err := newMMAP(good()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		d    []*mat.Dense
		says string
	}{
		"none":              {nil, "D has 0 matrices"},
		"no jobs":           {good()[:1], "D has 1 matrices"},
		"missing":           {[]*mat.Dense{square(-1), nil}, "D[1] is empty"},
		"empty":             {[]*mat.Dense{{}, {}}, "D[0] is empty"},
		"not square":        {[]*mat.Dense{mat.NewDense(1, 2, nil), square(1)}, "D[0] is 1 by 2"},
		"other order":       {[]*mat.Dense{good()[0], square(1)}, "D[1] is 1 by 1; it must be 2 by 2"},
		"NaN":               {change(1, 1, 0, math.NaN()), "D[1][1][0] is NaN"},
		"infinite":          {change(0, 0, 1, math.Inf(1)), "D[0][0][1] is +Inf"},
		"huge":              {change(0, 0, 1, 1e200), "D[0][0][1] is 1e+200"},
		"negative":          {change(1, 0, 1, -0.1), "D[1][0][1] is -0.1; only the diagonal"},
		"negative hidden":   {change(0, 0, 1, -1), "D[0][0][1] is -1; only the diagonal"},
		"diagonal":          {change(0, 1, 1, 1), "D[0][1][1] is 1; the diagonal"},
		"sum":               {change(1, 1, 1, 0.6), "use -1.1"},
		"never comes back":  {[]*mat.Dense{square(-2, 1, 0, -1), square(1, 0, 0, 1)}, "D is reducible: phase 1 never leads to phase 0"},
		"never left":        {[]*mat.Dense{square(-1, 0, 1, -2), square(1, 0, 0, 1)}, "D is reducible: phase 0 never leads to phase 1"},
		"class without job": {[]*mat.Dense{square(-1), square(1), square(0)}, "D[2] brings no jobs of class 1"},
		"too large":         {[]*mat.Dense{eye(maxArrivalPhases + 1), eye(maxArrivalPhases + 1)}, "the maximum is 64"},
	} {
		if _, err := newMMAP(c.d); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	_, err := Solve(Queue{
		Discipline: NonPreemptive, Arrivals: Arrivals{D: change(1, 0, 1, -0.1)}, Services: []PH{testkit.Need(exponential(9))(t)},
	}, Options{})
	if err == nil || !strings.Contains(err.Error(), "arrivals.D[1][0][1]") {
		t.Errorf("the place in the input: %v", err)
	}
}

// A row that was rounded to seven digits is mended; the arguments are not changed.
func TestMMAPMends(t *testing.T) {
	t.Parallel()
	d := []*mat.Dense{square(-0.3333333), square(1. / 3)}
	m := testkit.Need(newMMAP(d))(t)
	if m.hidden[0][0] != -m.marked[0][0][0] || d[0].At(0, 0) != -0.3333333 {
		t.Errorf("the diagonal is %v for %v, that of the argument %v", m.hidden[0][0], m.marked[0][0][0], d[0].At(0, 0))
	}
}

// Rates and phases of a process of two states by their closed forms.
func TestMMAPRates(t *testing.T) {
	t.Parallel()
	m := testkit.Need(newMMAP([]*mat.Dense{square(-3.2, 0.2, 0.1, -0.6), square(2, 0, 0, 0.5), square(1, 0, 0, 0)}))(t)
	agrees(t, "phase 0", m.phases[0], 1./3, 1e-15)
	agrees(t, "class 0", m.classes[0], 2./3+1./3, 1e-15)
	agrees(t, "class 1", m.classes[1], 1./3, 1e-15)
	if len(m.marked) != 2 {
		t.Errorf("%d classes", len(m.marked))
	}
}

// A superposition of Poisson arrivals is Poisson; of others it has the sum of the rates and
// the same waits in either order.
func TestSuperpose(t *testing.T) {
	t.Parallel()
	poisson := func(a, b float64) []*mat.Dense { return []*mat.Dense{square(-a - b), square(a), square(b)} }
	both := testkit.Need(newMMAP(superpose(poisson(0.2, 0.1), poisson(0.3, 0.2))))(t)
	if both.hidden[0][0] != -0.8 || both.marked[0][0][0] != 0.5 {
		t.Errorf("Poisson arrivals superposed: %+v", both)
	}
	a, b := bursty(t, 2, 0.3), []*mat.Dense{square(-1, 0.9, 0.2, -0.3), square(0.1, 0, 0, 0), square(0, 0, 0.1, 0)}
	services := threeServices(t)[:2]
	var results []Result
	for _, d := range [][]*mat.Dense{superpose(a, b), superpose(b, a)} {
		results = append(results, solveD(t, NonPreemptive, d, Options{Moments: 2, Percentiles: []float64{0.9}}, services...))
	}
	rates := func(d []*mat.Dense) []float64 { return testkit.Need(newMMAP(d))(t).classes }
	for k := range services {
		agrees(t, "rate", rates(superpose(a, b))[k], rates(a)[k]+rates(b)[k], 1e-13)
		sameMeasure(t, "wait", results[0].Classes[k].Wait, results[1].Classes[k].Wait)
	}
}

// Whatever numbers come, there is an error or a process with finite rates whose queue has
// finite answers or an error.
func FuzzMMAP(f *testing.F) {
	f.Add(-2., 1., 0.5, -1., 1., 0., 0., 0.5)
	f.Add(-1., 0., 0., -1., 1., 0., 0., 1.)
	f.Add(-1e-300, 1e-300, 1e300, -1e300, 0., 0., 0., 0.)
	f.Add(-1., 1e-9, 1e-12, -1e6, 1., 0., 0., 1e6)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g, h, i float64) {
		arrivals := []*mat.Dense{square(a, b, c, d), square(e, g, h, i)}
		m, err := newMMAP(arrivals)
		if err != nil {
			return
		}
		rate := m.classes[0]
		if !(rate > 0) || math.IsInf(rate, 0) {
			t.Fatalf("rate %v", rate)
		}
		service, err := exponential(2 * rate)
		if err != nil {
			return
		}
		for _, discipline := range []Discipline{NonPreemptive, PreemptiveResume} {
			got, err := Solve(Queue{Discipline: discipline, Arrivals: Arrivals{D: arrivals}, Services: []PH{service}}, Options{Moments: 2})
			if err != nil {
				continue
			}
			if w := got.Classes[0].Wait.Mean; !(w >= 0) || math.IsInf(w, 0) || !(got.Rho > 0.499 && got.Rho < 0.501) {
				t.Fatalf("waits %v at a load of %v", w, got.Rho)
			}
		}
	})
}
