package speculation

import (
	"math"
	"slices"
	"time"
)

// Remaining returns t_rem, extrapolated from the last progress report: after elapsed, the part
// progress was done, and since has passed from then on. It is unknown before any progress,
// and 0 where the task ought to have ended by now.
func Remaining(elapsed time.Duration, progress float64, since time.Duration) (left time.Duration, known bool) {
	if elapsed < 0 || since < 0 || !(progress > 0 && progress <= 1) {
		return 0, false
	}
	whole := float64(elapsed) / progress
	left = time.Duration(min(whole-float64(elapsed), float64(TimeMost)))
	return max(0, left-since), true
}

// durationsMost bounds the durations that are remembered: the newest count.
const durationsMost = 1000

// Durations estimates t_new from completed tasks: the median of their durations for each
// unit of input, times the input of the new one.
type Durations struct {
	perUnit []float64
	next    int
	// sorted are the same, rising.
	sorted []float64
}

// Add takes a completed task's duration and the size of its input, in any unit.
func (d *Durations) Add(took time.Duration, size float64) error {
	if took <= 0 || took > TimeMost || !(size > 0) || math.IsInf(size, 0) {
		return bad("a completed task took %v on an input of %v; both must be above 0 and finite", took, size)
	}
	each := float64(took) / size
	if len(d.perUnit) < durationsMost {
		d.perUnit = append(d.perUnit, each)
	} else {
		at, _ := slices.BinarySearch(d.sorted, d.perUnit[d.next])
		d.sorted = slices.Delete(d.sorted, at, at+1)
		d.perUnit[d.next] = each
		d.next = (d.next + 1) % durationsMost
	}
	at, _ := slices.BinarySearch(d.sorted, each)
	d.sorted = slices.Insert(d.sorted, at, each)
	return nil
}

// New returns t_new of a task with an input of the size; unknown before a task has ended.
func (d *Durations) New(size float64) (left time.Duration, known bool) {
	if len(d.sorted) == 0 || !(size > 0) {
		return 0, false
	}
	return time.Duration(min(max(1, d.sorted[(len(d.sorted)-1)/2]*size), float64(TimeMost))), true
}

// Ratios returns the durations as parts of their median, rising, as View.Durations wants them.
func (d *Durations) Ratios() []float64 {
	all := slices.Clone(d.sorted)
	if len(all) == 0 {
		return nil
	}
	middle := all[(len(all)-1)/2]
	for i := range all {
		all[i] /= middle
	}
	return all
}

// Accuracy is how good estimates were: the mean of 1 - |estimate - actual| / actual, each 0
// at least. The paper had 72 % for t_rem and 76 % for t_new.
type Accuracy struct {
	sum float64
	n   int
}

// Add takes an estimate, made while the task ran, and what came of it.
func (a *Accuracy) Add(estimate, actual time.Duration) {
	if actual <= 0 {
		return
	}
	a.sum += max(0, 1-math.Abs(float64(estimate-actual))/float64(actual))
	a.n++
}

// Value returns the mean, unknown before the first estimate.
func (a *Accuracy) Value() (mean float64, known bool) {
	if a.n == 0 {
		return 0, false
	}
	return a.sum / float64(a.n), true
}
