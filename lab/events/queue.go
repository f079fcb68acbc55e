package events

// ID names an event that waits in a Queue. Once the event is popped or removed, another may get the same ID.
type ID int32

// Queue holds events of type E in the order of their times. Its zero value is empty and ready.
type Queue[E any] struct {
	heap   []entry // a heap of which each node has arity children
	events []E     // by ID
	places []int32 // of each ID in heap
	unused []ID
	count  uint64
}

// entry is an event in the heap.
type entry struct {
	at float64
	// order is the rank in the upper byte, and below it how many events were scheduled before.
	order uint64
	id    ID
}

const (
	// arity makes the heap flat: fewer cache misses than with two children.
	arity = 4
	// rankShift leaves 2^56 events to count, more than a machine of today schedules in a year.
	rankShift = 56
)

func (a *entry) before(b *entry) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.order < b.order
}

// Len returns how many events wait.
func (q *Queue[E]) Len() int { return len(q.heap) }

// Push adds an event at a time. Of events of one time those of lower rank come first, then those that came first.
func (q *Queue[E]) Push(at float64, rank uint8, e E) ID {
	var id ID
	if n := len(q.unused); n > 0 {
		id, q.unused = q.unused[n-1], q.unused[:n-1]
		q.events[id] = e
	} else {
		id = ID(len(q.events))
		q.events, q.places = append(q.events, e), append(q.places, 0)
	}
	q.heap = append(q.heap, entry{at: at, order: q.order(rank), id: id})
	q.up(len(q.heap) - 1)
	return id
}

func (q *Queue[E]) order(rank uint8) uint64 {
	q.count++
	return uint64(rank)<<rankShift | q.count
}

// Next returns the time of the first event; false if there is none.
func (q *Queue[E]) Next() (at float64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

// Pop removes the first event and returns it with its time; false if there is none.
func (q *Queue[E]) Pop() (at float64, e E, ok bool) {
	if len(q.heap) == 0 {
		return 0, e, false
	}
	at, e = q.heap[0].at, q.events[q.heap[0].id]
	q.Remove(q.heap[0].id)
	return at, e, true
}

// Remove removes an event that waits.
func (q *Queue[E]) Remove(id ID) {
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
func (q *Queue[E]) Move(id ID, at float64) {
	place := int(q.places[id])
	q.heap[place].at = at
	q.fix(place)
}

// fix restores the order after the entry at a place has changed.
func (q *Queue[E]) fix(place int) {
	if place > 0 && q.heap[place].before(&q.heap[(place-1)/arity]) {
		q.up(place)
		return
	}
	q.down(place)
}

func (q *Queue[E]) up(place int) {
	e := q.heap[place]
	for place > 0 {
		parent := (place - 1) / arity
		if !e.before(&q.heap[parent]) {
			break
		}
		q.put(place, q.heap[parent])
		place = parent
	}
	q.put(place, e)
}

func (q *Queue[E]) down(place int) {
	e := q.heap[place]
	for {
		first := arity*place + 1
		if first >= len(q.heap) {
			break
		}
		least := first
		for child := first + 1; child < min(first+arity, len(q.heap)); child++ {
			if q.heap[child].before(&q.heap[least]) {
				least = child
			}
		}
		if !q.heap[least].before(&e) {
			break
		}
		q.put(place, q.heap[least])
		place = least
	}
	q.put(place, e)
}

func (q *Queue[E]) put(place int, e entry) {
	q.heap[place] = e
	q.places[e.id] = int32(place)
}
