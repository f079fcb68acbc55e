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

// invert gives f(t) in [0, 1], t > 0, and its slope from its transform by the Fourier series
// of Abate and Whitt (1995), along a line right of all singularities. Its alternating tail
// is averaged (Euler's summation). Rounds take more terms until two of them agree. The
// slope is the series of s times the transform: f(0), which is missing there, is a constant
// and averages out. It has fewer digits.
func invert(transform func(s complex128) (complex128, error), t float64) (value, slope float64, err error) {
	step := math.Pi / t
	var sums, slopes []float64
	sum, slopeSum, sign := 0.0, 0.0, 1.0
	scale := math.Exp(aliasing/2) / t
	before, agreed := math.Inf(1), 0
	for terms := termsMin; terms <= termsMax; terms += terms / 2 {
		for n := len(sums); n <= terms+averaging; n++ {
			s := complex(aliasing/(2*t), float64(n)*step)
			f, err := transform(s)
			if err != nil {
				return 0, 0, err
			}
			weight := sign * scale
			if n == 0 {
				weight /= 2
			}
			sum += weight * real(f)
			slopeSum += weight * real(s*f)
			sums, slopes = append(sums, sum), append(slopes, slopeSum)
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
			return now, average(slopes[terms:]), nil
		}
		before = now
	}
	return 0, 0, &NumericError{
		What: fmt.Sprintf("the distribution at %v did not converge within %d terms", t, termsMax),
		Hint: "the rates differ too much: omit phases of negligible time, or request only moments",
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

// measure returns a Measure with moments.
func measure(moments []float64) Measure { return Measure{Mean: moments[0], Moments: moments} }

// fill computes the percentiles, after the other fields.
func (m *Measure) fill(percentiles []float64) error {
	for i, x := range m.Moments {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return &NumericError{What: fmt.Sprintf("moment %d overflows", i+1), Hint: "request fewer moments, or use a larger time unit"}
		}
	}
	search := quantiles{law: m.law, mean: m.Mean}
	for _, p := range percentiles {
		at, err := search.find(p)
		if err != nil {
			return fmt.Errorf("percentile %v: %w", p, err)
		}
		m.Percentiles = append(m.Percentiles, Percentile{P: p, At: at})
	}
	return nil
}

// law is P(X <= t) and its density for t >= 0. The density need not be exact; NaN means
// unknown.
type law func(t float64) (below, density float64, err error)

// quantiles searches for percentiles of one law.
type quantiles struct {
	law  law
	mean float64
	// Where the last search ended: the next starts from there.
	at, target, slope float64
}

const (
	// quantileExact is how near, relative, two ends of the search must come.
	quantileExact = 1e-12
	// quantileStep is the last step, relative, of Newton's method: the one after it would
	// be its square, or that much less by the error of the density.
	quantileStep = 1e-9
	// quantileNoise is the largest last step where rounding lets none be smaller.
	quantileNoise = 1e-7
)

// find solves P(X <= t) = p by Newton's method on the logarithm of the tail, which is nearly
// a line, within a bracket that shrinks with every step.
func (q *quantiles) find(p float64) (float64, error) {
	target := math.Log1p(-p)
	if atom, _, err := q.law(0); err != nil || atom >= p {
		return 0, err
	}
	low, high, t, last := 0.0, math.Inf(1), q.start(target), math.Inf(1)
	atBefore, offBefore := 0.0, math.NaN()
	for range 200 {
		below, density, err := q.law(t)
		if err != nil {
			return 0, err
		}
		tail := max(1-below, 1e-300)
		off, slope := target-math.Log(tail), density/tail // off rises with t
		if math.IsNaN(slope) {                            // the secant, at first that of an exponential law
			if slope = (off - offBefore) / (t - atBefore); math.IsNaN(slope) {
				slope = 1 / q.mean
			}
		}
		atBefore, offBefore = t, off
		switch {
		case off < 0:
			low = t
		case off > 0:
			high = t
		}
		step := -off / slope
		size := math.Abs(step)
		if off == 0 || size <= quantileStep*t || size <= quantileNoise*t && size >= last/2 {
			q.at, q.target, q.slope = t+step, target, slope
			if off == 0 {
				q.at = t
			}
			return q.at, nil
		}
		if high-low <= quantileExact*low {
			return high, nil
		}
		last = size
		next := t + step
		switch {
		case math.IsInf(high, 1) && !(next > t && next < 4*t):
			next = 2 * t
		case !(next > low && next < high):
			next, last = low+(high-low)/2, math.Inf(1)
		}
		t = next
	}
	return 0, &NumericError{What: "a percentile was not found", Hint: "request another one, or only moments"}
}

// start returns where the search begins: on the line through the end of the last one, else where
// an exponential law has the percentile.
func (q *quantiles) start(target float64) float64 {
	if t := q.at + (q.target-target)/q.slope; q.at > 0 && t > q.at/2 && t < 8*q.at {
		return t
	}
	return q.mean * max(-target, 0.1)
}
