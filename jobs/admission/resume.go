package admission

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Resume takes over a job that another controller admitted with so many slots: it runs. It gets no more than are free, and
// counts as having had nothing yet.
func (c *Controller) Resume(now time.Time, in Job, slots int) ([]Decision, error) {
	if err := c.check(&in); err != nil {
		return nil, err
	}
	if slots < 0 {
		return nil, fmt.Errorf("%w: %q cannot hold %d slots", ErrJob, in.ID, slots)
	}
	c.advance(now)
	j := c.enter(in)
	if c.policy.fair() {
		c.start(j, 0)
		return c.settle(), nil
	}
	c.look(j)
	slots = min(slots, j.Tasks)
	found := min(slots, c.room())
	c.start(j, found)
	switch {
	case c.policy == Adaptive && found == 0:
		c.paused++
	case c.policy != Adaptive && found < slots:
		j.promised, c.shrunk = slots, true
		c.promised += slots - found
	}
	return c.settle(), nil
}

// Learn takes over what a job needed that ended elsewhere. An unknown work, 0, teaches nothing.
func (c *Controller) Learn(in Job, work time.Duration) error {
	if err := c.check(&in); err != nil {
		return err
	}
	if work < 0 || work > TimeMost {
		return fmt.Errorf("%w: the work of %q was %s; it must be from 0 to %s", ErrJob, in.ID, work, TimeMost)
	}
	if work > 0 && c.learn(&job{Job: in, limit: in.Deadline.Seconds()}, work.Seconds()) {
		c.lookAtAll()
	}
	return nil
}

// Ask states what Submit would decide about a job if there were so many slots, some of them in the hands of others, and
// changes nothing.
func (c *Controller) Ask(now time.Time, in Job, slots, others int) (Decision, error) {
	o := c.clone()
	o.others = others
	if slots != c.capacity {
		if _, err := o.SetCapacity(now, slots); err != nil {
			return Decision{}, err
		}
	}
	out, err := o.Submit(now, in)
	if err != nil {
		return Decision{}, err
	}
	return Of(out, in.ID)
}

// Of returns the last decision about a job among several.
func Of(decisions []Decision, id string) (Decision, error) {
	for _, d := range slices.Backward(decisions) {
		if d.ID == id {
			return d, nil
		}
	}
	return Decision{}, fmt.Errorf("%w: no decision about %q", ErrUnknown, id)
}

// Promised returns how many slots are promised to a running job now: none beyond what it holds, and none that it was
// lent. It is false for a job that does not run.
func (c *Controller) Promised(id string) (slots int, running bool) {
	j := c.jobs[id]
	if j == nil || !j.running {
		return 0, false
	}
	if c.policy.fair() {
		return int(j.slots), true
	}
	return min(j.promised, int(j.slots)), true
}

// SetOthers reports that so many slots are in the hands of others, who were promised nothing. They are not promised before
// they come free, but count for which deadlines can be kept.
func (c *Controller) SetOthers(now time.Time, slots int) ([]Decision, error) {
	if err := checkCapacity(slots); err != nil {
		return nil, err
	}
	c.advance(now)
	c.others = slots
	return c.settle(), nil
}

// Capacity returns the slots that there are, and how many of them are in the hands of others.
func (c *Controller) Capacity() (slots, others int) { return c.capacity, c.others }

// clone returns a controller that shares nothing with this one that changes.
func (c *Controller) clone() *Controller {
	o := *c
	o.out = nil
	o.jobs = make(map[string]*job, len(c.jobs))
	of := make(map[*job]*job, len(c.jobs))
	for id, j := range c.jobs {
		copied := *j
		o.jobs[id], of[j] = &copied, &copied
	}
	others := func(list []*job) []*job {
		out := make([]*job, len(list))
		for i, j := range list {
			out[i] = of[j]
		}
		return out
	}
	o.running, o.queue.order.jobs, o.queue.ends.jobs = others(c.running), others(c.queue.order.jobs), others(c.queue.ends.jobs)
	o.learned = learned{groups: maps.Clone(c.learned.groups), whole: c.learned.whole.clone()}
	for g, w := range o.learned.groups {
		copied := w.clone()
		o.learned.groups[g] = &copied
	}
	return &o
}

func (h *history) clone() history { return history{h.fractions.clone(), h.times.clone()} }

func (w *window) clone() window {
	return window{newest: slices.Clone(w.newest), next: w.next, sorted: slices.Clone(w.sorted)}
}
