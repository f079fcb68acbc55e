package queueing

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// MaxPhases bounds a PH distribution: its dense matrix then takes 32 MB.
const MaxPhases = 2000

// tolerance is how far sums that should be 0 or 1 may be from it by rounding of the
// input, relative to what was summed.
const tolerance = 1e-9

// PH is a phase-type distribution: the time until a Markov chain that starts in phase i
// with probability Alpha[i] and moves with the rates of A is absorbed. Off the diagonal
// of A are the rates between phases; its rows sum to minus the rates of absorption.
//
// Invariant: made by this package's constructors, Alpha sums to 1 and the chain is
// absorbed with certainty. Neither Alpha nor A may be changed afterwards.
type PH struct {
	Alpha []float64
	A     *mat.Dense
}

// NewPH checks and copies. The error names row, column and number.
func NewPH(alpha []float64, a [][]float64) (PH, error) {
	n := len(alpha)
	switch {
	case n == 0:
		return PH{}, bad("alpha", "is empty; a distribution needs at least one phase")
	case n > MaxPhases:
		return PH{}, bad("alpha", "has %d phases; the maximum is %d", n, MaxPhases)
	case len(a) != n:
		return PH{}, bad("A", "has %d rows for the %d phases of alpha", len(a), n)
	}
	p := PH{Alpha: append([]float64(nil), alpha...), A: mat.NewDense(n, n, nil)}
	for i, row := range a {
		if len(row) != n {
			return PH{}, bad(fmt.Sprintf("A[%d]", i), "has %d columns for the %d phases of alpha", len(row), n)
		}
		p.A.SetRow(i, row)
	}
	if err := p.validate(); err != nil {
		return PH{}, err
	}
	normalise(p.Alpha)
	return p, nil
}

// validate checks a distribution that may not come from a constructor.
func (p PH) validate() error {
	if p.A == nil {
		return bad("A", "is missing")
	}
	n := len(p.Alpha)
	if r, c := p.A.Dims(); r != n || c != n || n == 0 {
		return bad("A", "is %d by %d for the %d phases of alpha", r, c, n)
	}
	if err := checkProbabilities("alpha", p.Alpha); err != nil {
		return err
	}
	for i := range n {
		if err := checkRow(p.A.RawRowView(i), i); err != nil {
			return err
		}
	}
	return p.checkAbsorbed()
}

// checkProbabilities takes what sums to 1 but for rounding.
func checkProbabilities(place string, probabilities []float64) error {
	sum := 0.0
	for i, x := range probabilities {
		if !(x >= 0 && x <= 1+tolerance) {
			return bad(fmt.Sprintf("%s[%d]", place, i), "is %v; a probability is from 0 to 1", x)
		}
		sum += x
	}
	if math.Abs(sum-1) > tolerance {
		return bad(place, "sums to %v; probabilities sum to 1", sum)
	}
	return nil
}

// normalise takes the rounding out of the sum of probabilities.
func normalise(probabilities []float64) {
	sum := mass(probabilities)
	for i := range probabilities {
		probabilities[i] /= sum
	}
}

func checkRow(row []float64, i int) error {
	sum := 0.0
	for j, x := range row {
		place := func() string { return fmt.Sprintf("A[%d][%d]", i, j) }
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return bad(place(), "is %v; it must be a finite rate", x)
		case i == j && x >= 0:
			return bad(place(), "is %v; the diagonal must be negative: minus the rate of leaving the phase", x)
		case i != j && x < 0:
			return bad(place(), "is %v; a rate between phases is at least 0", x)
		}
		sum += x
	}
	if sum > tolerance*-row[i] {
		return bad(fmt.Sprintf("A[%d]", i), "sums to %v; the row of phase %d must not be positive: make A[%d][%d] at most %v",
			sum, i, i, i, row[i]-sum)
	}
	return nil
}

// checkAbsorbed finds the phases from which no path leads to absorption: for these A is
// singular and the time infinite.
func (p PH) checkAbsorbed() error {
	n, exit := len(p.Alpha), p.exit()
	ends := make([]bool, n)
	var found []int
	for i, x := range exit {
		if x > 0 {
			ends[i], found = true, append(found, i)
		}
	}
	for len(found) > 0 {
		j := found[len(found)-1]
		found = found[:len(found)-1]
		for i := range n {
			if !ends[i] && p.A.At(i, j) > 0 {
				ends[i], found = true, append(found, i)
			}
		}
	}
	for i, ok := range ends {
		if !ok {
			return bad(fmt.Sprintf("A[%d]", i), "is never absorbed: phase %d has no path to absorption, so A is singular; give an absorption rate", i)
		}
	}
	return nil
}

// Phases returns the number of phases.
func (p PH) Phases() int { return len(p.Alpha) }

// exit returns the rate of absorption from each phase.
func (p PH) exit() []float64 {
	exit := make([]float64, len(p.Alpha))
	for i := range exit {
		exit[i] = exitOf(p.A.RawRowView(i), i)
	}
	return exit
}

// exitOf returns minus the sum of a row. What is within the rounding of the sum is 0, or a
// chain would be absorbed where its author let it go on.
func exitOf(row []float64, i int) float64 {
	sum := 0.0
	for _, x := range row {
		sum += x
	}
	if sum > -1e-14*float64(len(row))*-row[i] {
		return 0
	}
	return -sum
}

// exponential has one phase, with rate per unit of time.
func exponential(rate float64) (PH, error) { return Erlang(1, rate) }

// Erlang returns the sum of n exponential times of that rate each.
func Erlang(n int, rate float64) (PH, error) {
	switch {
	case n < 1 || n > MaxPhases:
		return PH{}, bad("phases", "are %d; must be from 1 to %d", n, MaxPhases)
	case !isRate(rate):
		return PH{}, bad("rate", "is %v; it must be above 0 and finite", rate)
	}
	return chain(n, func(int) float64 { return rate }), nil
}

// chain passes through n phases with the rates rate(0), ..., rate(n-1).
func chain(n int, rate func(i int) float64) PH {
	p := PH{Alpha: make([]float64, n), A: mat.NewDense(n, n, nil)}
	p.Alpha[0] = 1
	for i := range n {
		p.A.Set(i, i, -rate(i))
		if i+1 < n {
			p.A.Set(i, i+1, rate(i))
		}
	}
	return p
}

// hyper returns exponential with one of the rates, chosen by the probabilities.
func hyper(probabilities, rates []float64) (PH, error) {
	branches := make([]PH, len(rates))
	for i, rate := range rates {
		var err error
		if branches[i], err = exponential(rate); err != nil {
			return PH{}, bad(fmt.Sprintf("rates[%d]", i), "is %v; it must be above 0 and finite", rate)
		}
	}
	return mixture(probabilities, branches...), nil
}

func isRate(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
