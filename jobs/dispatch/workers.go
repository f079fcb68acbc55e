package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// workersMax bounds the workers that are remembered while not connected.
const workersMax = 20_000

// Hello applies what a worker reports when its stream opens: its slots and the attempts that it still runs, or whose
// result it will repeat. Unneeded attempts are killed; tasks that the node should run but does not report are
// reassigned.
func (c *Core) Hello(now time.Time, node string, slots int, running []Ref) {
	w := c.workers[node]
	if w == nil {
		if len(c.workers) >= workersMax {
			c.forgetOne()
		}
		w = &worker{}
		c.workers[node] = w
	}
	before := w.running
	w.slots, w.connected, w.heard = slots, true, now
	w.running = make(map[Ref]bool, len(running))
	for _, ref := range running {
		w.running[ref] = true
		if !c.adopt(now, node, ref) {
			c.act(Kill{Node: node, Ref: ref})
		}
	}
	for _, ref := range sortedRefs(before) {
		if !w.running[ref] {
			c.lose(now, node, ref)
		}
	}
}

// forgetOne makes room for a new worker by removing a disconnected one.
func (c *Core) forgetOne() {
	for _, name := range c.nodes() {
		if w := c.workers[name]; !w.connected && len(w.running) == 0 {
			delete(c.workers, name)
			return
		}
	}
}

// adopt reports whether the attempt is wanted: it is one that the task waits for, the task
// waits for none, or it is a copy that an earlier scheduler process started.
func (c *Core) adopt(now time.Time, node string, ref Ref) bool {
	j, t := c.find(ref)
	if t == nil {
		return false
	}
	if j.run.Stopping != "" || j.run.Over || (ref.Attempt>>12)&0xf != runBits(j.run.Number) {
		return false // of a run that was killed
	}
	if t.state == taskRunning {
		return t.has(node, ref.Attempt) || c.adoptCopy(now, j, t, node, ref)
	}
	over := j.done+j.dropped == j.Tasks
	if t.state != taskPending || (ref.Phase == PhaseReduce && !over) {
		return false
	}
	if j.state == Queued { // it had started: the record of it was lost with the scheduler
		run, _ := c.queue.Begin(now, j.ID)
		c.begin(now, j, run)
	}
	c.occupy(j, ref, attempt{node: node, number: ref.Attempt, began: now, speed: c.speed(node)})
	return true
}

// find returns the task that an attempt belongs to; nil when its job has ended or is not known.
func (c *Core) find(ref Ref) (*job, *task) {
	j := c.jobs[ref.Job]
	if j == nil || j.state.Ended() || (ref.Phase == PhaseReduce && !j.Reduce) {
		return nil, nil
	}
	return j, j.task(ref.Phase, ref.Index)
}

// awaited returns the task that waits for an attempt on a node, nil for none.
func (c *Core) awaited(node string, ref Ref) (*job, *task) {
	if j, t := c.find(ref); t != nil && t.has(node, ref.Attempt) {
		return j, t
	}
	return nil, nil
}

// Alive records a message of a worker.
func (c *Core) Alive(now time.Time, node string) {
	if w := c.workers[node]; w != nil {
		w.heard = now
	}
}

// Broken records that a worker's stream broke. Its tasks may still run: they are reassigned only when it stays silent.
func (c *Core) Broken(node string) {
	if w := c.workers[node]; w != nil {
		w.connected = false
	}
}

// Runs reports whether a worker runs an attempt, as far as it was told.
func (c *Core) Runs(node string, ref Ref) bool {
	return c.workers[node] != nil && c.workers[node].running[ref]
}

// Gone records that a worker said goodbye: it has stopped its tasks.
func (c *Core) Gone(now time.Time, node string) {
	if w := c.workers[node]; w != nil {
		c.abandon(now, node, w)
	}
}

// expire removes the workers that have timed out.
func (c *Core) expire(now time.Time) {
	for _, node := range c.nodes() {
		if w := c.workers[node]; (w.connected || len(w.running) > 0) && now.Sub(w.heard) >= workerSilence {
			c.act(LoseWorker{Node: node, Tasks: len(w.running)})
			c.abandon(now, node, w)
		}
	}
}

// abandon removes all tasks from a worker.
func (c *Core) abandon(now time.Time, node string, w *worker) {
	lost := sortedRefs(w.running)
	w.connected, w.running = false, make(map[Ref]bool)
	for _, ref := range lost {
		c.lose(now, node, ref)
	}
}

// lose removes a lost attempt, which is no failure of its task.
func (c *Core) lose(now time.Time, node string, ref Ref) {
	if j, t := c.awaited(node, ref); t != nil {
		c.release(now, j, t, node, ref, &j.wasted.Failed)
	}
}

// Stopped records that an attempt ended because it was told to. If its task still waits for it (an earlier scheduler
// process had it stopped), the task starts again: being stopped is no failure.
func (c *Core) Stopped(now time.Time, node string, ref Ref) {
	w := c.workers[node]
	if w == nil {
		return
	}
	w.heard = now
	delete(w.running, ref)
	if j, t := c.awaited(node, ref); t != nil {
		c.release(now, j, t, node, ref, &j.wasted.Killed)
	}
}

// Result records how an attempt ended; failure is empty for success and the cause in words otherwise. The result of an
// attempt that the task no longer waits for only frees its slot.
func (c *Core) Result(now time.Time, node string, ref Ref, failure string) {
	w := c.workers[node]
	if w == nil {
		return
	}
	w.heard = now
	delete(w.running, ref)
	j, t := c.awaited(node, ref)
	if t == nil {
		return
	}
	if failure == "" {
		c.succeed(now, j, t, node, ref)
		return
	}
	t.failures++
	t.avoid, t.failure = node, failure
	c.release(now, j, t, node, ref, &j.wasted.Failed)
}

// exhaust ends a task that has failed MaxAttempts times: it is dropped if the job's minimum fraction of tasks permits
// it, and otherwise the job fails.
func (c *Core) exhaust(now time.Time, j *job, t *task, ref Ref) {
	why := fmt.Sprintf("%s task %d failed %d times, last on %s: %s", ref.Phase, ref.Index, t.failures, t.avoid, t.failure)
	if ref.Phase == PhaseReduce || !j.Spares(j.dropped) {
		c.end(now, j, Failed, why)
		return
	}
	t.state = taskDropped
	j.dropped++
	j.pending = slices.DeleteFunc(j.pending, func(i int) bool { return i == ref.Index })
	c.act(DropTask{Job: j.ID, Index: ref.Index, Why: why})
}

// Fail ends a job that cannot go on, for a reason outside its tasks.
func (c *Core) Fail(now time.Time, id, why string) {
	if j := c.jobs[id]; j != nil && !j.state.Ended() {
		c.end(now, j, Failed, why)
	}
}

// recent cuts the moments that have left the rate's window.
func recent(moments []time.Time, now time.Time) []time.Time {
	at, _ := slices.BinarySearchFunc(moments, now.Add(-rateWindow), time.Time.Compare)
	return moments[at:]
}

func sortedRefs(set map[Ref]bool) []Ref {
	refs := make([]Ref, 0, len(set))
	for ref := range set {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Phase, b.Phase),
			cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
	})
	return refs
}
