package demo

import (
	"time"

	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Bounds of the promises, as judged from outside.
const (
	// exact is the tolerance of sums of whole microwatts that were printed in watts.
	exact = units.Milliwatt
	// measuredTolerance: what a plant draws is a mean over 1 s and is judged with 2 %.
	measuredTolerance = 0.02
	// settleExact is how long reserved and held may take to fit after a cut;
	// the mean over 1 s takes 1 s longer.
	settleExact    = 2 * time.Second
	settleMeasured = settleExact + meanSpan
	// meanSpan is what measured is a mean over: for so long after a cut it speaks of
	// the time before it too, and that it fits does not yet mean that it has settled.
	meanSpan = time.Second
)

// sample is one moment of the run: a row of power.csv. A nil is not known.
type sample struct {
	at       time.Duration // since the run began
	budget   units.Power   // last committed
	leader   string        // "" where none answered
	reserved *units.Power
	held     *units.Power
	measured *units.Power
	nodes    []*units.Power // measured, in the order of the lab's nodes
}

// verdict is for how long each sum was above the budget in force.
type verdict struct{ reserved, held, measured time.Duration }

// judge works out for how long each sum was above the budget. A sample counts
// until the next one, at most for a second. cuts are the moments at which a lower
// budget was committed: from then until it first fits a sum may be above, but no
// longer than the settling time.
func judge(samples []sample, cuts []time.Duration) verdict {
	of := func(j series) time.Duration { return j.above(samples, cuts) }
	return verdict{
		of(series{settle: settleExact, of: func(s sample) *units.Power { return s.reserved }}),
		of(series{settle: settleExact, of: func(s sample) *units.Power { return s.held }}),
		of(series{settle: settleMeasured, tolerance: measuredTolerance, mean: meanSpan, of: func(s sample) *units.Power { return s.measured }}),
	}
}

// series is one of the three sums.
type series struct {
	tolerance float64
	settle    time.Duration
	mean      time.Duration
	of        func(sample) *units.Power
}

// spanMax bounds what one sample stands for, when the next ones are missing.
const spanMax = time.Second

func (j series) above(samples []sample, cuts []time.Duration) time.Duration {
	var sum time.Duration
	settling := false
	var since, until time.Duration
	for i, s := range samples {
		for len(cuts) > 0 && cuts[0] <= s.at {
			settling, since, until, cuts = true, cuts[0], cuts[0]+j.settle, cuts[1:]
		}
		v := j.of(s)
		if v == nil {
			continue
		}
		if j.fits(*v, s.budget) {
			settling = settling && s.at < since+j.mean
			continue
		}
		span := time.Duration(0)
		if i+1 < len(samples) {
			span = min(samples[i+1].at-s.at, spanMax)
		}
		if settling {
			span -= max(0, min(span, until-s.at))
		}
		sum += span
	}
	return sum
}

func (j series) fits(v, budget units.Power) bool {
	return v <= budget+exact+units.FromWatts(budget.Watts()*j.tolerance)
}

// breakerSummary is the state of a breaker of class C above all nodes, rated at each moment
// for the budget in force: the model of plant.Breaker.
type breakerSummary struct {
	Tripped bool `json:"tripped"`
	// Hottest is the most of its way to tripping that its bimetal went, 0 to 1.
	Hottest float64 `json:"hottest"`
}

// breakerOf feeds the breaker with what was measured, until the next sample each.
// Where that is not known the nodes are taken to draw the whole budget; when it never
// was, neither is the breaker: nil.
func breakerOf(samples []sample) *breakerSummary {
	var b plant.Breaker
	known := false
	for i, s := range samples[:max(0, len(samples)-1)] {
		if err := b.Rate(s.budget, plant.ClassC); err != nil {
			return nil // a budget of 0 W: no breaker is that small
		}
		power := s.budget
		if s.measured != nil {
			power, known = *s.measured, true
		}
		b.Step(power, samples[i+1].at-s.at)
	}
	if !known {
		return nil
	}
	return &breakerSummary{Tripped: b.Tripped(), Hottest: b.Hottest()}
}
