package pigeon

// ring is a list of workers with a free slot of a kind. Starts take its first and move it to the end, so that tasks spread over
// the workers of a group.
type ring struct{ first, last Worker }

// link is a worker's place in a ring.
type link struct {
	prev, next Worker
	in         bool
}

func newRing() ring { return ring{first: none, last: none} }

func noLink() link { return link{prev: none, next: none} }

// first returns the worker whose turn it is.
func (m *Master[T]) first(kind int) Worker { return m.open[kind].first }

// ring adds a worker to a ring or removes it.
func (m *Master[T]) ring(kind int, w Worker, in bool) {
	switch l := &m.workers[w].links[kind]; {
	case in && !l.in:
		m.open[kind].add(m.workers, kind, w)
	case !in && l.in:
		m.open[kind].remove(m.workers, kind, w)
	}
}

func (r *ring) add(workers []worker, kind int, w Worker) {
	workers[w].links[kind] = link{prev: r.last, next: none, in: true}
	if r.last == none {
		r.first = w
	} else {
		workers[r.last].links[kind].next = w
	}
	r.last = w
}

func (r *ring) remove(workers []worker, kind int, w Worker) {
	l := workers[w].links[kind]
	if l.prev == none {
		r.first = l.next
	} else {
		workers[l.prev].links[kind].next = l.next
	}
	if l.next == none {
		r.last = l.prev
	} else {
		workers[l.next].links[kind].prev = l.prev
	}
	workers[w].links[kind] = noLink()
}

// rotate moves a worker to the end.
func (r *ring) rotate(workers []worker, kind int, w Worker) {
	if workers[w].links[kind].in && r.last != w {
		r.remove(workers, kind, w)
		r.add(workers, kind, w)
	}
}
