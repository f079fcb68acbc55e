package events

import (
	"container/heap"
	"iter"
	"time"
)

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
