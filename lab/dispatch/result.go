package dispatch

import (
	"math"
	"slices"
)

// Result is the result of a simulation.
type Result struct {
	Short, Long Class
	Tasks, Jobs int
	// Util is the part of the workers' time that tasks took, from the first arrival to the last end.
	Util float64
}

// Class is the jobs of a class. Without jobs, all are NaN.
type Class struct {
	Jobs int
	// Completion times, s.
	P50, P90, P99, Mean float64
	// Slow99 is the slowdown at the 99th percentile.
	Slow99 float64
}

// measured collects a class.
type measured struct{ completion, longest []float64 }

func (m *measured) add(completion, longest float64) {
	m.completion, m.longest = append(m.completion, completion), append(m.longest, longest)
}

func (m *measured) class() Class {
	c := Class{Jobs: len(m.completion)}
	slices.Sort(m.completion)
	slices.Sort(m.longest)
	c.P50, c.P90, c.P99 = Percentile(m.completion, 0.5), Percentile(m.completion, 0.9), Percentile(m.completion, 0.99)
	c.Slow99 = c.P99 / Percentile(m.longest, 0.99)
	for _, x := range m.completion {
		c.Mean += x
	}
	c.Mean /= float64(c.Jobs)
	return c
}

// Percentile returns the value below which the part p of sorted values lies, interpolated linearly between the two nearest; NaN of none.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
