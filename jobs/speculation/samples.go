package speculation

import (
	"math"
	"slices"
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
	// ByDeadline states which kind of bound it had.
	ByDeadline bool
	// Tasks is how many it had.
	Tasks int
	// Width is how many slots it had: then jobs of other widths are compared by what they
	// achieve for each slot, or by their waves. 0: unknown, as of all samples then.
	Width int
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
	// curves are what GS and RAS achieve, kept with each sample that comes or goes: a decision
	// only looks them up.
	curves map[alike]*curve
}

// alike is what samples of one curve have in common; -1 is for any quarter.
type alike struct {
	greedy, byDeadline                bool
	bin, utilisation, accuracyQuarter int
}

// NewSamples holds samples that are compared by the factors.
func NewSamples(factors Factors) *Samples {
	return &Samples{factors: factors, curves: make(map[alike]*curve)}
}

// Add takes a sample. Of too many the oldest is forgotten.
func (s *Samples) Add(x Sample) error {
	for _, n := range []float64{x.Size, x.Result} {
		if !(n >= 0) || math.IsInf(n, 0) {
			return bad("sample: size %v and result %v must be finite and 0 or more", x.Size, x.Result)
		}
	}
	if len(s.all) > 0 && (x.Width > 0) != (s.all[0].Width > 0) {
		return bad("sample: width is %d; give it for all samples or for none", x.Width)
	}
	if x.Tasks < 1 || x.Width < 0 || x.Size == 0 || !(x.Utilisation >= 0 && x.Utilisation <= 1) || !(x.Accuracy >= 0 && x.Accuracy <= 1) {
		return bad("sample: tasks %d and size %v must be above 0, width %d 0 or more, utilisation %v and accuracy %v from 0 to 1", x.Tasks, x.Size, x.Width, x.Utilisation, x.Accuracy)
	}
	s.count(&x, 1)
	if len(s.all) < samplesMost {
		s.all = append(s.all, x)
		return nil
	}
	s.count(&s.all[s.next], -1)
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

// bin returns the paper's: below 50 tasks, up to 500, above.
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

// fallbacks returns the factors that samples are compared by, until enough are alike: accuracy is
// left out first, then utilisation.
func (s *Samples) fallbacks() []Factors {
	return slices.Compact([]Factors{s.factors, s.factors &^ ByAccuracy, s.factors & ByBound})
}

// key returns the curve of a sample by some factors.
func (x *Sample) key(f Factors) alike {
	a := alike{greedy: x.Greedy, byDeadline: x.ByDeadline, bin: bin(x.Tasks), utilisation: -1, accuracyQuarter: -1}
	if f&ByUtilisation != 0 {
		a.utilisation = quarter(x.Utilisation)
	}
	if f&ByAccuracy != 0 {
		a.accuracyQuarter = quarter(x.Accuracy)
	}
	return a
}

// count adds a sample to its curves, or takes it out.
func (s *Samples) count(x *Sample, sign float64) {
	size, result := x.Size, x.Result
	switch w := float64(x.Width); {
	case w == 0:
	case x.ByDeadline:
		result /= w
	default:
		size /= w
	}
	for _, f := range s.fallbacks() {
		key := x.key(f)
		if s.curves[key] == nil {
			s.curves[key] = &curve{flat: s.factors&ByBound == 0}
		}
		s.curves[key].count(size, result, sign)
	}
}

// switches reports whether the job is to go over to GS now: no later moment promises more.
// Too few samples that are like it leave accuracy out, then utilisation; without enough even
// then, the strawman decides.
func (s *Samples) switches(j *job) bool {
	left := j.Bound.Left.Seconds()
	if !j.Bound.ByDeadline {
		left = float64(j.Bound.Need(len(j.Tasks)) - j.done)
	}
	if left <= 0 || s == nil || len(s.all) == 0 {
		return j.twoWavesLeft()
	}
	step := max(1, math.Ceil(left/stepsMost))
	if w := float64(j.width()); !j.Bound.ByDeadline && s.all[0].Width > 0 {
		left, step = left/w, step/w
	}
	like := Sample{ByDeadline: j.Bound.ByDeadline, Tasks: len(j.Tasks), Utilisation: j.Utilisation, Accuracy: j.Accuracy}
	for _, f := range s.fallbacks() {
		key := like.key(f)
		aware := s.curves[key]
		key.greedy = true
		greedy := s.curves[key]
		if aware.enough() && greedy.enough() {
			return now(left, step, j.Bound.ByDeadline, aware, greedy)
		}
	}
	return j.twoWavesLeft()
}

// now compares the splits of what is left: RAS for the first part, GS for the rest. Samples of a
// size are what is achieved from so much left on, so RAS achieves in the first part what it
// does with all that is left less what it does with the rest.
func now(left, step float64, most bool, aware, greedy *curve) bool {
	all := aware.at(left)
	at := func(x float64) float64 {
		sum := all - aware.at(left-x) + greedy.at(left-x)
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

// perOctave is how many points a curve has for each doubling of the size.
const perOctave = 4

// curve is the mean result over the size: linear from point to point, and through 0. A
// flat one has a single point.
type curve struct {
	flat   bool
	n      int
	points []point
}

// point is the mean of samples of about one size; the octave orders points.
type point struct {
	octave            int
	n, sizes, results float64
	size, result      float64
}

// enough reports whether samples are enough to decide by.
func (c *curve) enough() bool { return c != nil && c.n >= samplesLeast }

// count adds a sample to its point, or takes it out.
func (c *curve) count(size, result, sign float64) {
	octave := 0
	if !c.flat {
		octave = int(math.Floor(math.Log2(size) * perOctave))
	}
	c.n += int(sign)
	at, found := slices.BinarySearchFunc(c.points, octave, func(p point, o int) int { return p.octave - o })
	if !found {
		c.points = slices.Insert(c.points, at, point{octave: octave})
	}
	p := &c.points[at]
	if p.n += sign; p.n == 0 {
		c.points = slices.Delete(c.points, at, at+1)
		return
	}
	p.sizes, p.results = p.sizes+sign*size, p.results+sign*result
	p.size, p.result = p.sizes/p.n, p.results/p.n
}

// at returns the result at a size; beyond the last point in its proportion.
func (c *curve) at(size float64) float64 {
	var before point
	for i := range c.points {
		p := &c.points[i]
		if size <= p.size {
			return before.result + (p.result-before.result)*(size-before.size)/(p.size-before.size)
		}
		before = *p
	}
	if before.size == 0 {
		return 0
	}
	return before.result * size / before.size
}
