package events

import (
	"fmt"
	"iter"
)

// none is no task or no slot.
const none = -1

// task is one task.
type task struct {
	copies int
	slot   int // of its newest copy; the others follow by slot.next
	done   bool
}

// slot runs at most one copy at a time, so a copy is named by its slot. Its speed is the rate of the copy's work.
type slot struct {
	Work[float64]

	task, next  int // next is the slot of an older copy of the same task
	end         ID
	work, began float64
}

// Copy is a running copy of a task.
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

// Machine runs copies of tasks on slots. Its time is in seconds.
type Machine[E any] struct {
	clock Clock[float64, Event[E]]
	slots []slot
	tasks []task

	// Done is the number of tasks that ended, Running that of tasks with copies, Free that of slots without one.
	Done, Running, Free int
}

// NewMachine returns a machine with waiting tasks and free slots of speed 1.
func NewMachine[E any](tasks, slots int) *Machine[E] {
	m := &Machine[E]{slots: make([]slot, slots), tasks: make([]task, tasks), Free: slots}
	for i := range m.slots {
		m.slots[i] = slot{Work: Work[float64]{Rate: 1}, task: none, next: none}
	}
	for i := range m.tasks {
		m.tasks[i].slot = none
	}
	return m
}

// Now returns the time.
func (m *Machine[E]) Now() float64 { return m.clock.Now() }

// Schedule adds an event of the simulation's own, which comes after the ends of copies at the same time.
func (m *Machine[E]) Schedule(at float64, rank uint8, own E) {
	m.clock.Schedule(at, max(1, rank), Event[E]{Task: none, Slot: none, Own: own})
}

// Ended reports whether a task has ended.
func (m *Machine[E]) Ended(task int) bool { return m.tasks[task].done }

// Copies returns how many copies of a task run.
func (m *Machine[E]) Copies(task int) int { return m.tasks[task].copies }

// Slots yields the slots of a task's copies, the newest first.
func (m *Machine[E]) Slots(task int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for s := m.tasks[task].slot; s != none; s = m.slots[s].next {
			if !yield(s) {
				return
			}
		}
	}
}

// Busy reports whether a slot runs a copy.
func (m *Machine[E]) Busy(slot int) bool { return m.slots[slot].task != none }

// Speed returns the speed of a slot.
func (m *Machine[E]) Speed(slot int) float64 { return m.slots[slot].Rate }

// Copy returns the copy that runs on a slot.
func (m *Machine[E]) Copy(slot int) Copy {
	s := &m.slots[slot]
	return Copy{Task: s.task, Began: s.began, Work: s.work, Left: s.LeftAt(m.Now())}
}

// Start runs a copy of a task on a free slot.
func (m *Machine[E]) Start(task, slot int, work float64) {
	s, t := &m.slots[slot], &m.tasks[task]
	if s.task != none || t.done {
		panic(fmt.Sprintf("events: start of task %d (done: %v) on slot %d, which runs task %d", task, t.done, slot, s.task))
	}
	m.Free--
	if t.copies++; t.copies == 1 {
		m.Running++
	}
	s.task, s.next, t.slot = task, t.slot, slot
	s.work, s.Left, s.began, s.Since = work, work, m.Now(), m.Now()
	s.end = m.clock.Schedule(s.Ends(), 0, Event[E]{Ended: true, Task: task, Slot: slot})
}

// Kill ends the copy on a slot without a result.
func (m *Machine[E]) Kill(slot int) {
	m.clock.Cancel(m.slots[slot].end)
	m.unlink(slot)
}

// SetSpeed changes the speed of a slot, and with it when its copy ends.
func (m *Machine[E]) SetSpeed(slot int, speed float64) {
	s := &m.slots[slot]
	switch {
	case speed == s.Rate:
	case s.task == none:
		s.Rate = speed
	default:
		s.SetRate(m.Now(), speed)
		m.clock.Move(s.end, s.Ends())
	}
}

// Next advances the time to the next event and returns it; false if there is none.
func (m *Machine[E]) Next() (e Event[E], ok bool) {
	if e, ok = m.clock.Next(); !ok || !e.Ended {
		return e, ok
	}
	t := &m.tasks[e.Task]
	m.unlink(e.Slot)
	for t.copies > 0 {
		m.Kill(t.slot)
	}
	t.done = true
	m.Done++
	return e, true
}

// unlink takes the copy on a slot from its task and frees the slot.
func (m *Machine[E]) unlink(slot int) {
	s := &m.slots[slot]
	t := &m.tasks[s.task]
	at := &t.slot
	for *at != slot {
		at = &m.slots[*at].next
	}
	*at, s.task, s.next = s.next, none, none
	if t.copies--; t.copies == 0 {
		m.Running--
	}
	m.Free++
}
