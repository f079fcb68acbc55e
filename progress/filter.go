package progress

import (
	"math"
	"time"

	"headroom/units"
)

// window is how many samples the policies Paper and Released look back (CAB's published code).
const window = 4

// Sample is one interval of a job's past.
type Sample struct {
	// Rate is the tasks completed per second; NaN when unknown.
	Rate float64
	// Power is the cap in force, at the wall; 0 when unknown.
	Power units.Power
	// Containers are the job's task containers; 0 when unknown.
	Containers float64
	// Interval is how long the sample took; 0 when unknown.
	Interval time.Duration
	// Settling states that cap or containers were changing meanwhile.
	Settling bool
}

// usable reports whether eq. (1) can scale s: a ratio to nothing is no ratio, and a
// rate of 0 would stay 0 under every cap.
func (s Sample) usable() bool {
	return positive(s.Rate) && s.Power > 0 && positive(s.Containers)
}

// Filter returns the progress rate in tasks per second to expect under a cap with so
// many containers: CAB, eq. (1), with equal weights over the usable samples of the
// history (newest first). It is unknown without a usable one.
func Filter(history []Sample, power units.Power, containers float64) (rate float64, known bool) {
	if power <= 0 || !(containers >= 0) || math.IsInf(containers, 1) {
		return 0, false
	}
	var sum, n float64
	for _, s := range history {
		if s.usable() {
			sum += float64(power) / float64(s.Power) * (containers / s.Containers) * s.Rate
			n++
		}
	}
	if n == 0 || math.IsInf(sum, 0) {
		return 0, false
	}
	return sum / n, true
}

// FilterReleased returns the rate of CAB's published code: the mean of the seconds per
// task, each weighted by power now / power then. A sample without progress makes it
// unknown there too (its finish time of 1e6 s and more is thrown away).
func FilterReleased(history []Sample, power units.Power) (rate float64, known bool) {
	var sum, weights float64
	for _, s := range history {
		if !s.usable() {
			return 0, false
		}
		w := float64(power) / float64(s.Power)
		sum += w / s.Rate
		weights += w
	}
	if !positive(sum) || !positive(weights) {
		return 0, false
	}
	return weights / sum, true
}

// longest is the longest time to come that is told; beyond it nothing is known.
const longest = 10 * 365 * 24 * time.Hour

// FinishTime returns when a job ends, from its start: CAB, eq. (2). left is how many
// tasks are missing, rate how many end per second. It is unknown when the rate is
// not positive, or when that is more than ten years away. With nothing left the job
// ends now.
func FinishTime(elapsed time.Duration, left, rate float64) (time.Duration, bool) {
	switch {
	case elapsed < 0 || elapsed > longest || math.IsNaN(left) || math.IsNaN(rate):
		return 0, false
	case left <= 0:
		return elapsed, true
	case !positive(rate):
		return 0, false
	}
	return after(elapsed, left/rate)
}

// after returns so many seconds after elapsed.
func after(elapsed time.Duration, seconds float64) (time.Duration, bool) {
	if !(seconds >= 0 && seconds <= longest.Seconds()) {
		return 0, false
	}
	return elapsed + time.Duration(math.Round(seconds*float64(time.Second))), true
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
