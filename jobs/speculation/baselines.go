package speculation

import (
	"math"
	"slices"
	"sort"
	"time"
)

// Settings of the baselines, from their papers.
const (
	// lateSlow: LATE copies tasks whose rate is in the lowest quarter (SlowTaskThreshold).
	lateSlow = 0.25
	// lateShare: at most a tenth of the slots run copies (SpeculativeCap); at least one.
	lateShare = 10
	// mantriLikely: Mantri copies what saves slot time with more than this probability (delta).
	mantriLikely = 0.25
	// mantriCopies run of a task at most: slower ones than the second fastest are killed.
	mantriCopies = 3
	// mantriGain: once no task waits, a copy must end that many intervals of progress reports
	// earlier (rho).
	mantriGain = 3
	// mantriRestarts is how often a task is begun anew at most (gamma).
	mantriRestarts = 3
)

// late launches waiting tasks in their order, then copies single running tasks of the
// slowest quarter, the longest t_rem first, on slots of nodes that are not slow. It knows
// no bound.
func (j *job) late() []Action {
	j.rates()
	allowed := max(1, j.width()/lateShare) - (j.copies - j.running)
	best := j.best(inOrder)
	waits := 0
	for waits < len(best) && best[waits].class == 0 {
		waits++
	}
	slow, fast := j.slots()
	slots := append(slow, fast...)
	var actions []Action
	for i, c := range best[:waits] {
		actions = append(actions, action(&j.Tasks[c.at], slots[i]))
	}
	// Launches have taken the slow nodes' slots first. Copies get none of those that are left.
	free := slots[max(waits, len(slow)):]
	copies := best[waits:]
	copies = copies[:max(0, min(len(copies), len(free), allowed))]
	for i, c := range copies {
		actions = append(actions, action(&j.Tasks[c.at], free[i]))
	}
	if len(actions) < j.Slots {
		actions = append(actions, Action{Kind: Wait, Slot: len(actions)})
	}
	return actions
}

// slots returns the free slots of slow nodes and the others.
func (j *job) slots() (slow, fast []int) {
	for i := range j.Slots {
		if i < len(j.Slow) && j.Slow[i] {
			slow = append(slow, i)
		} else {
			fast = append(fast, i)
		}
	}
	return slow, fast
}

// slow ranks a task by LATE.
func (j *job) slow(t *Task) (rank, bool) {
	if t.State == Waiting {
		return rank{}, true
	}
	left, _ := j.estimate(t)
	return rank{class: 1, value: float64(left)}, t.Copies <= 1 && j.rate(t) <= j.slowest
}

// rate returns the part of the task that is done per ns. Where one is unknown, all are 1 / t_rem.
func (j *job) rate(t *Task) float64 {
	if j.byRemaining {
		left, _ := j.estimate(t)
		return 1 / float64(max(left, 1))
	}
	return t.Rate
}

// rates finds the limit of the slowest quarter of the tasks that run. The bits of rates are in
// their order.
func (j *job) rates() {
	all := make([]int64, 0, j.running)
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.State == Running {
			all = append(all, int64(math.Float64bits(t.Rate)))
			j.byRemaining = j.byRemaining || t.Rate == 0
		}
	}
	if len(all) == 0 {
		return
	}
	if j.byRemaining {
		all = all[:0]
		for i := range j.Tasks {
			if t := &j.Tasks[i]; t.State == Running {
				all = append(all, int64(math.Float64bits(j.rate(t))))
			}
		}
	}
	slowest, _ := nth(all, int(lateSlow*float64(len(all)-1)))
	j.slowest = math.Float64frombits(uint64(slowest))
}

// mantri restarts running tasks in their slots where the view permits it, copies those that
// probably save slot time, the greatest saving first, then launches waiting tasks, the
// largest first. Once no task waits it copies whatever a copy would speed up. It knows no
// bound.
func (j *job) mantri() (restart []int, actions []Action) {
	if j.Restarts && j.waiting > 0 {
		for i := range j.Tasks {
			if len(restart) == j.Slots {
				break
			}
			t := &j.Tasks[i]
			if left, fresh := j.estimate(t); t.State == Running && t.Copies <= 1 && t.Restarted < mantriRestarts && left > fresh+j.Report {
				if j.restarted == nil {
					j.restarted = make(map[int]bool)
				}
				j.restarted[i] = true
				restart = append(restart, t.ID)
			}
		}
	}
	return restart, j.give(probable)
}

// likelyToSave ranks a task by Mantri.
func (j *job) likelyToSave(i int, t *Task) (rank, bool) {
	left, fresh := j.estimate(t)
	switch {
	case t.State == Waiting:
		return rank{class: 1, value: float64(fresh)}, true
	case t.Copies >= mantriCopies || j.restarted[i]:
		return rank{}, false
	case j.waiting == 0:
		return rank{value: float64(left - fresh)}, left-fresh > mantriGain*j.Report
	}
	return rank{value: saving(t.Copies, left, fresh)}, j.likely(t.Copies, left, fresh) > mantriLikely
}

// likely returns P(t_rem > t_new (c+1)/c), by the durations of completed tasks.
func (j *job) likely(copies int, left, fresh time.Duration) float64 {
	c := float64(max(1, copies))
	limit := float64(left) / float64(fresh) * c / (c + 1)
	if n := len(j.Durations); n > 0 {
		return float64(sort.SearchFloat64s(j.Durations, limit)) / float64(n)
	}
	if limit > 1 {
		return 1
	}
	return 0
}

// percents: speeds are compared in whole percent, rounded down, so that a decision looks
// at the tasks a hundred times at most.
const percents = 100

func percent(speed float64) int { return max(1, int(speed*percents+1e-9)) }

// fraction returns a speed of a task's node; 0 is as fast as without a cap.
func fraction(speed float64) float64 {
	if speed == 0 {
		return 1
	}
	return speed
}

// ours returns GRASS with times under the caps, the fastest free slots first, and the slowest in the
// last wave to a deadline: t_rem follows the cap of the original's node before any progress
// report can show it, t_new that of the free slot's, and no copy runs on a node capped harder
// than the original's.
func (j *job) ours(switched bool) (actions []Action) {
	groups := j.slotsBySpeed()
	if j.Bound.ByDeadline && j.waiting >= j.Slots && j.waiting <= j.width() {
		// In the last wave slow slots get the shortest tasks: they would end no others in time.
		slices.Reverse(groups)
	}
	if len(groups) > 1 {
		tasks := *j.View
		tasks.Tasks = slices.Clone(j.Tasks)
		j.View = &tasks
	}
	total := j.Slots
	for n, slots := range groups {
		j.speed, j.Slots = percent(j.slotSpeed(slots[0])), len(slots)
		given := j.give(grass(switched))
		if last := given[len(given)-1]; last.Kind == Wait && n < len(groups)-1 {
			given = given[:len(given)-1]
		}
		if len(groups) > 1 {
			j.begin(given)
		}
		for _, a := range given {
			a.Slot = slots[min(a.Slot, len(slots)-1)]
			actions = append(actions, a)
		}
	}
	j.Slots = total
	return actions
}

// begin changes the tasks that have just got slots.
func (j *job) begin(given []Action) {
	for _, a := range given {
		if a.Kind == Wait {
			continue
		}
		i, _ := slices.BinarySearchFunc(j.Tasks, a.Task, func(t Task, id int) int { return t.ID - id })
		t := &j.Tasks[i]
		_, fresh := j.estimate(t)
		if t.State == Waiting {
			j.waiting--
			j.running++
		}
		j.copies++
		t.State, t.Copies = Running, t.Copies+1
		t.Remaining, t.Speed, t.Measured = fresh, float64(j.speed)/percents, 0
	}
}

// slotSpeed returns that of a free slot's node.
func (v *View) slotSpeed(slot int) float64 {
	if len(v.Speeds) == 0 {
		return 1
	}
	return v.Speeds[slot]
}

// slotsBySpeed returns the free slots, those of one speed together, the fastest first.
func (v *View) slotsBySpeed() [][]int {
	var by [percents + 1][]int
	for slot := range v.Slots {
		p := percent(v.slotSpeed(slot))
		by[p] = append(by[p], slot)
	}
	var groups [][]int
	for p := percents; p > 0; p-- {
		if len(by[p]) > 0 {
			groups = append(groups, by[p])
		}
	}
	return groups
}
