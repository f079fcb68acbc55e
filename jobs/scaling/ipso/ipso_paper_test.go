// Claims: Amdahl's, Gustafson's and Sun-Ni's laws are special cases, exactly; the types, bounds and peaks are what the speed-up
// does as n grows; Table 2.1 peaks at 20 to 21 around n = 60; factors made of lines and powers are found, a step among them; what cannot
// be fitted is refused with its reason.
package ipso_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/scaling/ipso"
	"headroom/jobs/scaling/regress"

	"pgregory.net/rapid"
)

func near(a, b, by float64) bool { return math.Abs(a-b) <= by*max(math.Abs(a), math.Abs(b)) }

// (2.12).
func TestLawsAreSpecialCases(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		eta, n := rapid.Float64Range(0.01, 1).Draw(t, "eta"), float64(rapid.IntRange(1, 10_000).Draw(t, "n"))
		power := rapid.Float64Range(0, 1).Draw(t, "growth")
		g := math.Pow(n, power)
		for name, x := range map[string]struct {
			m    ipso.Model
			want float64
		}{
			"Amdahl":    {ipso.Amdahl(eta), 1 / (eta/n + 1 - eta)},
			"Gustafson": {ipso.Gustafson(eta), eta*n + 1 - eta},
			"Sun-Ni":    {ipso.SunNi(eta, power), (eta*g + 1 - eta) / (eta*g/n + 1 - eta)},
		} {
			if eta == 1 {
				x.want = n
			}
			if got := x.m.Speedup(n); !near(got, x.want, 1e-12) {
				t.Errorf("%s: S(%v) = %v, want %v", name, n, got, x.want)
			}
		}
	})
}

// What a type says is what the speed-up does between n = 1e6 and 1e12.
func TestTypes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := ipso.Model{
			Eta: rapid.SampledFrom([]float64{0.3, 0.9, 1}).Draw(t, "eta"), Alpha: rapid.Float64Range(0.5, 5).Draw(t, "alpha"),
			Delta: rapid.SampledFrom([]float64{0, 0.4, 1}).Draw(t, "delta"), Beta: rapid.SampledFrom([]float64{0, 0.01, 0.5}).Draw(t, "beta"),
			Gamma: rapid.SampledFrom([]float64{0, 0.5, 1, 1.5}).Draw(t, "gamma"),
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		low, high := m.Speedup(1e15), m.Speedup(1e18)
		bound, bounded := m.Bound()
		growth := math.Log(high/low) / math.Log(1e3)
		switch m.Type() {
		case ipso.Linear:
			if !near(growth, 1, 1e-3) || bounded {
				t.Errorf("%+v: grows by %v", m, growth)
			}
		case ipso.Unbounded:
			if growth < 0.1 || growth > 0.95 || bounded {
				t.Errorf("%+v: grows by %v", m, growth)
			}
		case ipso.BoundedSerial, ipso.BoundedOverhead:
			if !bounded || !near(high, bound, 1e-2) {
				t.Errorf("%+v: %v, bound %v", m, high, bound)
			}
		case ipso.Peaked:
			if growth > -0.05 {
				t.Errorf("%+v: grows by %v", m, growth)
			}
		}
	})
}

// (2.17) peaks at n* = (1/(beta*(gamma-1)))^(1/gamma); with serial work the peak is where its neighbours are lower.
func TestPeaks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := ipso.Model{Eta: 1, Alpha: 1, Beta: rapid.Float64Range(1e-5, 0.1).Draw(t, "beta"), Gamma: rapid.Float64Range(1.2, 3).Draw(t, "gamma")}
		want := math.Pow(1/(m.Beta*(m.Gamma-1)), 1/m.Gamma)
		n, _, ok := m.Peak()
		if want > 2 && want < 1e5 && (!ok || math.Abs(float64(n)-want) > 1) {
			t.Errorf("peak at %d, %v, want %v", n, ok, want)
		}
		m.Eta, m.Delta = rapid.Float64Range(0.1, 0.99).Draw(t, "eta"), rapid.Float64Range(0, 1).Draw(t, "delta")
		if n, s, ok := m.Peak(); ok {
			for k := 1; k < 3*n; k += max(1, n/200) {
				if m.Speedup(float64(k)) > s*(1+1e-12) {
					t.Fatalf("%+v: %v at %d, and %v at %d", m, s, n, m.Speedup(float64(k)), k)
				}
			}
		}
	})
	if _, _, ok := ipso.Amdahl(0.9).Peak(); ok {
		t.Error("Amdahl's law has a peak")
	}
}

// Table 2.1, with (2.18).
func TestTable21(t *testing.T) {
	t.Parallel()
	var points []ipso.Point
	want := []float64{7.471, 16.521, 20.107, 18.765}
	for i, x := range []ipso.Workloads{
		{N: 10, Parallel: 1602.5, Slowest: 209, Overhead: 5.5},
		{N: 30, Parallel: 1602.5, Slowest: 79.3, Overhead: 17.7},
		{N: 60, Parallel: 1602.5, Slowest: 43.7, Overhead: 36},
		{N: 90, Parallel: 1602.5, Slowest: 31.1, Overhead: 54.3},
	} {
		if s := x.Speedup(); math.Abs(s-want[i]) > 1e-3 {
			t.Errorf("S(%d) = %v", x.N, s)
		}
		points = append(points, ipso.Point{N: x.N, Speedup: x.Speedup()})
	}
	for _, held := range []map[string]float64{nil, {"delta": 0}} {
		f := testkit.Need(ipso.Fit(points, held))(t)
		n, s, ok := f.Peak()
		if !ok || n < 55 || n > 65 || s < 20 || s > 21 || f.Type() != ipso.Peaked {
			t.Errorf("held %v: peak %v at %d, type %s", held, s, n, f.Type())
		}
	}
}

// Speed-ups of a model give it back: exact ones the parameters, noisy ones bounds that hold the truth.
func TestFit(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for name, m := range map[string]ipso.Model{
		"Amdahl": ipso.Amdahl(0.95), "Gustafson": ipso.Gustafson(0.8), "linear": {Eta: 1, Alpha: 1, Delta: 1},
		"in proportion": {Eta: 0.6, Alpha: 1, Delta: 0.4}, "peaked": {Eta: 1, Alpha: 1, Delta: 1, Beta: 0.0005, Gamma: 2},
		"peaked with serial work": {Eta: 0.97, Alpha: 1, Beta: 0.001, Gamma: 1.8},
	} {
		var exact, noisy []ipso.Point
		for _, n := range []int{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128} {
			s := m.Speedup(float64(n))
			exact = append(exact, ipso.Point{N: n, Speedup: s})
			noisy = append(noisy, ipso.Point{N: n, Speedup: s * (1 + 0.01*r.NormFloat64())})
		}
		f := testkit.Need(ipso.Fit(exact, nil))(t)
		if f.Type() != m.Type() || !near(f.Speedup(500), m.Speedup(500), 1e-3) {
			t.Errorf("%s: %+v, type %s, want %+v, type %s", name, f.Model, f.Type(), m, m.Type())
		}
		f = testkit.Need(ipso.Fit(noisy, nil))(t)
		if _, low, high := f.Predict(160); low > m.Speedup(160) || high < m.Speedup(160) {
			t.Errorf("%s: from %v to %v, without noise %v", name, low, high, m.Speedup(160))
		}
	}
}

// Section 2.5.1: IN of TeraSort has a slope of 0.15 below n = 15, where it steps up by 30 %, and 0.25 above.
func TestFactors(t *testing.T) {
	t.Parallel()
	in := func(n float64) float64 {
		if n < 15 {
			return 0.85 + 0.15*n
		}
		return 1.3*(0.85+0.15*15) + 0.25*(n-15)
	}
	var all []ipso.Workloads
	for _, n := range []float64{1, 2, 4, 8, 12, 16, 24, 32, 48, 64} {
		all = append(all, ipso.Workloads{N: int(n), Parallel: 30 * n, Slowest: 33, Serial: 60 * in(n), Overhead: 30 * 0.001 * n * n * min(1, n-1)})
	}
	f := testkit.Need(ipso.FitFactors(all))(t)
	if f.IN.From != 16 || !near(f.IN.Below.Slope.Value, 0.15, 1e-6) || !near(f.IN.Above.Slope.Value, 0.25, 1e-6) {
		t.Errorf("IN %+v", f.IN)
	}
	if !near(f.EX.Slope.Value, 1, 1e-6) || !near(f.Gamma.Value, 2, 1e-6) || !near(f.Beta.Value, 0.001, 1e-6) || !near(f.Eta, 1.0/3, 1e-9) {
		t.Errorf("EX %+v, gamma %+v, beta %+v", f.EX, f.Gamma, f.Beta)
	}
	for _, w := range all[1:] {
		if !near(f.Speedup(w.N), w.Speedup(), 1e-6) {
			t.Errorf("S(%d) = %v, measured %v", w.N, f.Speedup(w.N), w.Speedup())
		}
	}
	if m := f.Model(); m.Type() != ipso.Peaked || !near(m.Alpha, 4, 1e-6) || m.Delta != 0 {
		t.Errorf("%+v", m)
	}
	for i := range all {
		all[i].Overhead, all[i].Serial = 0, 60
	}
	if m := testkit.Need(ipso.FitFactors(all))(t).Model(); m.Type() != ipso.Linear || m.Delta != 1 {
		t.Errorf("WordCount's: %+v", m)
	}
	if _, err := ipso.FitFactors(all[1:]); !errors.Is(err, regress.ErrTooFew) {
		t.Error(err)
	}
	all[3].Slowest = math.NaN()
	if _, err := ipso.FitFactors(all); !errors.Is(err, regress.ErrNumber) || !strings.Contains(err.Error(), "measurement 3") {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		points []ipso.Point
		want   error
		text   string
	}{
		{nil, regress.ErrTooFew, "0 above n = 1"},
		{[]ipso.Point{{1, 1}, {2, 1.9}}, regress.ErrTooFew, "1 above"},
		{[]ipso.Point{{8, 5}, {8, 5.1}, {8, 5.2}}, regress.ErrCollinear, "all have n = 8"},
		{[]ipso.Point{{0, 1}}, regress.ErrNumber, "points[0]: n is 0"},
		{[]ipso.Point{{2, 1}, {4, -1}}, regress.ErrNumber, "points[1]: speedup is -1"},
		{[]ipso.Point{{2, math.NaN()}}, regress.ErrNumber, "NaN"},
	} {
		if _, err := ipso.Fit(x.points, nil); !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%v, want %v with %q", err, x.want, x.text)
		}
	}
	for _, m := range []ipso.Model{{Eta: 2}, {Eta: 0.5, Alpha: -1}, {Eta: 0.5, Delta: math.NaN()}, {Eta: 1, Gamma: -1}} {
		if err := m.Check(); !errors.Is(err, regress.ErrNumber) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
