package events

import (
	"fmt"
	"iter"
	"math"
)

// none is no task or no slot.
const none = -1

// State is the state of a task.
type State uint8

// The states of a task.
const (
	Waiting State = iota
	Running
	Done
	Dropped
)

// Job is the progress of a job's tasks.
type Job struct {
	// First is its first task; the others follow. Tasks is how many there are.
	First, Tasks int
	// Waiting, Running, Done and Dropped add up to Tasks. Copies is how many copies run.
	Waiting, Running, Done, Dropped, Copies int
	// Useful is the slot time of copies that ended their tasks, s; Lost that of copies that were killed.
	Useful, Lost float64
}

// task is one task.
type task struct {
	job, copies int32
	slot        int32 // of its newest copy; the others follow by slot.next
	state       State
}

// slot runs at most one copy at a time, so a copy is named by its slot.
type slot struct {
	speed float64
	task  int32
	next  int32 // the slot of an older copy of the same task
	free  int32 // the place in Machine.free while it is free
	end   ID
	// work is the whole work of the copy, left what was left of it at since.
	work, left   float64
	began, since float64
}

// Copy is a copy of a task that runs.
type Copy struct {
	Task int
	// Began is when it was started. Work is its whole work, Left what is left of it now.
	Began, Work, Left float64
}

// Event is something that happens: a task ended, or an event of the simulation's own.
type Event[E any] struct {
	// Ended reports whether a task ended. Then Task and Slot are that task and the slot of its copy that ended first;
	// otherwise Own is what was scheduled.
	Ended      bool
	Task, Slot int
	Own        E
}

// happening is an event in the queue: slot is none for one of the simulation's own.
type happening[E any] struct {
	slot int32
	own  E
}

// Machine runs copies of tasks on slots. Its zero value has none of them, and is ready.
type Machine[E any] struct {
	now   float64
	queue Queue[happening[E]]
	slots []slot
	tasks []task
	jobs  []Job
	free  []int32
}

// Now returns the time.
func (m *Machine[E]) Now() float64 { return m.now }

// AddSlots adds n free slots of a speed and returns the first; the others follow.
func (m *Machine[E]) AddSlots(n int, speed float64) int {
	first := len(m.slots)
	for i := range n {
		m.slots = append(m.slots, slot{speed: speed, task: none, next: none})
		m.release(int32(first + i))
	}
	return first
}

// AddJob adds a job with so many tasks, which wait, and returns its number.
func (m *Machine[E]) AddJob(tasks int) int {
	first := len(m.tasks)
	for range tasks {
		m.tasks = append(m.tasks, task{job: int32(len(m.jobs)), slot: none})
	}
	m.jobs = append(m.jobs, Job{First: first, Tasks: tasks, Waiting: tasks})
	return len(m.jobs) - 1
}

// Job returns how far a job is.
func (m *Machine[E]) Job(job int) *Job { return &m.jobs[job] }

// State returns where a task stands.
func (m *Machine[E]) State(task int) State { return m.tasks[task].state }

// Copies returns how many copies of a task run.
func (m *Machine[E]) Copies(task int) int { return int(m.tasks[task].copies) }

// Slots yields the slots of a task's copies, the newest first.
func (m *Machine[E]) Slots(task int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for s := m.tasks[task].slot; s != none; s = m.slots[s].next {
			if !yield(int(s)) {
				return
			}
		}
	}
}

// Free returns the slots that are free, in an order of the machine's own. It holds until the next call that changes one.
func (m *Machine[E]) Free() []int32 { return m.free }

// Busy reports whether a slot runs a copy.
func (m *Machine[E]) Busy(slot int) bool { return m.slots[slot].task != none }

// Speed returns the speed of a slot.
func (m *Machine[E]) Speed(slot int) float64 { return m.slots[slot].speed }

// Copy returns the copy that runs on a slot.
func (m *Machine[E]) Copy(slot int) Copy {
	s := &m.slots[slot]
	if s.task == none {
		panic(fmt.Sprintf("events: slot %d runs nothing", slot))
	}
	return Copy{Task: int(s.task), Began: s.began, Work: s.work, Left: s.leftAt(m.now)}
}

// Schedule adds an event of the simulation's own; one in the past happens now.
func (m *Machine[E]) Schedule(at float64, rank uint8, own E) ID {
	return m.queue.Push(max(at, m.now), max(1, rank), happening[E]{slot: none, own: own})
}

// Cancel removes an event of the simulation's own that has not happened yet.
func (m *Machine[E]) Cancel(id ID) { m.queue.Remove(id) }

// Start runs a copy of a task on a free slot. A task that waits begins with it.
func (m *Machine[E]) Start(task, slot int, work float64) {
	s, t := &m.slots[slot], &m.tasks[task]
	if s.task != none || t.state > Running {
		panic(fmt.Sprintf("events: start of task %d (state %d) on slot %d, which runs task %d", task, t.state, slot, s.task))
	}
	m.take(int32(slot))
	j := &m.jobs[t.job]
	if t.state == Waiting {
		t.state = Running
		j.Waiting--
		j.Running++
	}
	s.task, s.next, t.slot = int32(task), t.slot, int32(slot)
	t.copies++
	j.Copies++
	s.work, s.left, s.began, s.since = work, work, m.now, m.now
	s.end = m.queue.Push(s.ends(), 0, happening[E]{slot: int32(slot)})
}

// Kill ends the copy on a slot without a result. A task without another copy waits again.
func (m *Machine[E]) Kill(slot int) {
	id := m.slots[slot].task
	if id == none {
		panic(fmt.Sprintf("events: kill on slot %d, which runs nothing", slot))
	}
	t := &m.tasks[id]
	m.lose(t, int32(slot))
	if t.copies == 0 {
		t.state = Waiting
		j := &m.jobs[t.job]
		j.Running--
		j.Waiting++
	}
}

// Drop drops a task that has not ended, and kills its copies.
func (m *Machine[E]) Drop(task int) {
	t := &m.tasks[task]
	j := &m.jobs[t.job]
	for t.copies > 0 {
		m.lose(t, t.slot)
	}
	switch t.state {
	case Waiting:
		j.Waiting--
	case Running:
		j.Running--
	case Done, Dropped:
		return
	}
	t.state = Dropped
	j.Dropped++
}

// SetSpeed changes the speed of a slot, and with it when its copy ends.
func (m *Machine[E]) SetSpeed(slot int, speed float64) {
	s := &m.slots[slot]
	if speed == s.speed {
		return
	}
	if s.task == none {
		s.speed = speed
		return
	}
	s.left, s.since = s.leftAt(m.now), m.now
	s.speed = speed
	m.queue.Move(s.end, s.ends())
}

// until returns when the next event is due; false if there is none.
func (m *Machine[E]) until() (at float64, ok bool) {
	at, ok = m.queue.Next()
	return at, ok && !math.IsInf(at, 1)
}

// Next advances the time to the next event and returns it; false if there is none.
func (m *Machine[E]) Next() (e Event[E], ok bool) {
	if _, ok = m.until(); !ok {
		return e, false
	}
	at, h, _ := m.queue.Pop()
	m.now = max(m.now, at)
	if h.slot == none {
		return Event[E]{Own: h.own, Task: none, Slot: none}, true
	}
	return Event[E]{Ended: true, Task: m.end(h.slot), Slot: int(h.slot)}, true
}

// end ends the task of the copy on a slot.
func (m *Machine[E]) end(slot int32) (task int) {
	s := &m.slots[slot]
	task = int(s.task)
	t := &m.tasks[task]
	j := &m.jobs[t.job]
	j.Useful += m.now - s.began
	m.unlink(t, slot)
	for t.copies > 0 {
		m.lose(t, t.slot)
	}
	t.state = Done
	j.Running--
	j.Done++
	return task
}

// lose ends a copy that counts for nothing.
func (m *Machine[E]) lose(t *task, slot int32) {
	s := &m.slots[slot]
	m.jobs[t.job].Lost += m.now - s.began
	m.queue.Remove(s.end)
	m.unlink(t, slot)
}

// unlink takes a copy from its task and frees its slot.
func (m *Machine[E]) unlink(t *task, slot int32) {
	at := &t.slot
	for *at != slot {
		at = &m.slots[*at].next
	}
	s := &m.slots[slot]
	*at = s.next
	s.task, s.next = none, none
	t.copies--
	m.jobs[t.job].Copies--
	m.release(slot)
}

func (m *Machine[E]) release(slot int32) {
	m.slots[slot].free = int32(len(m.free))
	m.free = append(m.free, slot)
}

func (m *Machine[E]) take(slot int32) {
	place, last := m.slots[slot].free, m.free[len(m.free)-1]
	m.free[place] = last
	m.slots[last].free = place
	m.free = m.free[:len(m.free)-1]
}

// ends returns when the copy ends at the present speed.
func (s *slot) ends() float64 {
	switch {
	case s.left <= 0:
		return s.since
	case s.speed <= 0:
		return math.Inf(1)
	}
	return s.since + s.left/s.speed
}

func (s *slot) leftAt(now float64) float64 { return max(0, s.left-s.speed*(now-s.since)) }
