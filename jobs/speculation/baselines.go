package speculation

import (
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
)

// late launches waiting tasks in their order, then copies single running tasks of the
// slowest quarter, the longest t_rem first. It knows no bound.
func (v *View) late() []Action {
	rate, limit := v.rates()
	actions := v.give(func(_ int, t *Task) (rank, bool) {
		if t.State == Waiting {
			return rank{}, true
		}
		return rank{class: 1, value: float64(t.Remaining)}, t.Copies == 1 && rate(t) <= limit
	})
	allowed := max(1, v.width()/lateShare)
	for i := range v.Tasks {
		if v.Tasks[i].State == Running {
			allowed -= v.Tasks[i].Copies - 1
		}
	}
	for i, a := range actions {
		if a.Kind != Copy {
			continue
		}
		if allowed--; allowed < 0 {
			return append(actions[:i], Action{Kind: Wait, Slot: i})
		}
	}
	return actions
}

// rank of rates: a task's rate, and the limit of the slowest quarter of those that run. Where
// one rate is unknown, all are 1 / t_rem.
func (v *View) rates() (of func(*Task) float64, limit float64) {
	of = func(t *Task) float64 { return t.Rate }
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.State == Running && t.Rate == 0 {
			of = func(t *Task) float64 { return 1 / max(float64(t.Remaining), 1) }
			break
		}
	}
	var all []float64
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.State == Running {
			all = append(all, of(t))
		}
	}
	if len(all) == 0 {
		return of, 0
	}
	slices.Sort(all)
	return of, all[int(lateSlow*float64(len(all)-1))]
}

// mantri copies running tasks that probably save slot time, the greatest saving first, then
// launches waiting tasks, the largest first. It knows no bound.
func (v *View) mantri() ranker {
	return func(_ int, t *Task) (rank, bool) {
		if t.State == Waiting {
			return rank{class: 1, value: float64(t.New)}, true
		}
		return rank{value: t.saving()}, v.likely(t) > mantriLikely
	}
}

// likely is P(t_rem > t_new (c+1)/c), by the durations of completed tasks.
func (v *View) likely(t *Task) float64 {
	c := float64(t.Copies)
	limit := float64(t.Remaining) / float64(t.New) * c / (c + 1)
	if len(v.Durations) > 0 {
		return float64(sort.SearchFloat64s(v.Durations, limit)) / float64(len(v.Durations))
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

// ours is GRASS with times under the caps, the fastest free slots first: t_rem follows the
// cap of the original's node before any progress report can show it, t_new that of the
// free slot's, and no copy runs on a node capped harder than the original's.
func (v *View) ours(past *Samples) (greedy bool, actions []Action) {
	now := *v
	now.Tasks = slices.Clone(v.Tasks)
	for i := range now.Tasks {
		t := &now.Tasks[i]
		if t.Speed == 0 {
			t.Speed = 1
		}
		if t.State == Running && t.Measured > 0 {
			t.Remaining = min(TimeMost, time.Duration(float64(t.Remaining)*t.Measured/t.Speed))
		}
	}
	greedy = v.Greedy || past.switches(&now)
	groups := v.slotsBySpeed()
	for n, slots := range groups {
		speed := percent(v.speed(slots[0]))
		given := now.giveAt(speed, len(slots), greedy)
		for i := range given {
			given[i].Slot = slots[min(given[i].Slot, len(slots)-1)]
		}
		if last := given[len(given)-1]; last.Kind == Wait && n < len(groups)-1 {
			given = given[:len(given)-1]
		}
		actions = append(actions, given...)
	}
	return greedy, actions
}

// giveAt gives slots of one speed, and changes the tasks accordingly.
func (v *View) giveAt(speed, slots int, greedy bool) []Action {
	at := *v
	at.Slots = slots
	at.Width = v.width()
	at.Tasks = slices.Clone(v.Tasks)
	for i := range at.Tasks {
		t := &at.Tasks[i]
		t.New = min(TimeMost, t.New*percents/time.Duration(speed))
	}
	inner := at.grass(greedy)
	given := at.give(func(i int, t *Task) (rank, bool) {
		r, ok := inner(i, t)
		return r, ok && (t.State == Waiting || percent(t.Speed) <= speed)
	})
	for _, a := range given {
		if a.Kind == Wait {
			continue
		}
		i, _ := slices.BinarySearchFunc(v.Tasks, a.Task, func(t Task, id int) int { return t.ID - id })
		t := &v.Tasks[i]
		t.State, t.Copies = Running, t.Copies+1
		t.Remaining, t.Speed = at.Tasks[i].New, float64(speed)/percents
	}
	return given
}

// speed is that of a free slot's node.
func (v *View) speed(slot int) float64 {
	if len(v.Speeds) == 0 {
		return 1
	}
	return v.Speeds[slot]
}

// slotsBySpeed are the free slots, those of one speed together, the fastest first.
func (v *View) slotsBySpeed() [][]int {
	var by [percents + 1][]int
	for slot := range v.Slots {
		p := percent(v.speed(slot))
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
