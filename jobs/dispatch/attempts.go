package dispatch

import (
	"slices"
	"time"
)

// attempt is a running attempt of a task.
type attempt struct {
	node   string
	number uint32
	// began is when it started; where seen is false it was taken over then, and is older.
	began time.Time
	seen  bool
	// speed is that of its node when it began, expected how long it was to take; 0 is unknown.
	speed    float64
	expected time.Duration
}

// ran returns how long it has held its slot, as far as is known.
func (a attempt) ran(now time.Time) time.Duration { return max(0, now.Sub(a.began)) }

// Waste is slot time that counted for nothing, by its cause.
type Waste struct {
	// Copies lost to another copy of their task; Failed attempts failed, or their worker was
	// lost; Killed ones were stopped, with what their killed run had done.
	Copies, Failed, Killed time.Duration
}

// Total returns all of it.
func (w Waste) Total() time.Duration { return w.Copies + w.Failed + w.Killed }

// at returns the place of an attempt among those that run, -1 for none.
func (t *task) at(node string, number uint32) int {
	return slices.IndexFunc(t.runs, func(a attempt) bool { return a.node == node && a.number == number })
}

// has reports whether the task waits for the attempt.
func (t *task) has(node string, number uint32) bool { return t.at(node, number) >= 0 }

// on reports whether an attempt of the task runs on the node.
func (t *task) on(node string) bool {
	return slices.ContainsFunc(t.runs, func(a attempt) bool { return a.node == node })
}

// occupy adds a running attempt to a task that waits, or a copy to one that runs.
func (c *Core) occupy(j *job, ref Ref, a attempt) {
	t := j.task(ref.Phase, ref.Index)
	if t.state != taskRunning {
		t.state = taskRunning
		j.running++
		if ref.Phase == PhaseMap {
			j.pending = slices.DeleteFunc(j.pending, func(i int) bool { return i == ref.Index })
		}
	}
	t.runs = append(t.runs, a)
	j.held++
	c.workers[a.node].running[ref] = true
}

// take removes an attempt from its task, whose slot the job then no longer holds.
func (j *job) take(t *task, node string, number uint32) attempt {
	at := t.at(node, number)
	a := t.runs[at]
	t.runs = slices.Delete(t.runs, at, at+1)
	j.held--
	return a
}

// release takes a running attempt away from its task, and counts its time as wasted. Other copies run on; without one the
// task waits again, or is dropped where it has failed too often.
func (c *Core) release(now time.Time, j *job, t *task, node string, ref Ref, waste *time.Duration) {
	*waste += j.take(t, node, ref.Attempt).ran(now)
	if len(t.runs) > 0 {
		return
	}
	t.state = taskPending
	j.running--
	if ref.Phase == PhaseMap {
		at, _ := slices.BinarySearchFunc(j.pending, ref.Index, j.compare)
		j.pending = slices.Insert(j.pending, at, ref.Index)
	}
	if t.failures >= j.MaxAttempts && j.run.Stopping == "" {
		c.exhaust(now, j, t, ref)
	}
}

// succeed counts a task whose attempt has ended well. Its other copies have lost.
func (c *Core) succeed(now time.Time, j *job, t *task, node string, ref Ref) {
	a := j.take(t, node, ref.Attempt)
	j.work += a.ran(now)
	j.longest[ref.Phase] = max(j.longest[ref.Phase], a.ran(now))
	j.wasted.Copies += c.cut(now, j, t, ref)
	t.state = taskDone
	j.running--
	if ref.Phase == PhaseMap {
		j.done++
		j.finishes = append(recent(j.finishes, now), now)
		c.learn(now, j, ref.Index, a)
	}
}

// cut tells the workers of a task to stop its attempts, which it no longer waits for, and
// returns the slot time that they have held.
func (c *Core) cut(now time.Time, j *job, t *task, ref Ref) (held time.Duration) {
	for _, a := range t.runs {
		c.act(Kill{Node: a.node, Ref: Ref{j.ID, ref.Phase, ref.Index, a.number}})
		held += a.ran(now)
		j.held--
	}
	t.runs = nil
	return held
}

// stop tells the workers of a running task to kill it.
func (c *Core) stop(now time.Time, j *job, phase Phase, index int) {
	if t := j.task(phase, index); t.state == taskRunning {
		j.wasted.Killed += c.cut(now, j, t, Ref{Phase: phase, Index: index})
		t.state = taskPending
		j.running--
	}
}

// adoptCopy takes over a copy that an earlier scheduler process started, where its job may
// have copies and a slot for it. Of those of this process it knows which are wanted.
func (c *Core) adoptCopy(now time.Time, j *job, t *task, node string, ref Ref) bool {
	if ref.Phase != PhaseMap || uint16(ref.Attempt>>16) == c.run || t.on(node) || j.held >= j.Slots || c.copiesLeft(j) <= 0 {
		return false
	}
	c.occupy(j, ref, attempt{node: node, number: ref.Attempt, began: now, speed: c.speed(node)})
	return true
}
