package dispatch

import (
	"cmp"
	"slices"
	"time"

	"headroom/jobs/buffers"
)

// Step decides what to do now and returns it with the effects of the events since the last step. Call it after every
// event and at least twice a second.
func (c *Core) Step(now time.Time) []Action {
	c.expire(now)
	for {
		c.watch(now)
		c.meetBounds(now)
		c.settle(now)
		if !now.Before(c.hold) {
			c.settleKilled(now)
		}
		if !c.dispatch(now) {
			break
		}
	}
	c.watch(now)
	actions := c.actions
	c.actions = nil
	return actions
}

// settle ends the running jobs that have nothing left to do.
func (c *Core) settle(now time.Time) {
	for _, j := range slices.Clone(c.active) {
		if j.Engine != "" || j.done+j.dropped < j.Tasks {
			continue
		}
		if !j.Reduce || j.reduce.state == taskDone {
			c.end(now, j, Done, j.Summary(j.done, j.dropped))
		}
	}
}

// dispatch starts the jobs that the discipline starts and assigns the free slots to the running jobs in order of class
// and submission. It reports whether something has changed that may let another job end or start.
func (c *Core) dispatch(now time.Time) (again bool) {
	if now.Before(c.hold) {
		return false
	}
	c.queue.Hold(!c.able())
	again = c.carry(now, c.queue.Step(now))
	free := c.free()
	return c.serve(now, free) || c.share(now, free) || again
}

// turn is a job and how many slots it may hold when its turn comes.
type turn struct {
	job  *job
	most int
}

// serve assigns free slots to jobs: first up to their shares, in the order of the shares, then to all that can use more
// than their shares, in the same order. It reports whether a job has started that may end or wait at once.
func (c *Core) serve(now time.Time, free map[string]int) (again bool) {
	turns := c.turns()
	for _, t := range turns {
		if t.job.state == Queued && len(free) > 0 {
			run, _ := c.queue.Begin(now, t.job.ID)
			c.begin(now, t.job, run)
			again = true
		}
		if t.job.state == Running {
			c.feed(now, t.job, free, t.most)
		}
	}
	for _, t := range turns {
		if t.job.state == Running && t.most < t.job.Slots {
			c.feed(now, t.job, free, t.job.Slots)
		}
	}
	return again
}

// turns returns the jobs in the order in which they get free slots: by class and submission where there are no shares. Jobs
// without a share come before those of lower classes that have one, and behind all others. Where the discipline leaves it
// to the holder of the slots when jobs begin, a share lets one begin that waits, and among shares so does a class above
// that of a job that runs.
func (c *Core) turns() []turn {
	var turns []turn
	named := make(map[string]bool, len(c.shares))
	for _, s := range c.shares {
		j := c.jobs[s.Job]
		if j == nil || named[s.Job] || !(j.state == Running || j.state == Queued && s.Slots > 0 && c.mayBegin(j)) {
			continue
		}
		named[s.Job] = true
		turns = append(turns, turn{j, s.Slots})
	}
	unnamed := c.active
	if j := c.head(); len(c.shares) > 0 && j != nil && c.mayBegin(j) && slices.ContainsFunc(c.active, func(o *job) bool { return o.rank > j.rank }) {
		unnamed = insert(slices.Clone(unnamed), j)
	}
	for _, j := range unnamed {
		if named[j.ID] {
			continue
		}
		at := slices.IndexFunc(turns, func(t turn) bool { return named[t.job.ID] && t.job.rank > j.rank })
		if at < 0 {
			at = len(turns)
		}
		turns = slices.Insert(turns, at, turn{j, j.Slots})
	}
	return turns
}

// mayBegin reports whether a waiting job may begin because slots are free.
func (c *Core) mayBegin(j *job) bool {
	return c.queue.Discipline == buffers.Shared && j.Engine == "" && c.head() != nil
}

// Share applies how many slots jobs hold before others get theirs, in the order of service. Slots that a job does not
// need for its share go to others that can use them, in the same order, so that none is unused while a task waits. Jobs
// that are not named come after the others; without names class and submission decide.
func (c *Core) Share(shares []Share) { c.shares = slices.Clone(shares) }

// Capacity returns how many slots the connected workers may use now.
func (c *Core) Capacity() (slots int) {
	for name, w := range c.workers {
		if w.connected {
			slots += c.usable(name, w)
		}
	}
	return slots
}

// able reports whether there is somebody to run the job that is next.
func (c *Core) able() bool {
	j := c.head()
	if c.queue.Discipline == buffers.Shared || j == nil || j.Engine != "" {
		return true
	}
	for _, w := range c.workers {
		if w.connected {
			return true
		}
	}
	return false
}

// share starts further jobs while slots are left, if the discipline leaves that to the owner of the slots. A job of an
// engine takes none.
func (c *Core) share(now time.Time, free map[string]int) (again bool) {
	if c.queue.Discipline != buffers.Shared {
		return false
	}
	for {
		j := c.head()
		if j == nil || (j.Engine == "" && len(free) == 0) {
			return again
		}
		run, _ := c.queue.Begin(now, j.ID)
		c.begin(now, j, run)
		c.feed(now, j, free, j.Slots)
		again = again || j.running == 0
	}
}

// head returns the job that begins next; nil when none waits or none may begin.
func (c *Core) head() *job {
	if b, waits := c.queue.Head(); waits {
		return c.jobs[b.ID]
	}
	return nil
}

// free counts the usable free slots of each connected node; nodes without are left out.
func (c *Core) free() map[string]int {
	free := make(map[string]int)
	for name, w := range c.workers {
		if n := c.usable(name, w) - len(w.running); w.connected && n > 0 {
			free[name] = n
		}
	}
	return free
}

// usable returns the number of slots that the node's cap leaves; all of them while no
// directive has come.
func (c *Core) usable(name string, w *worker) int {
	cap, known := c.caps[name]
	if !known {
		return w.slots
	}
	return UsableSlots(cap, w.slots)
}

// feed starts tasks of j while it holds fewer slots than most, may hold more and slots are free.
func (c *Core) feed(now time.Time, j *job, free map[string]int, most int) {
	if !j.ready() || c.choose(now, j, free, most) {
		return
	}
	for j.held < min(most, j.Slots) && len(free) > 0 {
		phase, index, ok := j.next()
		if !ok {
			return
		}
		c.start(now, j, phase, index, roomiest(free, j.task(phase, index).avoid), free)
	}
}

// next returns the task to start next: the first pending map task, or the reduce
// task once every map task is over.
func (j *job) next() (phase Phase, index int, ok bool) {
	if len(j.pending) > 0 {
		return PhaseMap, j.pending[0], true
	}
	ready := j.Reduce && j.done+j.dropped == j.Tasks && j.reduce.state == taskPending
	return PhaseReduce, 0, ready
}

// roomiest returns the node with the most free slots, the first by name among equals.
// The node to avoid is taken only when no other is free.
func roomiest(free map[string]int, avoid string) string {
	best := ""
	better := func(name string) bool {
		return best == "" || cmp.Or(
			compareBool(name == avoid, best == avoid),
			cmp.Compare(free[best], free[name]),
			cmp.Compare(name, best)) < 0
	}
	for name := range free {
		if better(name) {
			best = name
		}
	}
	return best
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// start gives a task to a node as a new attempt, and takes one of the free slots.
func (c *Core) start(now time.Time, j *job, phase Phase, index int, node string, free map[string]int) {
	t := j.task(phase, index)
	t.tries++
	ref := Ref{j.ID, phase, index, c.attempt(j.run.Number, t.tries)}
	a := attempt{node: node, number: ref.Attempt, began: now, seen: true, speed: c.speed(node)}
	if phase == PhaseMap {
		a.expected = j.expects(index, a.speed)
	}
	c.occupy(j, ref, a)
	c.act(StartTask{Node: node, Ref: ref})
	if free[node]--; free[node] == 0 {
		delete(free, node)
	}
}

// attempt returns the number of a task's n-th attempt in a run of its job. The upper half
// is the run of the scheduler process, so that an attempt of an earlier one is never
// taken for one of this; four bits are the job's run, so that an attempt of a killed
// run is never taken for one of the next.
func (c *Core) attempt(number uint32, n int) uint32 {
	return FirstAttempt(c.run, number) | uint32(n&AttemptMask)
}

// AttemptMask are the bits of an attempt's number that count the attempts of a task in one run.
const AttemptMask = 0xfff

// FirstAttempt returns the number of an attempt without those bits: of a run of a job, in a scheduler process.
func FirstAttempt(process uint16, run uint32) uint32 {
	return uint32(process)<<16 | runBits(run)<<12
}

// runBits returns a job's run as its attempts carry it; 0 is the first.
func runBits(number uint32) uint32 { return (max(number, 1) - 1) & 0xf }
