package progress

import (
	"math"
	"slices"
	"time"

	"headroom/units"
)

const (
	// workNoise is the standard deviation of one task's length, in parts of it, where
	// the work done is known with the finished parts of running tasks.
	workNoise = 0.4
	// workBatch is the least work that makes a sample, in tasks.
	workBatch = 0.5
	// settling is the standard deviation of the logarithm of a rate in an interval in
	// which the cap or the containers were changing, or are not known.
	settling = 0.25
)

// batch is a stretch of a job's life that is not a sample yet: several intervals are
// merged until enough tasks have ended to tell a rate.
type batch struct {
	seconds, work float64
	// Sums over the seconds, for means and variances.
	u, uu, l, ll, unsure float64
}

// add adds an interval with the logarithms of its power and containers over the reference.
func (b *batch) add(seconds, work, u, l float64, unsure bool) {
	b.seconds += seconds
	b.work += work
	b.u += seconds * u
	b.uu += seconds * u * u
	b.l += seconds * l
	b.ll += seconds * l * l
	if unsure {
		b.unsure += seconds
	}
}

// sample returns the batch as one sample for the model: ln(rate), where, and how sure.
// The rate is a mean over the batch, so conditions that changed make it less sure.
func (b *batch) sample(noise float64) (x [size]float64, seen, variance float64) {
	u, l := b.u/b.seconds, b.l/b.seconds
	mixed := max(b.uu/b.seconds-u*u, 0) + max(b.ll/b.seconds-l*l, 0)
	x = [size]float64{1, u, b.uu / b.seconds, l}
	return x, math.Log(b.work / b.seconds), noise*noise/b.work + 0.25*mixed + settling*settling*b.unsure/b.seconds
}

// Model is a rate learned from a history alone, for those who have no Tracker.
type Model struct {
	m model
}

// Learn learns from a history, newest first. Intervals in which no task ended are
// merged with those after them; samples of which rate, containers or length are
// unknown are skipped.
func Learn(history []Sample, prior Prior) *Model {
	m := &Model{}
	var open batch
	var full units.Power // the most that was seen stands for it
	for _, s := range history {
		full = max(full, s.Power)
	}
	for _, s := range slices.Backward(history) {
		if !(s.Rate >= 0) || math.IsInf(s.Rate, 1) || !positive(s.Containers) || s.Interval <= 0 {
			continue
		}
		m.m.refer(prior, s.Power, full, s.Containers)
		seconds := s.Interval.Seconds()
		open.add(seconds, s.Rate*seconds, m.m.u(s.Power), m.m.l(s.Containers), s.Settling || s.Power <= 0)
		if open.work >= 1 {
			m.m.learn(open.sample(1))
			open = batch{}
		}
	}
	return m
}

// Rate returns the tasks per second to expect under a cap with so many containers, and
// the bounds that it lies within in 9 of 10 cases. Without containers it is 0.
func (m *Model) Rate(power units.Power, containers float64) (rate, low, high float64, known bool) {
	switch {
	case !m.m.known || power <= 0 || !(containers >= 0) || math.IsInf(containers, 1):
		return 0, 0, 0, false
	case containers == 0:
		return 0, 0, 0, true
	}
	mean, variance := m.m.rate(power, containers)
	rate = math.Exp(mean)
	width := ninety * math.Sqrt(min(variance*m.m.doubt(), doubtMax))
	low, high = math.Exp(mean-width), math.Exp(mean+width)
	return rate, low, high, positive(rate) && !math.IsInf(high, 1)
}

// doubtMax bounds the variance of a logarithm that is told: beyond it the bounds say nothing.
const doubtMax = 9

// ninety is how many standard deviations on both sides hold 9 of 10 cases.
const ninety = 1.645

// spell is some time at one power.
type spell struct{ u, seconds float64 }

// exposure is under which powers a job has run so far, so that its time without a
// cap can be told afresh whenever more is learned.
type exposure struct {
	spells []spell
	plain  time.Duration // time that no power has slowed: waiting, or its power unknown
}

const (
	spellsMax = 64
	// spellWidth is how near two powers are one: 1 %.
	spellWidth = 0.01
)

func (e *exposure) add(u, seconds float64) {
	nearest, distance := -1, math.Inf(1)
	for i, s := range e.spells {
		if d := math.Abs(s.u - u); d < distance {
			nearest, distance = i, d
		}
	}
	if nearest < 0 || distance > spellWidth && len(e.spells) < spellsMax {
		e.spells = append(e.spells, spell{u, seconds})
		return
	}
	e.spells[nearest].seconds += seconds
}

// free reports whether no cap slowed the job for half of the time or more; top is the
// logarithm of full power.
func (e *exposure) free(top float64) bool {
	free, all := e.plain.Seconds(), e.plain.Seconds()
	for _, s := range e.spells {
		if all += s.seconds; s.u > top-spellWidth {
			free += s.seconds
		}
	}
	return 2*free >= all
}

// steepest is the exponent of the most that a cap can cost: speed that falls in
// proportion to what is left above a third of the full power, drawn idle, loses
// about as much, and nothing that was measured loses more.
const steepest = 2

// uncapped returns how long the same would have taken at full power, and the least that it
// can have taken: no cap slows a job by more than the exponent steepest.
func (e *exposure) uncapped(m *model, full units.Power) (at part, least float64) {
	var by [size]float64 // how the seconds move with each coefficient
	top := m.u(full)
	for _, s := range e.spells {
		worst := s.seconds * math.Exp(steepest*min(s.u-top, 0))
		seconds := max(s.seconds*m.speed(s.u, full), worst)
		at.seconds += seconds
		least += worst
		by[slope] += seconds * (s.u - top)
		by[bend] += seconds * (s.u*s.u - top*top)
	}
	if at.seconds > 0 {
		at.variance = dot(by, m.times(by)) / square(at.seconds)
	}
	return at, least
}
