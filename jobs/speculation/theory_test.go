// Claims: none of its own; the model of GRASS's appendix, which theory_paper_test.go holds against its paper.
package speculation

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/integrate/quad"
)

// Pareto is the model's distribution of task times: P(tau > t) = (Scale/t)^Beta from Scale
// on. A mean needs Beta above 1; the traces of the paper have 1.259.
type Pareto struct{ Beta, Scale float64 }

// Check reports what is invalid.
func (p Pareto) Check() error {
	if !(p.Beta > 1) || math.IsInf(p.Beta, 0) || !(p.Scale > 0) || math.IsInf(p.Scale, 0) {
		return bad("Pareto: beta %v must be above 1, scale %v above 0, both finite", p.Beta, p.Scale)
	}
	return nil
}

// Mean returns E[tau].
func (p Pareto) Mean() float64 { return p.MeanLeast(1) }

// MeanLeast returns E[min(tau_1 ... tau_k)]; k from 1 on need not be whole.
func (p Pareto) MeanLeast(k float64) float64 { return k * p.Beta * p.Scale / (k*p.Beta - 1) }

// Survival returns P(tau > t).
func (p Pareto) Survival(t float64) float64 {
	return math.Pow(p.Scale/max(t, p.Scale), p.Beta)
}

// MeanLeft returns E[tau - omega | tau > omega].
func (p Pareto) MeanLeft(omega float64) float64 {
	if omega < p.Scale {
		return p.Mean() - omega
	}
	return omega / (p.Beta - 1)
}

// OmegaGS returns how long GS lets a task run before it copies it: E[tau] = E[tau - omega | tau > omega].
func (p Pareto) OmegaGS() float64 { return p.Beta * p.Scale }

// OmegaRAS returns that of RAS: 2 E[tau] = E[tau - omega | tau > omega].
func (p Pareto) OmegaRAS() float64 { return 2 * p.Beta * p.Scale }

// Sigma returns how many copies of a task are best in the early waves (Theorem 1).
func (p Pareto) Sigma() float64 { return max(2/p.Beta, 1) }

// Blow returns the work of a task without copies over that of k copies from the start on: the
// second factor of equation (1).
func (p Pareto) Blow(k float64) float64 { return p.Mean() / (k * p.MeanLeast(k)) }

// BlowAfter returns the same where a second copy starts once the first has run for omega:
// the first line of equation (3).
func (p Pareto) BlowAfter(omega float64) float64 {
	later := p.Survival(omega)
	if later == 0 {
		return 1
	}
	early := p.Mean() - later*(omega+p.MeanLeft(omega))
	return p.Mean() / (early + later*(2*p.meanRace(omega)+omega))
}

// meanRace returns E[min(tau_1, tau_2 + omega) - omega | tau_1 > omega]: the integral of
// P(tau_1 > omega + s | tau_1 > omega) P(tau_2 > s) over s.
func (p Pareto) meanRace(omega float64) float64 {
	// points of the Gauss-Legendre rule; u = t^4 makes the integrand smooth at 0.
	const points = 200
	a := max(omega, p.Scale)
	both := max(0, p.Scale-omega)
	first := a * (1 - math.Pow((omega+p.Scale)/a, 1-p.Beta)) / (p.Beta - 1)
	// s = scale/u for the part beyond scale.
	rest := quad.Fixed(func(t float64) float64 {
		u := t * t * t * t
		return 4 * t * t * t * math.Pow(u, 2*p.Beta-2) * math.Pow(a/(omega*u+p.Scale), p.Beta)
	}, 0, 1, points, quad.Legendre{}, 0)
	return both + first + p.Scale*rest
}

// Model is the appendix's: one job of Waves * Slots tasks with Pareto times. Capacities
// are parts of all the job's slots.
type Model struct {
	Pareto
	// Waves is at least 1; Slots is at least 1.
	Waves, Slots float64
}

// Check reports what is invalid.
func (m Model) Check() error {
	for _, n := range []float64{m.Waves, m.Slots} {
		if !(n >= 1) || math.IsInf(n, 0) {
			return bad("model: waves %v and slots %v must be at least 1 and finite", m.Waves, m.Slots)
		}
	}
	return m.Pareto.Check()
}

// Copies returns the best number of copies of each task while the part left of the work
// remains (Theorem 1).
func (m Model) Copies(left float64) float64 {
	waves := left * m.Waves
	switch {
	case waves*m.Sigma() >= 1:
		return m.Sigma()
	case waves*m.Slots >= 1:
		return 1 / waves
	}
	return m.Slots
}

// Rate returns equation (1): how fast work is completed with k copies of each task, while the
// part left of it remains.
func (m Model) Rate(left, k float64) float64 {
	return min(1, max(k/m.Slots, left*m.Waves*k)) * m.Blow(k)
}

// RateAfter returns equation (3): a second copy after omega while tasks abound, and the best
// proactive number of copies once they do not.
func (m Model) RateAfter(left, omega float64) float64 {
	if left >= m.lastWave(omega) {
		return m.BlowAfter(omega)
	}
	return m.Rate(left, m.Copies(left))
}

// lastWave returns the part of the work at which equation (3) changes its line.
func (m Model) lastWave(omega float64) float64 { return 1 / (m.Waves * (1 + m.Survival(omega))) }

// Response returns the time that the job takes if a second copy of a task starts after omega,
// as a multiple of its time at full rate without copies: the integral of 1/RateAfter over
// the part left, in closed form.
func (m Model) Response(omega float64) float64 {
	turn := min(1, m.lastWave(omega))
	full := min(turn, 1/(m.Waves*m.Sigma())) // from here on copies fill the slots
	one := min(full, 1/(m.Waves*m.Slots))    // less than one task is left
	total := (1-turn)/m.BlowAfter(omega) + (turn-full)/m.Blow(m.Sigma()) + one/m.Blow(m.Slots)
	if one < full {
		fewest := 1 / (m.Waves * full)
		total += (m.Beta - 1) / (m.Waves * m.Beta) * math.Log((m.Slots*m.Beta-1)/(fewest*m.Beta-1))
	}
	return total
}

// Hill estimates Beta from the k greatest of the values: k over the sum of their
// logarithms, relative to the next one.
func Hill(values []float64, k int) (beta float64, err error) {
	if k < 1 || k >= len(values) {
		return 0, bad("Hill: k is %d of %d values; it must be at least 1 and below the number of values", k, len(values))
	}
	for i, x := range values {
		if !(x > 0) || math.IsInf(x, 0) {
			return 0, bad("Hill: values[%d] is %v; it must be above 0 and finite", i, x)
		}
	}
	sorted := slices.Sorted(slices.Values(values))
	next := sorted[len(sorted)-1-k]
	var sum float64
	for _, x := range sorted[len(sorted)-k:] {
		sum += math.Log(x / next)
	}
	if sum == 0 {
		return 0, bad("Hill: the %d largest values are equal; there is no tail", k+1)
	}
	return float64(k) / sum, nil
}
