package events

import (
	"iter"
	"time"
)

// Time is simulated time: seconds, or a duration where the code under test takes durations.
type Time interface{ float64 | time.Duration }

// ID names an event that waits in a Queue. Once the event is popped or removed, another may get the same ID.
type ID int32

// Queue holds events of type E in the order of their times. Its zero value is empty and ready.
type Queue[T Time, E any] struct {
	heap   []entry[T]
	events []E     // by ID
	places []int32 // of each ID in heap
	unused []ID
	count  uint64
}

// entry is an event in the heap.
type entry[T Time] struct {
	at T
	// order is the rank in the upper byte, and below it how many events were scheduled before.
	order uint64
	id    ID
}

// rankShift leaves 2^56 events to count, more than a machine of today schedules in a year.
const rankShift = 56

func (a *entry[T]) before(b *entry[T]) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.order < b.order
}

// Len returns the number of waiting events.
func (q *Queue[T, E]) Len() int { return len(q.heap) }

// All yields the waiting events in no particular order, the first event first.
func (q *Queue[T, E]) All() iter.Seq2[ID, E] {
	return func(yield func(ID, E) bool) {
		for i := range q.heap {
			if id := q.heap[i].id; !yield(id, q.events[id]) {
				return
			}
		}
	}
}

// Push adds an event at a time. Of events of one time those of lower rank come first, then those that came first.
func (q *Queue[T, E]) Push(at T, rank uint8, e E) ID {
	var id ID
	if n := len(q.unused); n > 0 {
		id, q.unused = q.unused[n-1], q.unused[:n-1]
		q.events[id] = e
	} else {
		id = ID(len(q.events))
		q.events, q.places = append(q.events, e), append(q.places, 0)
	}
	q.count++
	q.heap = append(q.heap, entry[T]{at: at, order: uint64(rank)<<rankShift | q.count, id: id})
	q.up(len(q.heap) - 1)
	return id
}

// Next returns the time of the first event; false if there is none.
func (q *Queue[T, E]) Next() (at T, ok bool) {
	if len(q.heap) == 0 {
		return at, false
	}
	return q.heap[0].at, true
}

// Pop removes the first event and returns it with its time; false if there is none.
func (q *Queue[T, E]) Pop() (at T, e E, ok bool) {
	if len(q.heap) == 0 {
		return at, e, false
	}
	at, e = q.heap[0].at, q.events[q.heap[0].id]
	q.Remove(q.heap[0].id)
	return at, e, true
}

// Remove removes an event that waits.
func (q *Queue[T, E]) Remove(id ID) {
	place := int(q.places[id])
	var none E
	q.events[id] = none
	q.unused = append(q.unused, id)
	last := len(q.heap) - 1
	moved := q.heap[last]
	q.heap = q.heap[:last]
	if place < last {
		q.heap[place] = moved
		q.fix(place)
	}
}

// Move gives an event that waits another time. It keeps its place among events of one time.
func (q *Queue[T, E]) Move(id ID, at T) {
	place := int(q.places[id])
	q.heap[place].at = at
	q.fix(place)
}

// fix restores the order after the entry at a place has changed.
func (q *Queue[T, E]) fix(place int) {
	if place > 0 && q.heap[place].before(&q.heap[(place-1)/2]) {
		q.up(place)
		return
	}
	q.down(place)
}

func (q *Queue[T, E]) up(place int) {
	e := q.heap[place]
	for place > 0 {
		parent := (place - 1) / 2
		if !e.before(&q.heap[parent]) {
			break
		}
		q.put(place, q.heap[parent])
		place = parent
	}
	q.put(place, e)
}

func (q *Queue[T, E]) down(place int) {
	e := q.heap[place]
	for {
		least := 2*place + 1
		if least >= len(q.heap) {
			break
		}
		if next := least + 1; next < len(q.heap) && q.heap[next].before(&q.heap[least]) {
			least = next
		}
		if !q.heap[least].before(&e) {
			break
		}
		q.put(place, q.heap[least])
		place = least
	}
	q.put(place, e)
}

func (q *Queue[T, E]) put(place int, e entry[T]) {
	q.heap[place] = e
	q.places[e.id] = int32(place)
}
