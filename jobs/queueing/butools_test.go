// Claims: on the example of three classes in the documentation of BuTools' MMAPPH1NPPR the
// moments and probabilities are those that BuTools prints.
package queueing

import (
	"math"
	"testing"

	"headroom/internal/testkit"

	"gonum.org/v1/gonum/mat"
)

// documented is that example, classes from lowest to highest.
func documented(tb testing.TB, d Discipline) Queue {
	tb.Helper()
	var services []PH
	for _, s := range []struct {
		alpha []float64
		a     [][]float64
	}{
		{[]float64{0.25, 0.75}, [][]float64{{-2.5, 2.5}, {0, -10}}},
		{[]float64{1}, [][]float64{{-2}}},
		{[]float64{0.83333, 0.11404, 0.05263}, [][]float64{{-3, 0, 0}, {0.73077, -0.73077, 0}, {0, 0.5, -0.5}}},
	} {
		p := testkit.Need(NewPH(s.alpha, s.a))(tb)
		services = append(services, p)
	}
	return Queue{Discipline: d, Services: services, Arrivals: Arrivals{D: []*mat.Dense{
		square(-5.49, 0, 1.15, 0, 0, -2.29, 0, 0, 0, 0.08, -1.32, 0, 0.72, 1.17, 0.7, -7.07),
		square(0.25, 0.38, 0.64, 0, 0, 0, 0, 1.09, 0, 1.24, 0, 0, 0.37, 0, 0, 0),
		square(0.3, 1, 0, 0.48, 0, 0.2, 0, 0, 0, 0, 0, 0, 0.61, 0, 0, 0.2),
		square(0, 0.98, 0, 0.31, 0, 0, 1, 0, 0, 0, 0, 0, 1.1, 0.84, 0.33, 1.03),
	}}}
}

func TestDocumentedByBuTools(t *testing.T) {
	t.Parallel()
	got := testkit.Need(Solve(documented(t, NonPreemptive), Options{Moments: 3}))(t)
	for k, want := range [][]float64{
		{15.908635587619, 788.48368436732, 63966.115387761},
		{5.373495426968, 102.747160942973, 3650.98951327075},
		{2.2551683685147, 13.11393510238892, 124.729932775938},
	} {
		for n, x := range want {
			if m := got.Classes[k].Sojourn.Moments[n]; math.Abs(m-x) > 1e-9*x {
				t.Errorf("class %d: moment %d of the sojourn %.14g, BuTools %.14g", k, n+1, m, x)
			}
		}
	}
	// Its distributions come from Erlang distributions of an order that grows to 200.
	for k, want := range [][]float64{{0.24787, 0.44649, 0.57919}, {0.32134, 0.70548, 0.83911}, {0.45672, 0.86989, 0.97222}} {
		for i, at := range []float64{1, 5, 10} {
			p, err := got.Classes[k].Sojourn.cdf(at)
			if err != nil || math.Abs(p-want[i]) > 3e-3 {
				t.Errorf("class %d: P(sojourn <= %v) = %.6f, BuTools %.5f, %v", k, at, p, want[i], err)
			}
		}
	}
}

// The goal is 0.1 s.
func BenchmarkDocumented(b *testing.B) {
	for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
		b.Run(string(d), func(b *testing.B) {
			q := documented(b, d)
			for b.Loop() {
				r := testkit.Need(Solve(q, Options{Moments: 3, Percentiles: []float64{0.5, 0.95, 0.99}}))(b)
				_ = r
			}
		})
	}
}
