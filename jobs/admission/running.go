package admission

import (
	"cmp"
	"math"
	"slices"
)

// ShareByTasks lets NoDrop and Reactive share slots in proportion to tasks, instead of max-min fair.
func (c *Controller) ShareByTasks() { c.byTasks = true }

// share divides the capacity among all running jobs, max-min fair: each gets as much as any other, or all that it can
// use. By tasks, each gets the same part of what it can use. Reactive stops jobs at their deadlines first.
func (c *Controller) share() {
	if c.policy == Reactive && c.now > c.soonest+slack {
		c.soonest = math.Inf(1)
		for _, j := range slices.Clone(c.running) {
			if c.now > j.due+slack {
				c.stop(j)
			} else {
				c.soonest = min(c.soonest, j.due)
			}
		}
	}
	left := float64(max(0, c.capacity-c.others))
	c.held = 0
	tasks := 0.0
	for _, j := range c.running {
		tasks += float64(j.Tasks)
	}
	part := min(1, left/max(1, tasks))
	for i, j := range c.running {
		slots := min(float64(j.Tasks), left/float64(len(c.running)-i))
		if c.byTasks {
			slots = float64(j.Tasks) * part
		}
		left -= slots
		c.held += slots
		c.resize(j, slots)
	}
}

// resize gives a running job another number of slots.
func (c *Controller) resize(j *job, slots float64) {
	if slots == j.slots {
		return
	}
	c.count(j)
	j.slots = slots
	if i := j.told; i < len(c.out) && c.out[i].ID == j.ID && c.out[i].Verdict == Admitted {
		c.out[i].Slots = slots
		return
	}
	c.out = append(c.out, c.decision(j, Resized))
}

// stop ends a running job.
func (c *Controller) stop(j *job) {
	c.leave(j)
	c.out = append(c.out, c.decision(j, Stopped))
}

// recheck is what a change of capacity does to running jobs.
func (c *Controller) recheck() {
	switch {
	case c.policy.fair():
	case c.policy == Adaptive:
		c.keepPromises()
	default:
		c.shrinkAll()
	}
}

// shrinkAll is for policies that know nothing of changes: every job loses the same part of its slots, and gets it back
// when the capacity comes back. What rounding leaves goes to the jobs that began first.
func (c *Controller) shrinkAll() {
	promised := c.promised
	left := min(c.capacity, promised)
	c.shrunk = promised > c.capacity
	c.held = float64(left)
	for _, j := range c.running {
		slots := 0
		if promised > 0 {
			slots = ceil(float64(j.promised) * float64(left) / float64(promised))
		}
		left -= slots
		promised -= j.promised
		c.resize(j, float64(slots))
	}
}

// goOnAll gives slots that are free again to the jobs that a cut has left without any.
func (c *Controller) goOnAll() {
	c.shrunk = false
	for _, j := range c.running {
		if j.slots > 0 {
			continue
		}
		if slots := float64(min(j.promised, c.free())); slots > 0 {
			c.held += slots
			c.resize(j, slots)
		} else {
			c.shrunk = true
		}
	}
}

// keepPromises gives each running job the fewest slots on which it still meets its deadline, the nearest to their ends
// first. A job for which there are not enough waits with none, and gets them when others end.
func (c *Controller) keepPromises() {
	if c.promised <= c.capacity {
		c.takeBack(0)
		return
	}
	order := slices.Clone(c.running)
	needs := make(map[*job]int, len(order))
	for _, j := range order {
		c.count(j)
		needs[j] = c.needOf(j)
	}
	slices.SortStableFunc(order, func(a, b *job) int { return cmp.Compare(c.rank(a, needs[a]), c.rank(b, needs[b])) })
	left := c.capacity
	for _, j := range order {
		slots := needs[j]
		if slots > left {
			slots = 0
			c.paused++
		}
		left -= slots
		j.promised = slots
		c.resize(j, float64(slots))
	}
	c.promised = c.capacity - left
	c.held = float64(c.promised)
}

// rank orders running jobs for a cut: small needs first, then who has the least left of its work.
func (c *Controller) rank(j *job, need int) float64 {
	if need <= c.capacity/100 {
		return 0
	}
	return max(0, j.estimate.work-j.done) / max(j.estimate.work, 1e-9)
}

// needOf returns the fewest slots on which a running job meets its deadline.
func (c *Controller) needOf(j *job) int {
	e := c.estimate(j)
	if !e.known {
		return min(j.Tasks, max(1, j.promised))
	}
	left := max(e.work-j.done, e.work/100)
	return slotsFor(left, j.due-c.now)
}

// stopLost stops running jobs whose deadlines have passed, and lets those go on that a cut has left without slots.
func (c *Controller) stopLost() {
	if c.paused == 0 && c.now <= c.soonest+slack {
		return
	}
	c.paused, c.soonest = 0, math.Inf(1)
	for _, j := range slices.Clone(c.running) {
		if c.now > j.due+slack {
			c.count(j)
			j.need = c.needOf(j)
			c.stop(j)
			if j.estimate.known && j.done >= j.estimate.work {
				// Its work is not known, but is more than what it has had.
				c.learn(j, j.done*1.02)
			}
			continue
		}
		c.goOn(j)
		c.soonest = min(c.soonest, j.due)
	}
}

// goOn gives a running job without slots what it needs, or stops it once no number of slots is enough.
func (c *Controller) goOn(j *job) {
	if j.slots > 0 {
		return
	}
	j.need = c.needOf(j)
	switch {
	case j.need > j.Tasks:
		c.stop(j)
	case j.need <= c.room():
		c.takeBack(j.need)
		c.promised += j.need
		j.promised = j.need
		c.held += float64(j.need)
		c.resize(j, float64(j.need))
	default:
		c.paused++
	}
}

// release lowers promises that running jobs no longer need: what they have been lent has brought them ahead.
func (c *Controller) release() {
	for _, j := range c.running {
		if j.promised == 0 || !j.estimate.known {
			continue
		}
		c.count(j)
		if need := c.needOf(j); need < j.promised {
			c.promised -= j.promised - need
			j.promised = need
		}
	}
}

// lend lets running jobs use the slots that are free, until others need them: first those that have fewer than would be
// safe, then any, in the order in which they began.
func (c *Controller) lend() {
	for _, all := range []bool{false, true} {
		for _, j := range c.running {
			free := c.free()
			if free == 0 {
				return
			}
			if j.slots == 0 || int(j.slots) >= j.Tasks {
				continue
			}
			most := j.Tasks
			if !all {
				c.count(j)
				most = min(most, c.needOf(j))
			}
			if more := min(free, most-int(j.slots)); more > 0 {
				c.held += float64(more)
				c.resize(j, j.slots+float64(more))
			}
		}
	}
}

// takeBack takes lent slots from running jobs, the newest first, until so many are free.
func (c *Controller) takeBack(slots int) {
	for _, j := range slices.Backward(c.running) {
		missing := slots - (c.capacity - c.others - int(c.held))
		if missing <= 0 {
			return
		}
		if lent := int(j.slots) - j.promised; lent > 0 {
			less := float64(min(lent, missing))
			c.held -= less
			c.resize(j, j.slots-less)
		}
	}
}
