package queueing

import (
	"fmt"
	"math"
)

// Bounds of the inversion. The error of the series against the integral is
// exp(-aliasing) of P(X > 3t), 4e-11 at most; rounding is multiplied by
// exp(aliasing/2), which makes 1e-11 of it. Hence settled.
const (
	aliasing  = 24.0
	settled   = 2e-11
	averaging = 16    // terms of Euler's binomial average
	termsMin  = 16    // terms before the average, in the first round
	termsMax  = 50000 // enough for a service of 2000 equal phases
)

// invert gives f(t) in [0, 1], t > 0, from its transform by the Fourier series of Abate
// and Whitt (1995), along a line right of all singularities. Its alternating tail is
// averaged (Euler's summation). Rounds take more terms until two of them agree.
func invert(transform func(s complex128) (complex128, error), t float64) (float64, error) {
	step := math.Pi / t
	var sums []float64
	sum, sign := 0.0, 1.0
	scale := math.Exp(aliasing/2) / t
	before, agreed := math.Inf(1), 0
	for terms := termsMin; terms <= termsMax; terms += terms / 2 {
		for n := len(sums); n <= terms+averaging; n++ {
			f, err := transform(complex(aliasing/(2*t), float64(n)*step))
			if err != nil {
				return 0, err
			}
			term := sign * scale * real(f)
			if n == 0 {
				term /= 2
			}
			sum += term
			sums = append(sums, sum)
			sign = -sign
		}
		now := average(sums[terms:])
		if math.IsNaN(now) || math.IsInf(now, 0) {
			break
		}
		if math.Abs(now-before) <= settled {
			agreed++
		} else {
			agreed = 0
		}
		if agreed > 0 && math.Abs(now-average(sums[terms-4:terms-4+averaging+1])) <= 10*settled {
			return now, nil
		}
		before = now
	}
	return 0, &NumericError{
		What: fmt.Sprintf("the distribution at %v did not settle within %d terms", t, termsMax),
		Hint: "the rates are too unlike each other: leave out phases that take next to no time, or ask for moments only",
	}
}

// average weights the sums by the binomial distribution.
func average(sums []float64) float64 {
	n := len(sums) - 1
	weight, total := math.Pow(2, -float64(n)), 0.0
	for i, s := range sums {
		total += weight * s
		weight *= float64(n-i) / float64(i+1)
	}
	return total
}

// measure is a Measure with moments.
func measure(moments []float64) Measure { return Measure{Mean: moments[0], Moments: moments} }

// fill computes the percentiles, after the other fields.
func (m *Measure) fill(percentiles []float64) error {
	for i, x := range m.Moments {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return &NumericError{What: fmt.Sprintf("moment %d is beyond what numbers hold", i+1), Hint: "ask for fewer moments, or count time in larger units"}
		}
	}
	for _, p := range percentiles {
		at, err := quantile(m.cdf, m.Mean, p)
		if err != nil {
			return fmt.Errorf("percentile %v: %w", p, err)
		}
		m.Percentiles = append(m.Percentiles, Percentile{P: p, At: at})
	}
	return nil
}

// quantile solves cdf(t) = p on the logarithm of 1-cdf, which is nearly a line: bracketed
// false position with Illinois' halving.
func quantile(cdf func(t float64) (float64, error), mean, p float64) (float64, error) {
	target := math.Log1p(-p)
	var failed error
	f := func(t float64) float64 {
		x, err := cdf(t)
		if err != nil {
			failed = err
			return math.NaN()
		}
		return target - math.Log(max(1-x, 1e-300)) // rises with t
	}
	low, fLow := 0.0, f(0)
	if failed != nil || fLow >= 0 {
		return 0, failed
	}
	high := mean * max(-target, 0.1)
	fHigh := f(high)
	for range 200 {
		if failed != nil || fHigh >= 0 {
			break
		}
		low, fLow, high = high, fHigh, 2*high
		fHigh = f(high)
	}
	if failed != nil {
		return 0, failed
	}
	return falsePosition(f, &failed, low, fLow, high, fHigh)
}

// quantileExact is how near, relative, two steps of the search must come.
const quantileExact = 1e-12

func falsePosition(f func(float64) float64, failed *error, low, fLow, high, fHigh float64) (float64, error) {
	side, last := 0, math.Inf(1)
	for range 200 {
		if fHigh == fLow {
			return low, nil
		}
		t := high - fHigh*(high-low)/(fHigh-fLow)
		if !(t > low && t < high) {
			t = low + (high-low)/2
		}
		if high-low <= quantileExact*high || math.Abs(t-last) <= quantileExact*t {
			return t, nil
		}
		last = t
		x := f(t)
		switch {
		case *failed != nil:
			return 0, *failed
		case x < 0:
			low, fLow = t, x
			if side < 0 {
				fHigh /= 2
			}
			side = -1
		case x > 0:
			high, fHigh = t, x
			if side > 0 {
				fLow /= 2
			}
			side = 1
		default:
			return t, nil
		}
	}
	return 0, &NumericError{What: "a percentile was not found", Hint: "ask for another one, or for moments only"}
}
