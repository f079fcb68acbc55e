// Claims: matrices that are no marked Markovian process are refused, by name of the place;
// rates, phases and correlations are those of known processes and of what is drawn; a
// superposition has the arrivals of both.
package queueing

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

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
		"sum":               {change(1, 1, 1, 0.6), "make it -1.1"},
		"never comes back":  {[]*mat.Dense{square(-2, 1, 0, -1), square(1, 0, 0, 1)}, "D is reducible: phase 1 never leads to phase 0"},
		"never left":        {[]*mat.Dense{square(-1, 0, 1, -2), square(1, 0, 0, 1)}, "D is reducible: phase 0 never leads to phase 1"},
		"class without job": {[]*mat.Dense{square(-1), square(1), square(0)}, "D[2] brings no jobs of class 1"},
		"too large":         {[]*mat.Dense{eye(maxArrivalPhases + 1), eye(maxArrivalPhases + 1)}, "at most 64"},
	} {
		if _, err := newMMAP(c.d); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	_, err := Solve(Queue{
		Discipline: NonPreemptive, Arrivals: Arrivals{D: change(1, 0, 1, -0.1)}, Services: []PH{need(exponential(9))(t)},
	}, Options{})
	if err == nil || !strings.Contains(err.Error(), "arrivals.D[1][0][1]") {
		t.Errorf("the place in the input: %v", err)
	}
}

// A row that was rounded to seven digits is mended; the arguments are not changed.
func TestMMAPMends(t *testing.T) {
	t.Parallel()
	d := []*mat.Dense{square(-0.3333333), square(1. / 3)}
	m := need(newMMAP(d))(t)
	if m.hidden[0][0] != -m.marked[0][0][0] || d[0].At(0, 0) != -0.3333333 {
		t.Errorf("the diagonal is %v for %v, that of the argument %v", m.hidden[0][0], m.marked[0][0][0], d[0].At(0, 0))
	}
}

// Rates and phases of a process of two states by their closed forms; Poisson arrivals and
// renewals have no correlation.
func TestMMAPRates(t *testing.T) {
	t.Parallel()
	m := need(newMMAP([]*mat.Dense{square(-3.2, 0.2, 0.1, -0.6), square(2, 0, 0, 0.5), square(1, 0, 0, 0)}))(t)
	agrees(t, "phase 0", m.Phases()[0], 1./3, 1e-15)
	agrees(t, "class 0", m.Rates()[0], 2./3+1./3, 1e-15)
	agrees(t, "class 1", m.Rates()[1], 1./3, 1e-15)
	if m.Classes() != 2 {
		t.Errorf("%d classes", m.Classes())
	}
	poisson := need(NewPoisson([]float64{0.2, 0.7}))(t)
	renewal := need(newMMAP([]*mat.Dense{square(-2, 2, 0, -3), square(0, 0, 3, 0)}))(t) // a sum of two
	for lag := 1; lag < 4; lag++ {
		for name, m := range map[string]*MMAP{"Poisson": poisson, "renewal": renewal} {
			if c := need(m.LagCorrelation(lag))(t); math.Abs(c) > 1e-12 {
				t.Errorf("%s: correlation %v at lag %d", name, c, lag)
			}
		}
	}
	if _, err := m.LagCorrelation(0); err == nil {
		t.Error("a lag of 0 was taken")
	}
}

// What is drawn has the process's rates, phases and correlations.
func TestMMAPSamples(t *testing.T) {
	t.Parallel()
	d := bursty(t, 2, 1.5)
	m := need(newMMAP(d))(t)
	r := rand.New(rand.NewPCG(5, 6))
	const jobs = 1_000_000
	phase, counts, times := m.Start(r), [2]float64{}, make([]float64, jobs)
	total, squares := 0.0, 0.0
	for i := range times {
		var class int
		times[i], class, phase = m.Next(phase, r)
		counts[class]++
		total += times[i]
		squares += times[i] * times[i]
	}
	for k, rate := range m.Rates() {
		if got := counts[k] / total; math.Abs(got/rate-1) > 0.02 {
			t.Errorf("class %d: rate %v drawn, want %v", k, got, rate)
		}
	}
	mean := total / jobs
	for lag := 1; lag <= 5; lag += 2 {
		product := 0.0
		for i := range jobs - lag {
			product += (times[i] - mean) * (times[i+lag] - mean)
		}
		got, want := product/(jobs-1-float64(lag))/(squares/jobs-mean*mean), need(m.LagCorrelation(lag))(t)
		if math.Abs(got-want) > 0.01 || want < 0.03 {
			t.Errorf("lag %d: correlation %v drawn, want %v", lag, got, want)
		}
	}
	starts := make([]float64, 3)
	for range jobs {
		starts[m.Start(r)] += 1. / jobs
	}
	for i, p := range m.Phases() {
		if math.Abs(starts[i]-p) > 0.003 {
			t.Errorf("phase %d starts with %v, want %v", i, starts[i], p)
		}
	}
}

// A superposition of Poisson arrivals is Poisson; of others it has the sum of the rates and
// the same waits in either order; too many phases or other classes are refused.
func TestSuperpose(t *testing.T) {
	t.Parallel()
	mmap := func(m *MMAP, err error) *MMAP { return need(m, err)(t) }
	both := mmap(superpose(mmap(NewPoisson([]float64{0.2, 0.1})), mmap(NewPoisson([]float64{0.3, 0.2}))))
	if both.hidden[0][0] != -0.8 || both.marked[0][0][0] != 0.5 {
		t.Errorf("Poisson arrivals superposed: %+v", both)
	}
	a := mmap(newMMAP(bursty(t, 2, 0.3)))
	b := mmap(newMMAP([]*mat.Dense{square(-1, 0.9, 0.2, -0.3), square(0.1, 0, 0, 0), square(0, 0, 0.1, 0)}))
	ab, ba := mmap(superpose(a, b)), mmap(superpose(b, a))
	services := threeServices(t)[:2]
	var results []Result
	for _, m := range []*MMAP{ab, ba} {
		d := []*mat.Dense{dense(m.hidden), dense(m.marked[0]), dense(m.marked[1])}
		results = append(results, solveD(t, NonPreemptive, d, Options{Moments: 2, Percentiles: []float64{0.9}}, services...))
	}
	for k := range services {
		agrees(t, "rate", ab.Rates()[k], a.Rates()[k]+b.Rates()[k], 1e-13)
		sameMeasure(t, "wait", results[0].Classes[k].Wait, results[1].Classes[k].Wait)
	}
	if _, err := superpose(a, mmap(NewPoisson([]float64{1}))); err == nil {
		t.Error("two and one class were superposed")
	}
	large := mmap(superpose(a, a))
	if _, err := superpose(large, large); err == nil {
		t.Error("81 phases were taken")
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
		rate := m.Rates()[0]
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
