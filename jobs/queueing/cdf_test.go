// Claims: none of its own; distributions and waiting times by their probabilities, which other tests compare with.
package queueing

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// jumpsMost bounds the steps of uniformisation; beyond it, a matrix exponential.
const jumpsMost = 20000

// cdf returns P(X <= t).
func (p PH) cdf(t float64) float64 {
	if math.IsNaN(t) {
		return math.NaN()
	}
	if t <= 0 {
		return 0
	}
	if math.IsInf(t, 1) {
		return 1
	}
	return min(1, max(0, 1-p.survival(t)))
}

// survival returns P(X > t) = alpha exp(At) 1.
func (p PH) survival(t float64) float64 {
	fastest := 0.0
	for i := range p.Phases() {
		fastest = max(fastest, -p.A.At(i, i))
	}
	if jumps := fastest * t; jumps <= jumpsMost {
		return p.uniformised(fastest, jumps)
	}
	var scaled, e mat.Dense
	scaled.Scale(t, p.A)
	e.Exp(&scaled)
	var row mat.VecDense
	row.MulVec(e.T(), mat.NewVecDense(len(p.Alpha), p.Alpha))
	return mass(row.RawVector().Data)
}

// uniformised sums, over the number of jumps of a chain that jumps at the fastest rate,
// the probability of that number and of being still alive: positive terms only.
func (p PH) uniformised(rate, jumps float64) float64 {
	n := p.Phases()
	alive, next := append([]float64(nil), p.Alpha...), make([]float64, n)
	sum, logWeight := 0.0, -jumps
	most := int(jumps + 10*math.Sqrt(jumps) + 60)
	for k := 0; k <= most; k++ {
		left := mass(alive)
		sum += math.Exp(logWeight) * left
		if left < 1e-18 {
			break
		}
		logWeight += math.Log(jumps / float64(k+1))
		clear(next)
		for i, x := range alive {
			if x == 0 {
				continue
			}
			for j, a := range p.A.RawRowView(i) {
				if a != 0 {
					next[j] += x * a / rate
				}
			}
			next[i] += x
		}
		alive, next = next, alive
	}
	return sum
}

// cdf returns the probability that the time is at most t. It computes, some 50 microseconds
// for triangular services.
func (m Measure) cdf(t float64) (float64, error) {
	switch {
	case math.IsNaN(t):
		return 0, bad("t", "is %v; it must be a finite time of at least 0", t)
	case t < 0:
		return 0, nil
	case math.IsInf(t, 1):
		return 1, nil
	}
	below, _, err := m.law(t)
	return below, err
}
