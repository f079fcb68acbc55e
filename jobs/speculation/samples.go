package speculation

import (
	"math"
)

// Settings of GRASS.
const (
	// Xi is the part of jobs that run GS or RAS all through, as samples (section 4.2).
	Xi = 0.15
	// samplesMost bounds the samples; the oldest go first, since clusters change.
	samplesMost = 2000
	// samplesLeast of either kind are needed before they decide.
	samplesLeast = 5
	// stepsMost bounds the splits that are compared; steps of 1 s or one task grow with what
	// is left.
	stepsMost = 100
	// quarters of utilisation and of accuracy count as alike.
	quarters = 4
)

// Factors are what of a past job must be like the present one, beside its bin of tasks
// (Figs. 13 and 14).
type Factors uint8

// Factors, to be combined.
const (
	// ByBound: performance depends on the deadline or on the number of tasks that are needed.
	ByBound Factors = 1 << iota
	// ByUtilisation: only samples of the same quarter of utilisation count.
	ByUtilisation
	// ByAccuracy: only samples of the same quarter of accuracy count.
	ByAccuracy
)

// AllFactors are the three of GRASS.
const AllFactors = ByBound | ByUtilisation | ByAccuracy

// Sample is what a past job achieved by GS or RAS alone.
type Sample struct {
	// Greedy: it ran by GS all through, otherwise by RAS.
	Greedy bool
	// ByDeadline says which kind of bound it had.
	ByDeadline bool
	// Tasks is how many it had.
	Tasks int
	// Size is its bound: the seconds to the deadline, or the tasks that were needed. Result is
	// what it achieved: tasks completed, or the seconds they took.
	Size, Result float64
	// Utilisation and Accuracy are as in View.
	Utilisation, Accuracy float64
}

// Samples are past jobs, which say when to switch from RAS to GS. No job may add to them
// before it has ended, and none may be decided by samples of itself.
type Samples struct {
	factors Factors
	all     []Sample
	next    int
}

// NewSamples holds samples that are compared by the factors.
func NewSamples(factors Factors) *Samples { return &Samples{factors: factors} }

// Add takes a sample. Of too many the oldest is forgotten.
func (s *Samples) Add(x Sample) error {
	for _, n := range []float64{x.Size, x.Result} {
		if !(n >= 0) || math.IsInf(n, 0) {
			return bad("sample: size %v and result %v must be finite and 0 or more", x.Size, x.Result)
		}
	}
	if x.Tasks < 1 || x.Size == 0 || !(x.Utilisation >= 0 && x.Utilisation <= 1) || !(x.Accuracy >= 0 && x.Accuracy <= 1) {
		return bad("sample: tasks %d and size %v must be above 0, utilisation %v and accuracy %v from 0 to 1", x.Tasks, x.Size, x.Utilisation, x.Accuracy)
	}
	if len(s.all) < samplesMost {
		s.all = append(s.all, x)
		return nil
	}
	s.all[s.next] = x
	s.next = (s.next + 1) % samplesMost
	return nil
}

// Explore reports whether a new job is to be a sample, and by which policy it then runs: with
// probability xi, half of them by GS and half by RAS. Draw is uniform in [0, 1).
func Explore(xi, draw float64) (p Policy, sample bool) {
	switch {
	case draw < xi/2:
		return GS, true
	case draw < xi:
		return RAS, true
	}
	return GRASS, false
}

// bin is the paper's: below 50 tasks, up to 500, above.
func bin(tasks int) int {
	switch {
	case tasks < 50:
		return 0
	case tasks <= 500:
		return 1
	}
	return 2
}

func quarter(x float64) int { return min(quarters-1, int(x*quarters)) }

// switches reports whether the job is to go over to GS now: no later moment promises more.
// Too few samples that are like it leave accuracy out, then utilisation; without enough even
// then, the strawman decides.
func (s *Samples) switches(v *View) bool {
	left := v.Bound.Left.Seconds()
	if !v.Bound.ByDeadline {
		left = float64(v.Bound.Need(len(v.Tasks)) - v.done())
	}
	if left <= 0 {
		return v.twoWavesLeft()
	}
	if s != nil {
		for _, f := range []Factors{s.factors, s.factors &^ ByAccuracy, s.factors & ByBound} {
			if aware, greedy, ok := s.curves(v, f); ok {
				return now(left, v.order() < 0, aware, greedy)
			}
		}
	}
	return v.twoWavesLeft()
}

// now compares the splits of what is left: RAS for the first part, GS for the rest.
func now(left float64, most bool, aware, greedy *curve) bool {
	step := max(1, math.Ceil(left/stepsMost))
	at := func(x float64) float64 {
		sum := aware.at(x) + greedy.at(left-x)
		if most {
			return sum
		}
		return -sum
	}
	atOnce := at(0)
	for x := step; x < left; x += step {
		if at(x) > atOnce {
			return false
		}
	}
	return at(left) <= atOnce
}

// curves are what RAS and GS achieve by size, of the samples that are like the view.
func (s *Samples) curves(v *View, f Factors) (aware, greedy *curve, ok bool) {
	aware, greedy = &curve{flat: f&ByBound == 0}, &curve{flat: f&ByBound == 0}
	for i := range s.all {
		x := &s.all[i]
		if x.ByDeadline != v.Bound.ByDeadline || bin(x.Tasks) != bin(len(v.Tasks)) ||
			f&ByUtilisation != 0 && quarter(x.Utilisation) != quarter(v.Utilisation) ||
			f&ByAccuracy != 0 && quarter(x.Accuracy) != quarter(v.Accuracy) {
			continue
		}
		if x.Greedy {
			greedy.add(x)
		} else {
			aware.add(x)
		}
	}
	aware.close()
	greedy.close()
	return aware, greedy, aware.n >= samplesLeast && greedy.n >= samplesLeast
}

// perOctave is how many points a curve has for each doubling of the size.
const perOctave = 4

// curve is the mean result over the size: linear from point to point, and through 0. A
// flat one has a single point.
type curve struct {
	flat   bool
	n      int
	bins   [64 * perOctave]struct{ n, size, result float64 }
	points []struct{ size, result float64 }
}

// add counts a sample in its bin. Sizes below 2^-32 and above 2^31 share the outermost.
func (c *curve) add(x *Sample) {
	c.n++
	k := 0
	if !c.flat {
		k = max(0, min(len(c.bins)-1, int(math.Floor(math.Log2(x.Size)*perOctave))+len(c.bins)/2))
	}
	b := &c.bins[k]
	b.n, b.size, b.result = b.n+1, b.size+x.Size, b.result+x.Result
}

// close makes the points.
func (c *curve) close() {
	for _, b := range c.bins {
		if b.n > 0 {
			c.points = append(c.points, struct{ size, result float64 }{b.size / b.n, b.result / b.n})
		}
	}
}

// at is the result at a size; beyond the last point in its proportion.
func (c *curve) at(size float64) float64 {
	var before struct{ size, result float64 }
	for _, p := range c.points {
		if size <= p.size {
			return before.result + (p.result-before.result)*(size-before.size)/(p.size-before.size)
		}
		before = p
	}
	if before.size == 0 {
		return 0
	}
	return before.result * size / before.size
}
