package queueing

import (
	"fmt"
	"math"
)

// Source gives random numbers, as math/rand/v2's Rand does.
type Source interface {
	// Float64 is in [0, 1).
	Float64() float64
	// ExpFloat64 is exponential with mean 1.
	ExpFloat64() float64
}

// Mean returns E[X].
func (p PH) Mean() float64 { return p.moment(1) }

// moment returns E[X^n], n at least 0.
func (p PH) moment(n int) float64 {
	if n <= 0 {
		return 1
	}
	return p.moments(n)[n-1]
}

// moments returns E[X], ..., E[X^n], each exact to rounding. Far moments may be infinite
// in float64.
func (p PH) moments(n int) []float64 {
	inverse := newInverse(p)
	x := make([]float64, p.Phases())
	for i := range x {
		x[i] = 1
	}
	out, factorial := make([]float64, max(n, 0)), 1.0
	for i := range out {
		x = inverse.solve(x)
		factorial *= float64(i + 1)
		out[i] = factorial * dot(p.Alpha, x)
	}
	return out
}

// sampler is a PH laid out for drawing: the sums of the probabilities of what follows
// each phase, the last being absorption.
type sampler struct {
	first  []float64
	rate   []float64
	follow [][]float64
	phase  [][]int
}

// Sample draws one time.
func (p PH) Sample(from Source) float64 { return newSampler(p).sample(from) }

func newSampler(p PH) *sampler {
	s := &sampler{first: make([]float64, p.Phases())}
	sum := 0.0
	for i, a := range p.Alpha {
		sum += a
		s.first[i] = sum
		row := p.A.RawRowView(i)
		var follow []float64
		var phase []int
		at := 0.0
		for j, x := range row {
			if j != i && x > 0 {
				at += x / -row[i]
				follow, phase = append(follow, at), append(phase, j)
			}
		}
		if len(follow) > 0 && exitOf(row, i) == 0 {
			follow[len(follow)-1] = 1
		}
		s.rate = append(s.rate, -row[i])
		s.follow, s.phase = append(s.follow, follow), append(s.phase, phase)
	}
	return s
}

func (s *sampler) sample(from Source) float64 {
	i, t := pick(s.first, from.Float64()), 0.0
	i = min(i, len(s.first)-1)
	for {
		t += from.ExpFloat64() / s.rate[i]
		k := 0
		if len(s.follow[i]) > 1 || s.follow[i] != nil && s.follow[i][0] < 1 {
			k = pick(s.follow[i], from.Float64())
		}
		if k >= len(s.phase[i]) {
			return t
		}
		i = s.phase[i][k]
	}
}

// pick returns the first index whose sum is above u; their number where none is.
func pick(sums []float64, u float64) int {
	for i, s := range sums {
		if u < s {
			return i
		}
	}
	return len(sums)
}

// Fit returns a PH with that mean and squared coefficient of variation: hyperexponential with
// balanced means from cv2 = 1, below a mixture of two Erlangs (Tijms 1994), which takes
// 1/cv2 phases.
func Fit(mean, cv2 float64) (PH, error) {
	switch {
	case !isRate(mean) || !isRate(1/mean):
		return PH{}, bad("mean", "is %v; it must be above 0 and finite", mean)
	case !(cv2 >= 1.0/MaxPhases) || math.IsInf(cv2, 1):
		return PH{}, bad("cv2", "is %v; it must be finite and at least 1/%d = %v, which takes the maximum number of phases", cv2, MaxPhases, 1.0/MaxPhases)
	}
	if cv2 >= 1 {
		p := (1 + math.Sqrt((cv2-1)/(cv2+1))) / 2
		if p == 1 {
			return PH{}, bad("cv2", "is %v; above 1e15 the second branch is lost to rounding", cv2)
		}
		return hyper([]float64{p, 1 - p}, []float64{2 * p / mean, 2 * (1 - p) / mean})
	}
	k := int(math.Ceil(1/cv2 - 1e-12))
	n := float64(k)
	p := (n*cv2 - math.Sqrt(max(0, n*(1+cv2)-n*n*cv2))) / (1 + cv2) // of k-1 phases
	p = min(max(p, 0), 1)
	rate := (n - p) / mean
	fitted := chain(k, func(int) float64 { return rate })
	fitted.Alpha[0], fitted.Alpha[min(1, k-1)] = 1-p, p
	if k == 1 {
		fitted.Alpha[0] = 1
	}
	return fitted, nil
}

// FitMoments returns a PH with the first three raw moments: a mixture of two Erlangs of the
// least common order that can have them (Johnson and Taaffe 1989). Any moments of a
// positive time that is not constant can be had, if not always below [MaxPhases].
func FitMoments(m1, m2, m3 float64) (PH, error) {
	for i, m := range []float64{m1, m2, m3} {
		if !isRate(m) {
			return PH{}, bad(fmt.Sprintf("moment %d", i+1), "is %v; it must be above 0 and finite", m)
		}
	}
	if m2 <= m1*m1 {
		return PH{}, bad("moment 2", "is %v; it must be above the square of the mean, %v", m2, m1*m1)
	}
	if m1*m3 <= m2*m2 {
		return PH{}, bad("moment 3", "is %v; with the first two moments it must be at least %v", m3, m2*m2/m1)
	}
	for n := 1; 2*n <= MaxPhases; n++ {
		k := float64(n)
		r1, r2, r3 := m1/k, m2/(k*(k+1)), m3/(k*(k+1)*(k+2))
		if p, ok := twoErlangs(n, r1, r2, r3); ok {
			return p, nil
		}
	}
	return PH{}, bad("moments", "%v, %v, %v need more than %d phases; fit only mean and variation", m1, m2, m3, MaxPhases)
}

// twoErlangs has scales with the moments r1, r2, r3: the two points of Gauss' quadrature.
func twoErlangs(n int, r1, r2, r3 float64) (PH, bool) {
	spread, skew := r2-r1*r1, r3*r1-r2*r2
	if math.Abs(spread) <= 1e-12*r2 && math.Abs(skew) <= 1e-12*r2*r2 {
		p, err := Erlang(n, 1/r1)
		return p, err == nil
	}
	if spread <= 1e-12*r2 || skew <= 0 {
		return PH{}, false
	}
	// The points are the roots of x^2 - sum x + product.
	sum, product := (r3-r1*r2)/spread, skew/spread
	root := math.Sqrt(max(0, sum*sum-4*product))
	large := (sum + root) / 2
	small := product / large
	weight := (r1 - small) / (large - small)
	if !(small > 0 && large > small && weight > 0 && weight < 1) {
		return PH{}, false
	}
	a, errA := Erlang(n, 1/large)
	b, errB := Erlang(n, 1/small)
	if errA != nil || errB != nil {
		return PH{}, false
	}
	return mixture([]float64{weight, 1 - weight}, a, b), true
}
