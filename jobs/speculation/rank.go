package speculation

import (
	"cmp"
	"slices"
	"time"
)

// rule is how tasks are ranked.
type rule uint8

const (
	// greedy is GS (pseudocodes 1 and 2 with OC = 0): waiting tasks, and running ones that a
	// copy overtakes. To a deadline the shortest that ends in time, to an error bound the
	// longest of the earliest tasks.
	greedy rule = iota
	// aware is RAS (OC = 1): the copy that saves most, then waiting tasks in the order of GS.
	aware
	// plain is GS without copies.
	plain
	// inOrder are waiting tasks in their order, then what LATE may copy.
	inOrder
	// probable is what Mantri copies, then waiting tasks, the largest first.
	probable
)

// grass returns GS once the job has switched, RAS before.
func grass(switched bool) rule {
	if switched {
		return greedy
	}
	return aware
}

// rank orders tasks: the lowest class first, and in it the highest value.
type rank struct {
	class int
	value float64
}

func (r rank) before(o rank) bool {
	return r.class < o.class || r.class == o.class && r.value > o.value
}

// job is a view at work: what one look at its tasks has counted, and what the rules need.
// Ranks are exact below 2^53 ns, which are 104 days.
type job struct {
	*View
	counts
	// usual stands for unknown estimates of new copies.
	usual time.Duration
	// speed is that of the slots that are given, in percent, and 0 where caps are not looked at.
	speed int
	// slowest is the rate up to which LATE copies a task; byRemaining: rates are not known.
	slowest     float64
	byRemaining bool
	// restarted are the tasks that Mantri starts again, by their places.
	restarted map[int]bool

	// need is how many tasks the error bound still asks for. Of those inside, all have an
	// effective time of limit at most, and atLimit exactly that.
	need    int
	limit   time.Duration
	atLimit int
}

// estimate returns t_rem and t_new with fallbacks, under the caps where they are looked at.
func (j *job) estimate(t *Task) (left, fresh time.Duration) {
	left, fresh = t.Remaining, t.New
	if fresh == 0 {
		fresh = j.usual
	}
	if left < 0 {
		left = fresh
	}
	if j.speed == 0 {
		return left, fresh
	}
	return j.capped(t, left, fresh)
}

// capped returns the times under the caps; an unknown t_rem is t_new on the node of the original.
func (j *job) capped(t *Task, left, fresh time.Duration) (time.Duration, time.Duration) {
	switch {
	case t.Remaining < 0:
		left = min(TimeMost, time.Duration(float64(left)/fraction(t.Speed)))
	case t.Measured > 0 && t.Measured != fraction(t.Speed):
		left = min(TimeMost, time.Duration(float64(left)*t.Measured/fraction(t.Speed)))
	}
	if j.speed != percents {
		fresh = min(TimeMost, fresh*percents/time.Duration(j.speed))
	}
	return left, fresh
}

// saving returns the slot time that one more copy saves: c t_rem - (c+1) t_new.
func saving(copies int, left, fresh time.Duration) float64 {
	c := float64(max(1, copies))
	return c*float64(left) - (c+1)*float64(fresh)
}

// rank ranks a task that is not done, or reports that it gets no slot.
func (j *job) rank(by rule, i int, t *Task) (rank, bool) {
	switch by {
	case inOrder:
		return j.slow(t)
	case probable:
		return j.likelyToSave(i, t)
	case greedy, aware, plain:
	}
	left, fresh := j.estimate(t)
	if j.Bound.ByDeadline && fresh > j.Bound.Left {
		return rank{class: 2, value: -float64(fresh)}, t.State == Waiting && j.mayBeLifted(t)
	}
	if !j.Bound.ByDeadline && !j.inside(t.State, left, fresh) {
		return rank{class: 2, value: -float64(fresh)}, t.State == Waiting && j.need > 0
	}
	switch {
	case t.State == Waiting && by == aware:
		return rank{class: 1, value: j.order(fresh)}, true
	case t.State == Waiting:
		return rank{value: j.order(fresh)}, true
	case by == plain || j.speed != 0 && percent(fraction(t.Speed)) > j.speed:
		return rank{}, false
	case by == aware && j.speed != 0:
		return j.worth(t, left, fresh)
	case by == aware:
		saved := saving(t.Copies, left, fresh)
		return rank{value: saved}, saved > 0
	case j.Bound.ByDeadline && j.speed != 0 && left <= j.Bound.Left:
		// It ends in time anyway: to the deadline the copy gains nothing but certainty.
		return rank{class: 3, value: -float64(fresh)}, fresh < left
	case j.Bound.ByDeadline:
		return rank{value: -float64(fresh)}, fresh < left
	}
	return rank{value: float64(left)}, fresh < left
}

// mayBeLifted reports whether a task would miss the deadline only by the cap of the slot: caps
// are lifted, and a slot that stays free does nothing.
func (j *job) mayBeLifted(t *Task) bool {
	return j.speed != 0 && cmp.Or(t.New, j.usual) <= j.Bound.Left
}

// worth returns RAS under caps: a second of a slot counts by its speed, so that slow slots are not
// given up for fast ones without a gain. To a deadline a task that would miss it ranks as one
// that waits: what runs of it is lost anyway. What saves no slot time comes last, for slots that
// would stay free otherwise.
func (j *job) worth(t *Task, left, fresh time.Duration) (rank, bool) {
	if j.Bound.ByDeadline && left > j.Bound.Left {
		return rank{class: 1, value: j.order(fresh)}, fresh < left
	}
	runs := float64(max(1, t.Copies)) * fraction(t.Speed)
	saved := runs*float64(left) - (runs+float64(j.speed)/percents)*float64(fresh)
	if saved <= 0 {
		return rank{class: 3, value: saved}, fresh < left
	}
	return rank{value: saved}, true
}

// order returns the value of a waiting task: the shortest comes first to a deadline, the longest to
// an error bound.
func (j *job) order(fresh time.Duration) float64 {
	if j.Bound.ByDeadline {
		return -float64(fresh)
	}
	return float64(fresh)
}

// inside reports whether a task is among the earliest that an error bound still needs. What
// is outside gets a slot only where nothing inside wants it, the shortest first, in case one
// of those straggles (the pseudocodes' default). It must be asked in the order of the tasks:
// of those at the limit the lowest IDs are inside.
func (j *job) inside(s State, left, fresh time.Duration) bool {
	if s == Running {
		fresh = min(left, fresh)
	}
	if fresh == j.limit && j.atLimit > 0 {
		j.atLimit--
		return true
	}
	return fresh < j.limit
}

// bound finds the limit of those inside.
func (j *job) bound() {
	j.need = j.Bound.Need(len(j.Tasks)) - j.done
	j.limit, j.atLimit = 0, 0
	if j.Bound.ByDeadline || j.need <= 0 {
		return
	}
	unfinished := len(j.Tasks) - j.done
	if j.need >= unfinished {
		j.limit = TimeMost + 1
		return
	}
	all := make([]int64, 0, unfinished)
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if t.State == Done {
			continue
		}
		left, fresh := j.estimate(t)
		if t.State == Running {
			fresh = min(left, fresh)
		}
		all = append(all, int64(fresh))
	}
	limit, alike := nth(all, j.need-1)
	j.limit, j.atLimit = time.Duration(limit), alike
}

// candidate is a task with its rank.
type candidate struct {
	rank
	at int
}

// compare orders candidates, the best first; ties go to the lowest ID.
func compare(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.value, a.value), cmp.Compare(a.at, b.at))
}

// give gives the free slots to the tasks of the best ranks. One decision needs no second
// look at the tasks: what has just got a slot would never get another one at once, since
// its t_rem is its t_new.
func (j *job) give(by rule) []Action {
	j.bound()
	best := j.best(by)
	actions := make([]Action, 0, len(best)+1)
	for slot, c := range best {
		actions = append(actions, action(&j.Tasks[c.at], slot))
	}
	if len(best) < j.Slots {
		actions = append(actions, Action{Kind: Wait, Slot: len(best)})
	}
	return actions
}

// candidatesMost are kept at least before the best of them are chosen.
const candidatesMost = 64

// best returns the tasks that get a slot, the best first.
func (j *job) best(by rule) []candidate {
	if j.Slots == 1 {
		return j.first(by)
	}
	var all []candidate
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if t.State == Done {
			continue
		}
		if r, ok := j.rank(by, i, t); ok {
			all = append(all, candidate{r, i})
		}
		// Only so many can get a slot: the others go before they become many.
		if len(all) >= candidatesMost && len(all) >= 2*j.Slots {
			slices.SortFunc(all, compare)
			all = all[:j.Slots]
		}
	}
	slices.SortFunc(all, compare)
	return all[:min(len(all), j.Slots)]
}

// first returns the one task that gets the only slot.
func (j *job) first(by rule) []candidate {
	best := candidate{at: -1}
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.State != Done {
			if r, ok := j.rank(by, i, t); ok && (best.at < 0 || r.before(best.rank)) {
				best = candidate{r, i}
			}
		}
	}
	if best.at < 0 {
		return nil
	}
	return []candidate{best}
}

// twoWavesLeft returns the strawman's moment: the time left suffices for two waves of tasks at
// most, or the tasks that are still needed make up two waves at most.
func (j *job) twoWavesLeft() bool {
	if j.Bound.ByDeadline {
		return j.Bound.Left <= 2*j.typical()
	}
	return j.Bound.Need(len(j.Tasks))-j.done <= 2*j.width()
}

// typical returns the median task's duration.
func (j *job) typical() time.Duration {
	switch {
	case j.Typical > 0:
		return j.Typical
	case j.usual > 0:
		return j.usual
	}
	return median(j.news())
}

// width returns how many slots the job has.
func (j *job) width() int {
	if j.Width > 0 {
		return j.Width
	}
	return j.Slots + j.copies
}
