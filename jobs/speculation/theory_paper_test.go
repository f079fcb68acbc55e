// Claims: the model of GRASS's appendix gives the values of its guidelines to 1e-6, and its closed forms are the
// integrals that they stand for; the Hill estimator finds the exponent of a Pareto tail.
package speculation

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// facebook is the tail of the paper's traces (Fig. 3).
var facebook = Pareto{Beta: 1.259, Scale: 1}

func near(t *testing.T, name string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %.9g, want %.9g", name, got, want)
	}
}

func TestGRASSGuidelines(t *testing.T) {
	t.Parallel()
	p := facebook
	near(t, "mean", p.Mean(), 4.8610039, 1e-6)
	near(t, "omega GS", p.OmegaGS(), 1.259, 1e-9)
	near(t, "omega RAS", p.OmegaRAS(), 2.518, 1e-9)
	near(t, "left at omega GS", p.MeanLeft(p.OmegaGS()), p.Mean(), 1e-9)
	near(t, "left at omega RAS", p.MeanLeft(p.OmegaRAS()), 2*p.Mean(), 1e-9)
	near(t, "sigma", p.Sigma(), 1.5885624, 1e-6)
	near(t, "blow at sigma", p.Blow(p.Sigma()), 1.5300010, 1e-6)
	near(t, "blow after omega GS", p.BlowAfter(p.OmegaGS()), 1.6586365, 1e-6)
	near(t, "blow after omega RAS", p.BlowAfter(p.OmegaRAS()), 1.7410746, 1e-6)
	near(t, "blow without copies", p.BlowAfter(math.Inf(1)), 1, 0)
	near(t, "sigma of finite variance", Pareto{Beta: 2.5, Scale: 1}.Sigma(), 1, 0)
}

// Guideline 3 and Fig. 4: GS is nearer to the best omega at one wave, RAS from one and a half on.
func TestGRASSFig4(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ slots, waves, gs, ras float64 }{
		{100, 1, 1.0011, 1.0032},
		{100, 1.5, 1.0072, 1.0005},
		{100, 2, 1.0129, 1.0001},
		{100, 3, 1.0211, 1.0000},
		{100, 5, 1.0302, 1.0003},
		{100, 10, 1.0392, 1.0007},
		{20, 1, 1.0015, 1.0042},
		{20, 5, 1.0331, 1.0003},
	} {
		m := Model{Pareto: facebook, Waves: c.waves, Slots: c.slots}
		best := math.Inf(1)
		for i := range 251 {
			best = min(best, m.Response(0.02*float64(i)))
		}
		near(t, "GS", m.Response(m.OmegaGS())/best, c.gs, 1e-4)
		near(t, "RAS", m.Response(m.OmegaRAS())/best, c.ras, 1e-4)
	}
}

// integral is the composite Simpson rule.
func integral(f func(float64) float64, from, to float64, n int) float64 {
	h := (to - from) / float64(2*n)
	sum := f(from) + f(to)
	for i := 1; i < 2*n; i++ {
		sum += f(from+float64(i)*h) * float64(2+2*(i%2))
	}
	return sum * h / 3
}

// tail is the integral of f from a on, over e^y.
func tail(f func(float64) float64, a float64) float64 {
	return integral(func(y float64) float64 { return f(math.Exp(y)) * math.Exp(y) }, math.Log(a), math.Log(a)+80, 4000)
}

func TestTheoryIsItsIntegrals(t *testing.T) {
	t.Parallel()
	for _, p := range []Pareto{facebook, {Beta: 1.7, Scale: 3}, {Beta: 3, Scale: 0.5}} {
		s := p.Survival
		for _, k := range []float64{1, 1.5, 2, 4} {
			want := p.Scale + tail(func(x float64) float64 { return math.Pow(s(x), k) }, p.Scale)
			near(t, "least of k", p.MeanLeast(k)/want, 1, 1e-6)
		}
		for _, omega := range []float64{0, p.Scale / 2, p.Scale, p.OmegaGS(), p.OmegaRAS(), 5 * p.Scale} {
			if omega > 0 {
				// Beyond scale + omega the survival is smooth; below it, it bends at most twice.
				over := func(x float64) float64 { return s(x) / s(omega) }
				want := integral(over, omega, max(omega, p.Scale), 2000) + tail(over, max(omega, p.Scale))
				near(t, "left", p.MeanLeft(omega)/want, 1, 1e-6)
			}
			race := func(x float64) float64 { return s(omega+x) / s(omega) * s(x) }
			bend := max(0, p.Scale-omega)
			want := integral(race, 0, bend, 2000) + integral(race, bend, p.Scale, 2000) + tail(race, p.Scale)
			near(t, "race", p.meanRace(omega)/want, 1, 1e-6)
		}
		for _, waves := range []float64{1, 1.3, 2, 5} {
			m := Model{Pareto: p, Waves: waves, Slots: 10}
			for _, omega := range []float64{0, p.OmegaGS(), p.OmegaRAS()} {
				var want float64
				from := 0.0
				for _, to := range []float64{1 / (waves * 10), min(m.lastWave(omega), 1/(waves*m.Sigma())), min(1, m.lastWave(omega)), 1} {
					if to > from {
						inner := func(x float64) float64 { return 1 / m.RateAfter(x, omega) }
						edge := (to - from) * 1e-12
						want += integral(inner, from+edge, to-edge, 60)
						from = to
					}
				}
				near(t, "response", m.Response(omega)/want, 1, 1e-6)
			}
		}
	}
}

// Theorem 1 maximizes equation (1).
func TestTheorem1IsTheBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := Model{
			Pareto: Pareto{Beta: rapid.Float64Range(1.05, 4).Draw(t, "beta"), Scale: rapid.Float64Range(0.1, 10).Draw(t, "scale")},
			Waves:  rapid.Float64Range(1, 20).Draw(t, "waves"), Slots: rapid.Float64Range(2, 100).Draw(t, "slots"),
		}
		left := rapid.Float64Range(0.001, 1).Draw(t, "left")
		k := rapid.Float64Range(1, m.Slots).Draw(t, "copies")
		// In the early waves any number of copies is allowed; later, more than the slots hold is not in the model.
		if left*m.Waves*m.Sigma() < 1 {
			return
		}
		if got, best := m.Rate(left, k), m.Rate(left, m.Copies(left)); got > best*(1+1e-9) {
			t.Fatalf("%v copies: rate %v, but %v with %v copies", k, got, best, m.Copies(left))
		}
	})
}

func TestHill(t *testing.T) {
	t.Parallel()
	// Three values above e^0: (1 + 2 + 3) / 3 is the mean logarithm.
	beta, err := Hill([]float64{math.E, 1, math.Exp(3), math.Exp(2), 0.5}, 3)
	near(t, "by hand", beta, 0.5, 1e-12)
	if err != nil {
		t.Error(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 200_000)
	for i := range values {
		values[i] = math.Pow(1-r.Float64(), -1/1.259)
	}
	beta, err = Hill(values, 20_000)
	near(t, "sampled", beta, 1.259, 0.03) // three standard deviations
	if err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		values []float64
		k      int
	}{{nil, 1}, {[]float64{1, 2}, 2}, {[]float64{1, 2}, 0}, {[]float64{1, 1, 1}, 2}, {[]float64{1, -1}, 1}, {[]float64{1, math.NaN()}, 1}, {[]float64{1, math.Inf(1)}, 1}} {
		if got, err := Hill(bad.values, bad.k); err == nil {
			t.Errorf("%v, %d: %v", bad.values, bad.k, got)
		}
	}
}

func TestModelRefuses(t *testing.T) {
	t.Parallel()
	good := Model{Pareto: facebook, Waves: 2, Slots: 3}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, m := range []Model{
		{Pareto: Pareto{1, 1}, Waves: 1, Slots: 1},
		{Pareto: Pareto{2, 0}, Waves: 1, Slots: 1},
		{Pareto: Pareto{math.NaN(), 1}, Waves: 1, Slots: 1},
		{Pareto: facebook, Waves: 0.5, Slots: 1},
		{Pareto: facebook, Waves: 1, Slots: math.Inf(1)},
	} {
		if m.Check() == nil {
			t.Errorf("%+v is taken", m)
		}
	}
}
