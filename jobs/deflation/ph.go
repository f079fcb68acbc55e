package deflation

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"headroom/jobs/queueing"
)

// phTime is a PH distribution as a job's time.
type phTime struct {
	ph queueing.PH
	// left[j] are, for each phase, the mean of the j-th power of the time that is left.
	left [4][]float64
	// rate is the fastest of the phases' rates, and jump the chain that is watched at that
	// rate: I + A/rate, by rows without zeros.
	rate float64
	jump []entry
}

// entry is one number of a matrix.
type entry struct {
	from, to int
	p        float64
}

func newPHTime(ph queueing.PH) (*phTime, error) {
	n := ph.Phases()
	x := &phTime{ph: ph}
	for i := range n {
		x.rate = max(x.rate, -ph.A.At(i, i))
	}
	x.left[0] = ones(n)
	var minus mat.Dense
	minus.Scale(-1, ph.A)
	var lu mat.LU
	lu.Factorize(&minus)
	for j := 1; j < len(x.left); j++ {
		var v mat.VecDense
		if err := lu.SolveVecTo(&v, false, mat.NewVecDense(n, x.left[j-1])); err != nil {
			return nil, because("job time", "has phases whose times differ too much for the arithmetic", err)
		}
		v.ScaleVec(float64(j), &v)
		x.left[j] = v.RawVector().Data
	}
	for i := range n {
		for j, a := range ph.A.RawRowView(i) {
			p := a / x.rate
			if i == j {
				p++
			}
			if p != 0 {
				x.jump = append(x.jump, entry{i, j, p})
			}
		}
	}
	return x, nil
}

func ones(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

// Excess follows the phases to time t and asks them what is left.
func (x *phTime) Excess(t float64) Excess {
	at := x.phases(t)
	var out Excess
	for j := range out {
		for i, p := range at {
			out[j] += p * x.left[j][i]
		}
	}
	return out
}

// stepMost keeps exp(-rate t) far from underflow: longer times go in steps.
const stepMost = 200.0

// phases returns the probabilities of the phases at time t, by uniformisation: alpha exp(A t).
// Beyond so many mean times that nothing is left it stops.
func (x *phTime) phases(t float64) []float64 {
	v := append([]float64(nil), x.ph.Alpha...)
	for left := x.rate * t; left > 0; left -= stepMost {
		v = x.step(v, min(left, stepMost))
		if mat.Sum(mat.NewVecDense(len(v), v)) < 1e-18 {
			return make([]float64, len(v))
		}
	}
	return v
}

// step follows the phases for so many mean times of the fastest phase.
func (x *phTime) step(v []float64, times float64) []float64 {
	out := make([]float64, len(v))
	weight, sum := math.Exp(-times), 0.0
	for k := 0; ; k++ {
		for i, p := range v {
			out[i] += weight * p
		}
		sum += weight
		if float64(k) > times && (weight < 1e-17 || sum >= 1) {
			return out
		}
		next := make([]float64, len(v))
		for _, e := range x.jump {
			next[e.to] += v[e.from] * e.p
		}
		v = next
		weight *= times / float64(k+1)
	}
}

// moments returns the first three moments of a time by its mean and coefficient of variation;
// the third is that of the gamma distribution, which most times of jobs resemble.
func moments(mean, cv float64) [3]float64 {
	v := cv * cv
	return [3]float64{mean, mean * mean * (1 + v), mean * mean * mean * (1 + v) * (1 + 2*v)}
}
