package queueing

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"headroom/internal/testkit"

	"pgregory.net/rapid"
)

// What is no distribution is refused, with row, column and number.
func TestPHRefused(t *testing.T) {
	t.Parallel()
	one := []float64{1, 0}
	ok := [][]float64{{-2, 1}, {0, -1}}
	for want, c := range map[string]struct {
		alpha []float64
		a     [][]float64
	}{
		"alpha is empty":                      {nil, nil},
		"A has 1 rows for the 2 phases":       {one, ok[:1]},
		"A[1] has 1 columns for the 2 phases": {one, [][]float64{{-2, 1}, {-1}}},
		"alpha sums to 0.9":                   {[]float64{0.9, 0}, ok},
		"alpha[1] is -0.5":                    {[]float64{1.5 - 0.5, -0.5}, ok},
		"alpha[0] is NaN":                     {[]float64{math.NaN(), 0}, ok},
		"A[0] sums to 1":                      {one, [][]float64{{-2, 3}, {0, -1}}},
		"A[1][0] is -1":                       {one, [][]float64{{-2, 1}, {-1, -1}}},
		"A[1][1] is 0":                        {one, [][]float64{{-2, 1}, {0, 0}}},
		"A[0][1] is NaN":                      {one, [][]float64{{-2, math.NaN()}, {0, -1}}},
		"A[0][0] is -Inf":                     {one, [][]float64{{math.Inf(-1), 1}, {0, -1}}},
		"A[0] is never absorbed":              {one, [][]float64{{-2, 2}, {1, -1}}},
		"A[1] is never absorbed":              {[]float64{1, 0, 0}, [][]float64{{-2, 1, 0}, {0, -1, 1}, {0, 1, -1}}},
		"alpha has 2001 phases":               {make([]float64, MaxPhases+1), nil},
	} {
		if _, err := NewPH(c.alpha, c.a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// Constructors, fits and operations refuse what they cannot do.
func TestOperationsRefuse(t *testing.T) {
	t.Parallel()
	e := testkit.Need(exponential(1))(t)
	second := func(_ any, err error) error { return err }
	for want, err := range map[string]error{
		"rate is 0":                  second(exponential(0)),
		"rate is NaN":                second(Erlang(2, math.NaN())),
		"phases are 0":               second(Erlang(0, 1)),
		"rates[1] is -1":             second(hyper([]float64{0.5, 0.5}, []float64{1, -1})),
		"factor is 0":                second(e.Scale(0)),
		"mean is -1":                 second(Fit(-1, 1)),
		"cv2 is 0.0001":              second(Fit(1, 0.0001)),
		"cv2 is NaN":                 second(Fit(1, math.NaN())),
		"moment 2 is 1;":             second(FitMoments(1, 1, 1)),
		"moment 3 is 2;":             second(FitMoments(1, 2, 2)),
		"moment 1 is 0":              second(FitMoments(0, 2, 2)),
		"need more than 2000 phases": second(FitMoments(1, 1.0001, 1.0005)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// Moments and cdf of known distributions are the known ones.
func TestKnownDistributions(t *testing.T) {
	t.Parallel()
	e := testkit.Need(Erlang(3, 2))(t)
	for n, want := range []float64{1.5, 3, 7.5} { // 3*4*...*(n+2)/2^n
		agrees(t, fmt.Sprintf("Erlang's moment %d", n+1), e.moment(n+1), want, 1e-14)
	}
	agrees(t, "Erlang's moment 0", e.moment(0), 1, 0)
	agrees(t, "Erlang's cv2", cv2(e), 1.0/3, 1e-13)
	for _, x := range []float64{0.01, 0.5, 2, 9} {
		agrees(t, "Erlang's cdf", e.cdf(x), 1-math.Exp(-2*x)*(1+2*x+2*x*x), 1e-9)
	}
	h := testkit.Need(hyper([]float64{0.5, 0.5}, []float64{1, 1e6}))(t)
	// The second form takes the matrix exponential, as there are too many jumps.
	agrees(t, "a stiff cdf", h.cdf(2), 1-0.5*math.Exp(-2), 1e-11)
	if h.cdf(0) != 0 || h.cdf(-1) != 0 || h.cdf(math.Inf(1)) != 1 || !math.IsNaN(h.cdf(math.NaN())) {
		t.Error("the cdf's ends are wrong")
	}
}

// Sequences, mixtures and scaling do to moments and distributions what they say.
func TestOperationsLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawPH(t, "a"), drawPH(t, "b")
		take := func(p PH, err error) PH {
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		ma, mb := a.moments(2), b.moments(2)
		sum := sequence(a, b).moments(2)
		agrees(t, "the sum's mean", sum[0], ma[0]+mb[0], 1e-12)
		agrees(t, "the sum's second moment", sum[1], ma[1]+2*ma[0]*mb[0]+mb[1], 1e-12)
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		mixed := mixture([]float64{p, 1 - p}, a, b)
		x := rapid.Float64Range(0.01, 5).Draw(t, "x")
		agrees(t, "the mixture's mean", mixed.Mean(), p*ma[0]+(1-p)*mb[0], 1e-12)
		agrees(t, "the mixture's cdf", mixed.cdf(x), p*a.cdf(x)+(1-p)*b.cdf(x), 1e-10)
		agrees(t, "the scaled cdf", take(a.Scale(3)).cdf(3*x), a.cdf(x), 1e-10)
	})
}

// cv2 is the squared coefficient of variation.
func cv2(p PH) float64 {
	m := p.moments(2)
	return m[1]/(m[0]*m[0]) - 1
}

// A fit has the moments that were asked.
func TestFits(t *testing.T) {
	t.Parallel()
	for _, want := range []float64{0.001, 0.01, 0.1, 0.25, 0.3, 0.5, 0.7, 0.999, 1, 1.5, 20, 1e4} {
		p := testkit.Need(Fit(3, want))(t)
		agrees(t, fmt.Sprintf("the mean at cv2 %v", want), p.Mean(), 3, 1e-12)
		agrees(t, fmt.Sprintf("cv2 %v", want), cv2(p), want, 1e-9)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := drawPH(t, "p").moments(3)
		p := testkit.Need(FitMoments(want[0], want[1], want[2]))(t)
		for i, m := range p.moments(3) {
			agrees(t, fmt.Sprintf("moment %d", i+1), m, want[i], 1e-7)
		}
	})
}

// Samples have the distribution that they are drawn from: the largest gap between the
// two cdfs is below Kolmogorov's bound for one in a thousand.
func TestSamples(t *testing.T) {
	t.Parallel()
	cyclic := testkit.Need(NewPH([]float64{0.7, 0, 0.3}, [][]float64{{-3, 2, 0.5}, {1, -4, 2}, {0.5, 3, -4}}))(t)
	for name, p := range map[string]PH{"eq1": diasJob(t, 0.4, 20), "cyclic": cyclic} {
		const n, steps = 20_000, 50
		from, mean, draw := source(5), p.Mean(), newSampler(p).sample
		below := make([]int, steps)
		for range n {
			x := draw(from)
			for i := range below {
				if x <= 2*mean*float64(i)/steps {
					below[i]++
				}
			}
		}
		for i, count := range below {
			x := 2 * mean * float64(i) / steps
			if gap := math.Abs(float64(count)/n - p.cdf(x)); gap > 1.95/math.Sqrt(n) {
				t.Errorf("%s: %v of the samples are below %v, not %v", name, float64(count)/n, x, p.cdf(x))
			}
		}
	}
}
