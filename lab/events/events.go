// Package events is the discrete-event core of the lab's simulations: a clock with a queue of events,
// work that proceeds at a rate, and a machine with slots on which copies of tasks run.
//
// The one idea: a simulation takes the next event from its Clock, applies the decision of its policy, and schedules, moves or cancels what
// follows. Everything that takes time is Work at a rate: when the rate changes, the end of the work moves.
//
// Guarantees: time never goes back. Events at the same time come by rank, then by order of scheduling. The same calls give the same events.
// Nothing is allocated once the number of events, slots and tasks has been reached before. Time is in seconds or a duration; work is in
// seconds at rate 1. An invalid call is a bug of the simulation and panics.
package events

import (
	"container/heap"
	"fmt"
	"iter"
	"math"
	"time"
)

// Clock is the time of a simulation and the events ahead. Its zero value is at time 0 without events, and ready.
type Clock[T Time, E any] struct {
	now   T
	queue Queue[T, E]
}

// Now returns the time.
func (c *Clock[T, E]) Now() T { return c.now }

// Schedule adds an event; one in the past happens now. Of events at the same time those of lower rank come first.
func (c *Clock[T, E]) Schedule(at T, rank uint8, e E) ID {
	return c.queue.Push(max(at, c.now), rank, e)
}

// Move gives an event that has not happened yet another time; one in the past happens now.
func (c *Clock[T, E]) Move(id ID, at T) { c.queue.Move(id, max(at, c.now)) }

// Cancel removes an event that has not happened yet.
func (c *Clock[T, E]) Cancel(id ID) { c.queue.Remove(id) }

// Until returns when the next event is due; false if there is none, or it is never due.
func (c *Clock[T, E]) Until() (at T, ok bool) {
	at, ok = c.queue.Next()
	return at, ok && at < Never[T]()
}

// Next advances the time to the next event and returns it; false if there is none.
func (c *Clock[T, E]) Next() (e E, ok bool) { return c.Before(Never[T]()) }

// Before does the same with an event that is due up to a time; false if there is none.
func (c *Clock[T, E]) Before(until T) (e E, ok bool) {
	at, ok := c.Until()
	if !ok || at > until {
		return e, false
	}
	c.now, e, _ = c.queue.Pop()
	return e, true
}

// Advance lets time go by; events that are due are left to Before.
func (c *Clock[T, E]) Advance(to T) { c.now = max(c.now, to) }

// second is a second in units of T: nanoseconds of a duration.
func second[T Time]() float64 {
	if T(1)/2 == 0 {
		return 1e9
	}
	return 1
}

// Never returns a time that never comes.
func Never[T Time]() T {
	if second[T]() > 1 {
		never := int64(math.MaxInt64)
		return T(never)
	}
	return T(math.Inf(1))
}

// Work is something that takes time: so many seconds at rate 1.
type Work[T Time] struct {
	// Left is what was left at Since. From then on it proceeds at Rate.
	Left, Rate float64
	Since      T
}

// LeftAt returns what is left at a time.
func (w *Work[T]) LeftAt(now T) float64 {
	return max(0, w.Left-w.Rate*(float64(now-w.Since)/second[T]()))
}

// SetRate changes the rate from a time on.
func (w *Work[T]) SetRate(now T, rate float64) { w.Left, w.Rate, w.Since = w.LeftAt(now), rate, now }

// Ends returns when the work is done at its rate, a duration rounded to the nanosecond; Never if it is paused.
func (w *Work[T]) Ends() T {
	unit := second[T]()
	took := w.Left / w.Rate * unit
	switch {
	case w.Left <= 0:
		return w.Since
	case w.Rate <= 0 || unit > 1 && took >= math.MaxInt64/2:
		return Never[T]()
	case unit > 1:
		took = math.Round(took)
	}
	return w.Since + T(took)
}

// Time is simulated time: seconds, or a duration where the code under test takes durations.
type Time interface{ float64 | time.Duration }

// ID names an event that waits in a Queue. Once the event is popped or removed, another may get the same ID.
type ID int32

// Queue holds events of type E in the order of their times. Its zero value is empty and ready.
type Queue[T Time, E any] struct {
	heap   places[T]
	events []E // by ID
	unused []ID
	count  uint64
}

// entry is an event in the heap. Its order is the rank in the upper byte, and below it how many events were scheduled before: 2^56 are
// more than a machine of today schedules in a year.
type entry[T Time] struct {
	at    T
	order uint64
	id    ID
}

// places are the events as a heap, with the place of each ID.
type places[T Time] struct {
	entries []entry[T]
	of      []int
}

func (p *places[T]) Len() int { return len(p.entries) }

func (p *places[T]) Less(i, j int) bool {
	a, b := &p.entries[i], &p.entries[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (p *places[T]) Swap(i, j int) {
	p.entries[i], p.entries[j] = p.entries[j], p.entries[i]
	p.of[p.entries[i].id], p.of[p.entries[j].id] = i, j
}

// Push and Pop make a heap.Interface; entries are added and taken without them, since an entry in an interface would be allocated.
func (p *places[T]) Push(any) {}
func (p *places[T]) Pop() any { return nil }

// Len returns the number of waiting events.
func (q *Queue[T, E]) Len() int { return q.heap.Len() }

// All yields the waiting events in no particular order, the first event first.
func (q *Queue[T, E]) All() iter.Seq2[ID, E] {
	return func(yield func(ID, E) bool) {
		for _, e := range q.heap.entries {
			if !yield(e.id, q.events[e.id]) {
				return
			}
		}
	}
}

// Push adds an event at a time. Of events of one time those of lower rank come first, then those that came first.
func (q *Queue[T, E]) Push(at T, rank uint8, e E) ID {
	id, last := ID(len(q.events)), q.Len()
	if n := len(q.unused); n > 0 {
		id, q.unused = q.unused[n-1], q.unused[:n-1]
		q.events[id] = e
	} else {
		q.events, q.heap.of = append(q.events, e), append(q.heap.of, 0)
	}
	q.count++
	q.heap.entries = append(q.heap.entries, entry[T]{at, uint64(rank)<<56 | q.count, id})
	q.heap.of[id] = last
	heap.Fix(&q.heap, last)
	return id
}

// Next returns the time of the first event; false if there is none.
func (q *Queue[T, E]) Next() (at T, ok bool) {
	if q.Len() == 0 {
		return at, false
	}
	return q.heap.entries[0].at, true
}

// Pop removes the first event and returns it with its time; false if there is none.
func (q *Queue[T, E]) Pop() (at T, e E, ok bool) {
	if q.Len() == 0 {
		return at, e, false
	}
	first := q.heap.entries[0]
	e = q.events[first.id]
	q.Remove(first.id)
	return first.at, e, true
}

// Remove removes an event that waits.
func (q *Queue[T, E]) Remove(id ID) {
	place, last := q.heap.of[id], q.Len()-1
	q.heap.Swap(place, last)
	q.heap.entries = q.heap.entries[:last]
	if place < last {
		heap.Fix(&q.heap, place)
	}
	var none E
	q.events[id] = none
	q.unused = append(q.unused, id)
}

// Move gives an event that waits another time. It keeps its place among events of one time.
func (q *Queue[T, E]) Move(id ID, at T) {
	q.heap.entries[q.heap.of[id]].at = at
	heap.Fix(&q.heap, q.heap.of[id])
}

// none is no task or no slot.
const none = -1

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
