package progress

import (
	"math"
	"time"

	"headroom/units"
)

// Rest is what is left of a job.
type Rest struct {
	// Work is the map work that is left, in tasks. The finished part of running tasks does not count.
	Work float64
	// Task is the container time of a task, learned from Ended tasks of the job itself and what earlier jobs have
	// shown.
	Task  time.Duration
	Ended int
	// Tail is what comes after the map tasks.
	Tail time.Duration
	// Known is true where Task and Tail are known. All else is 0 otherwise.
	Known bool
}

// Rest returns what is left of the job under a cap with so many task containers, when its map part ends with
// target tasks completed. A power of 0 stands for the last one observed. The policies Paper and Released know no
// tail, and no work within running tasks.
func (t *Tracker) Rest(power units.Power, containers, target float64) Rest {
	if power <= 0 {
		power = t.last.Power
	}
	if !t.seen || !positive(containers) {
		return Rest{}
	}
	r := Rest{Ended: t.last.Done, Known: true}
	if t.policy != Learned {
		rate, known := t.filter(power, containers)
		if !known || !positive(rate) {
			return Rest{}
		}
		r.Work, r.Task = max(0, target-float64(t.last.Done)), spanned(containers/rate)
		return r
	}
	rate, _, known := t.rate(power, containers)
	if !known || !positive(rate) {
		return Rest{}
	}
	r.Task = spanned(containers / rate)
	if !t.last.mapped() && target > float64(t.last.Done) {
		r.Work, _ = t.left(target, containers)
	}
	tail, _ := t.tail.left(t, r.Work/rate, power, target)
	r.Tail = spanned(tail)
	return r
}

// spanned returns seconds as a time, at most the longest that is foreseen.
func spanned(s float64) time.Duration {
	at, known := after(0, s)
	if !known {
		return longest
	}
	return at
}

// Faster returns how many times as fast the job runs under one cap as under another, by what is known of how its pace
// follows power. It is 1 or more; where the job has shown nothing, the prior decides.
func (t *Tracker) Faster(base, fast units.Power) float64 {
	if base <= 0 || fast <= base {
		return 1
	}
	switch {
	case t.policy == Released:
		return 1
	case t.policy == Paper:
		return float64(fast) / float64(base)
	case !t.model.set:
		return max(1, math.Pow(float64(fast)/float64(base), t.prior.Power.Value))
	}
	return max(1, math.Exp(t.model.shape(t.model.u(fast))-t.model.shape(t.model.u(base))))
}
