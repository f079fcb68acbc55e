package pigeon

// ID names a task within the Master or Distributor that returned it. It is never used again: the zero ID names none.
type ID uint64

// none is the end of a list.
const none = -1

// entry is a task, in at most one list.
type entry[T any] struct {
	task T
	// generation is in the entry's ID, so that the ID of an earlier task of the same entry is told from it.
	generation uint32
	used       bool
	high       bool
	reserved   bool  // runs on a reserved slot
	sent       bool  // of a distributor: handed over
	attempt    int32 // of a distributor
	// owner is the worker that runs it or the group that has it; none while it waits without one.
	owner      int32
	prev, next int32
}

// list is a doubly linked list of entries.
type list struct {
	first, last int32
	count       int
}

func newList() list { return list{first: none, last: none} }

// pool holds entries and reuses them.
type pool[T any] struct {
	entries []entry[T]
	unused  []int32
}

const generationShift = 32

// Kind is the index of a priority in pairs of counts: 1 for high, otherwise 0.
func Kind(high bool) int {
	if high {
		return 1
	}
	return 0
}

// add returns the index and ID of a new entry.
func (p *pool[T]) add(task T, high bool) (at int32, id ID) {
	if n := len(p.unused); n > 0 {
		at, p.unused = p.unused[n-1], p.unused[:n-1]
	} else {
		at = int32(len(p.entries))
		p.entries = append(p.entries, entry[T]{})
	}
	e := &p.entries[at]
	*e = entry[T]{task: task, generation: e.generation + 1, used: true, high: high, owner: none, prev: none, next: none}
	return at, p.id(at)
}

func (p *pool[T]) id(at int32) ID {
	return ID(p.entries[at].generation)<<generationShift | ID(uint32(at))
}

// find returns the index of an ID; false if the task is no longer there.
func (p *pool[T]) find(id ID) (at int32, ok bool) {
	i, generation := uint32(id), uint32(id>>generationShift)
	if int64(i) >= int64(len(p.entries)) {
		return none, false
	}
	e := &p.entries[i]
	return int32(i), e.used && e.generation == generation
}

// free makes an entry available, which must be in no list.
func (p *pool[T]) free(at int32) {
	e := &p.entries[at]
	*e = entry[T]{generation: e.generation}
	p.unused = append(p.unused, at)
}

// push appends an entry to a list.
func (p *pool[T]) push(l *list, at int32) {
	e := &p.entries[at]
	e.prev, e.next = l.last, none
	if l.last == none {
		l.first = at
	} else {
		p.entries[l.last].next = at
	}
	l.last = at
	l.count++
}

// remove takes an entry out of its list.
func (p *pool[T]) remove(l *list, at int32) {
	e := &p.entries[at]
	if e.prev == none {
		l.first = e.next
	} else {
		p.entries[e.prev].next = e.next
	}
	if e.next == none {
		l.last = e.prev
	} else {
		p.entries[e.next].prev = e.prev
	}
	e.prev, e.next = none, none
	l.count--
}
