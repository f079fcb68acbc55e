package usba

import (
	"fmt"
	"math"

	"headroom/jobs/scaling/regress"
)

// sizeMost bounds problem sizes and parallel degrees.
const sizeMost = 1_000_000

// Model has the parameters of the surface.
type Model struct {
	// R is tau0 over the sum of tau_k: the launch against the stages, at N = m = 1.
	R float64
	// Alpha, Beta and Gamma are of p (3.15), Eps and Theta of q (3.16).
	Alpha, Beta, Gamma, Eps, Theta float64
}

// Check refuses parameters out of their bounds.
func (m Model) Check() error {
	for _, x := range []struct {
		name              string
		value, low, above float64
	}{
		{"r", m.R, 0, 1e9},
		{"alpha", m.Alpha, -1e6, 1e6},
		{"beta", m.Beta, -1e6, 1e6},
		{"gamma", m.Gamma, -1e6, 1e6},
		{"eps", m.Eps, 0, 1e6},
		{"theta", m.Theta, 1, sizeMost},
	} {
		if !(x.value >= x.low && x.value <= x.above) {
			return fmt.Errorf("usba: %w: %s is %v; it must be from %g to %g", regress.ErrNumber, x.name, x.value, x.low, x.above)
		}
	}
	return nil
}

// P returns how the stages' time grows (3.15).
func (m Model) P(n, degree float64) float64 {
	return 1 - m.Beta - m.Gamma + m.Alpha*math.Log(n/degree) + m.Beta*degree + m.Gamma*n
}

// Q returns how the launch grows (3.16).
func (m Model) Q(degree float64) float64 { return 1 - m.Eps + m.Eps*min(degree, m.Theta) }

// Speedup returns (3.14); NaN where the parameters give the job no time.
func (m Model) Speedup(n, degree float64) float64 {
	launch, stages := m.R*m.Q(degree), m.P(n, degree)
	if launch+stages <= 0 {
		return math.NaN()
	}
	return (m.R + n) / (launch + stages)
}

// Peak returns the degree, from 1 to n, at which a job of size n is fastest. ok reports whether it is slower beyond: the
// peak lies below n.
func (m Model) Peak(n int) (degree int, speedup float64, ok bool) {
	for d := 1; d <= n; d++ {
		if s := m.Speedup(float64(n), float64(d)); s > speedup {
			degree, speedup = d, s
		}
	}
	return degree, speedup, degree > 0 && degree < n
}
