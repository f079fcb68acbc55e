package queueing

import (
	"math"
	"math/big"
	"testing"

	"headroom/internal/testkit"

	"gonum.org/v1/gonum/mat"
)

// This file is an independent oracle for the distributions: the textbook form of the
// transforms (busy periods as the root of eta = b(s + lambda (1-eta))), evaluated on the
// real axis in 400 bits, and inverted by Gaver and Stehfest's formula. It shares neither
// the formulas, nor the axis, nor the arithmetic with the package.

const bits = 400

func num(x float64) *big.Float { return new(big.Float).SetPrec(bits).SetFloat64(x) }
func zero() *big.Float         { return new(big.Float).SetPrec(bits) }
func plus(a, b *big.Float) *big.Float {
	return zero().Add(a, b)
}
func minus(a, b *big.Float) *big.Float { return zero().Sub(a, b) }
func times(a, b *big.Float) *big.Float { return zero().Mul(a, b) }
func over2(a, b *big.Float) *big.Float { return zero().Quo(a, b) }

// lst is E[exp(-sB)] of an upper triangular PH.
func lst(p PH, s *big.Float) *big.Float {
	n := p.Phases()
	x := make([]*big.Float, n)
	exit := p.exit()
	sum := zero()
	for i := n - 1; i >= 0; i-- {
		x[i] = num(exit[i])
		for j := i + 1; j < n; j++ {
			if a := p.A.At(i, j); a != 0 {
				x[i] = plus(x[i], times(num(a), x[j]))
			}
		}
		x[i] = over2(x[i], minus(s, num(p.A.At(i, i))))
		if p.Alpha[i] != 0 {
			sum = plus(sum, times(num(p.Alpha[i]), x[i]))
		}
	}
	return sum
}

// textbook is the transform of P(X > t) in the form of Takagi's book.
type textbook struct {
	q       Queue
	class   int
	sojourn bool
}

// work is sum of lambda_j (1-b_j(z)) over the classes from lowest.
func (x textbook) work(z *big.Float, lowest, end int) *big.Float {
	sum := zero()
	for j := lowest; j < end; j++ {
		sum = plus(sum, times(num(x.q.Arrivals.Rates[j]), minus(num(1), lst(x.q.Services[j], z))))
	}
	return sum
}

func (x textbook) at(s *big.Float) *big.Float {
	k, n := x.class, len(x.q.Services)
	// z = s + sum over the classes above of lambda_j (1-b_j(z)), by the secant method.
	next := func(z *big.Float) *big.Float { return plus(s, x.work(z, k+1, n)) }
	z := s
	if k+1 < n {
		a, b := s, next(s)
		fa, fb := minus(next(a), a), minus(next(b), b)
		for range 60 {
			d := minus(fb, fa)
			if d.Sign() == 0 || fb.Sign() == 0 {
				break
			}
			c := minus(b, over2(times(fb, minus(b, a)), d))
			a, fa, b = b, fb, c
			fb = minus(next(c), c)
			if moved := minus(b, a); moved.Sign() == 0 || moved.MantExp(nil) < b.MantExp(nil)-bits+60 {
				break
			}
		}
		z = b
	}
	rho, from := 0.0, 0.0
	for j, p := range x.q.Services {
		load := x.q.Arrivals.Rates[j] * p.Mean()
		rho += load
		if j >= k {
			from += load
		}
	}
	own := x.q.Arrivals.Rates[k]
	numerator := times(num(1-from), z)
	service := z
	if x.q.Discipline == NonPreemptive {
		numerator = plus(times(num(1-rho), z), x.work(z, 0, k))
		service = s
	}
	denominator := minus(s, times(num(own), minus(num(1), lst(x.q.Services[k], z))))
	transform := over2(numerator, denominator)
	if x.sojourn {
		transform = times(transform, lst(x.q.Services[k], service))
	}
	return over2(minus(num(1), transform), s)
}

// stehfest is P(X > t) with 2m terms.
func (x textbook) stehfest(t float64, m int64) float64 {
	log2 := zero()
	for k := int64(1); k < bits+10; k++ { // ln 2 = sum of 1/(k 2^k)
		term := over2(num(1), num(float64(k)))
		log2 = plus(log2, zero().SetMantExp(term, -int(k)))
	}
	step := over2(log2, num(t))
	sum := zero()
	factorial := new(big.Int).MulRange(1, m)
	for k := int64(1); k <= 2*m; k++ {
		weight := new(big.Int)
		for j := (k + 1) / 2; j <= min(k, m); j++ {
			term := new(big.Int).Exp(big.NewInt(j), big.NewInt(m+1), nil)
			term.Mul(term, new(big.Int).Binomial(m, j))
			term.Mul(term, new(big.Int).Binomial(2*j, j))
			term.Mul(term, new(big.Int).Binomial(j, k-j))
			weight.Add(weight, term)
		}
		if (m+k)%2 != 0 {
			weight.Neg(weight)
		}
		w := over2(new(big.Float).SetPrec(bits).SetInt(weight), new(big.Float).SetPrec(bits).SetInt(factorial))
		sum = plus(sum, times(w, x.at(times(num(float64(k)), step))))
	}
	f, _ := times(sum, step).Float64()
	return f
}

// compare fails unless the percentiles of m are right to 1e-7. For the slope, which only
// turns a gap of probability into one of time, the package's own cdf will do.
func (x textbook) compare(t *testing.T, m Measure, terms int64) {
	t.Helper()
	const h = 1e-3
	for _, p := range m.Percentiles {
		here := x.stehfest(p.At, terms)
		if coarse := x.stehfest(p.At, terms*4/5); math.Abs(coarse-here) > 1e-9 {
			t.Fatalf("the oracle itself has not converged: %v with %d terms, %v with %d", coarse, 2*(terms*4/5), here, 2*terms)
		}
		density := (testkit.Need(m.cdf(p.At*(1+h)))(t) - testkit.Need(m.cdf(p.At))(t)) / h // t f(t)
		if off := (1 - p.P - here) / density; !(math.Abs(off) < 1e-7) {
			t.Errorf("%s class %d, sojourn %v: percentile %v is %v, off by %.3g", x.q.Discipline, x.class, x.sojourn, p.P, p.At, off)
		}
	}
}

// matrixExponential is P(X > t) by a dense matrix exponential.
func matrixExponential(alpha []float64, a *mat.Dense, t float64) float64 {
	var scaled, e mat.Dense
	scaled.Scale(t, a)
	e.Exp(&scaled)
	sum := 0.0
	for i, x := range alpha {
		for j := range alpha {
			sum += x * e.At(i, j)
		}
	}
	return sum
}
