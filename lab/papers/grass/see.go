package grass

import (
	"math"
	"slices"
	"time"

	"headroom/jobs/speculation"
	"headroom/lab/events"
)

// see makes the view of the job with these slots free.
func (r *run) see(free []int) {
	v := &r.view
	v.Slots, v.Width, v.Utilisation = len(free), r.spec.width, r.spec.utilisation
	v.Bound = speculation.Bound{ByDeadline: r.promise.left > 0, Left: max(0, seconds(r.promise.left-r.m.Now())), Error: r.promise.err}
	v.Report, v.Restarts = seconds(lookEvery*median()), r.variant.policy == speculation.Mantri
	v.Accuracy = accuracyOf(&r.left, &r.fresh)
	v.Typical = r.typical()
	v.Speeds, v.Slow = nil, nil
	if r.caps != nil && r.knowsCaps() {
		for _, slot := range free {
			v.Speeds = append(v.Speeds, r.m.Speed(slot))
		}
	}
	if r.variant.policy == speculation.LATE {
		v.Slow = r.slow(free)
	}
	if r.variant.policy == speculation.Mantri {
		v.Durations = r.own.Ratios()
	}
	r.seeSizes()
	for slot := range r.spec.width {
		if r.m.Busy(slot) {
			i := r.m.Copy(slot).Task
			r.seeTask(i, &v.Tasks[i])
		}
	}
}

// estimateStep is by how much the estimate of a task must change before policies get it: by
// less than any of it is accurate.
const estimateStep = 0.01

// seeSizes is t_new of all tasks that are not done.
func (r *run) seeSizes() {
	typical := r.view.Typical
	if math.Abs(float64(typical)/float64(max(1, r.told))-1) < estimateStep {
		return
	}
	r.told = typical
	for i := range r.view.Tasks {
		r.seeTask(i, &r.view.Tasks[i])
	}
}

// typical is the estimate of a task with an input of size 1: by the job's own tasks that have
// ended, and by earlier jobs' while they are few.
func (r *run) typical() time.Duration {
	if r.ended >= ownLeast {
		d, _ := r.own.New(1)
		return d
	}
	return seconds(unitBefore())
}

// seeTask is what the policy sees of a task.
func (r *run) seeTask(i int, t *speculation.Task) {
	*t = speculation.Task{ID: i, New: time.Duration(float64(r.told) * r.spec.sizes[i]), Restarted: r.restarts[i]}
	if r.m.Ended(i) {
		*t = speculation.Task{ID: i, State: speculation.Done}
		return
	}
	if copies := r.m.Copies(i); copies > 0 {
		t.State, t.Copies, t.Remaining = speculation.Running, copies, -1
		r.seeCopies(i, t)
	}
	if r.variant.knows {
		work, _ := r.spec.copied(i, r.started[i])
		t.New = seconds(work)
	}
	if r.variant.random {
		_, gamma := r.spec.copied(i, 100)
		t.New = seconds(unit * math.Pow(gamma, 5))
	}
}

// seeCopies is t_rem by the copy that will end first, as its reports have it.
func (r *run) seeCopies(i int, t *speculation.Task) {
	for slot := range r.m.Slots(i) {
		c := r.m.Copy(slot)
		speed := r.m.Speed(slot)
		left, part := r.reported(slot, c)
		if r.variant.knows {
			left = seconds(c.Left / speed)
		}
		if t.Remaining >= 0 && left >= t.Remaining {
			continue
		}
		t.Remaining, t.Rate = left, 1/max(1e-9, (left.Seconds()+r.m.Now()-c.Began))
		if r.caps != nil && r.knowsCaps() {
			t.Speed, t.Measured = speed, speed
			if part > 0 {
				t.Measured = r.caps.mean(r.spec, slot, c.Began, r.m.Now())
			}
		}
	}
}

// reported is the estimate of t_rem by the last report of a copy, and the part that it had
// done. Before the first report it is what was expected, until the report is overdue.
func (r *run) reported(slot int, c events.Copy) (left time.Duration, part float64) {
	k := &r.copies[slot]
	now := r.m.Now()
	done := 1 - c.Left/c.Work
	for k.steps < fullSteps && done >= k.next {
		k.steps++
		k.last, k.next = k.next, math.Pow(reports*float64(k.steps+1), 1/k.gamma)
	}
	part = reports * float64(k.steps)
	if k.steps == 0 {
		elapsed := seconds(now - c.Began)
		return max(k.fresh-elapsed, time.Duration(float64(elapsed)*(1-reports)/reports)), 0
	}
	since := (done - k.last) * c.Work / r.m.Speed(slot)
	left, _ = speculation.Remaining(seconds(max(0, now-c.Began-since)), min(1, part), seconds(max(0, since)))
	if k.at == 0 && part >= checked {
		k.quarter, k.at = left, now
	}
	return left, part
}

// slow are the free slots of nodes that are among the slowest quarter by all they have done,
// where nodes differ at all.
func (r *run) slow(free []int) []bool {
	if r.caps == nil {
		return nil
	}
	var scores []float64
	for _, n := range r.nodes {
		if n.busy > 0 {
			scores = append(scores, n.progress/n.busy)
		}
	}
	if len(scores) == 0 {
		return nil
	}
	slices.Sort(scores)
	limit := scores[len(scores)/4]
	slow := make([]bool, len(free))
	for i, slot := range free {
		n := r.nodes[slot]
		slow[i] = n.busy > 0 && n.progress/n.busy < limit
	}
	return slow
}
