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

// Pop does nothing.
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
