package pigeon

// Worker names a worker within its Master. After Leave another may get the same name.
type Worker int32

// MasterOptions set up a Master.
type MasterOptions struct {
	// W: while tasks of both priorities wait, at least one of every W that slots without reservation take is of low priority,
	// after W-1 of high priority. 0 is strict priority.
	W int
	// WaitMost bounds how many tasks wait, per priority; 0 is no bound.
	WaitMost int
}

// Master decides which worker of a group runs which task.
type Master[T any] struct {
	options MasterOptions
	pool    pool[T]
	workers []worker
	unused  []Worker
	// waiting are the queues of low and high priority.
	waiting [2]list
	// open are the workers with a free slot, without and with reservation.
	open [2]ring
	// row is how many high-priority tasks were started in a row while low ones waited.
	row   int
	state State
}

// State counts what a Master has.
type State struct {
	Workers, Slots, Usable, Reserved                 int
	RunningHigh, RunningLow, WaitingHigh, WaitingLow int
}

// Indices of pairs: slots without reservation and low priority, reserved slots and high priority.
const (
	low  = 0
	high = 1
)

// worker has slots of both kinds.
type worker struct {
	slots, running [2]int
	usable         int
	tasks          list
	links          [2]link // in Master.open
}

// room reports whether a slot of a kind is free. Slots without reservation are the first to be withdrawn.
func (w *worker) room(kind int) bool {
	if w.running[low]+w.running[high] >= w.usable {
		return false
	}
	if kind == high {
		return w.running[high] < w.slots[high]
	}
	return w.running[low] < min(w.slots[low], w.usable-w.slots[high])
}

// Start is a task that a worker has to start.
type Start[T any] struct {
	ID     ID
	Task   T
	Worker Worker
	High   bool
	// Reserved reports whether it runs on a reserved slot.
	Reserved bool
}

// NewMaster returns a Master without workers.
func NewMaster[T any](o MasterOptions) *Master[T] {
	return &Master[T]{options: o, waiting: [2]list{newList(), newList()}, open: [2]ring{newRing(), newRing()}}
}

// State returns the present counts.
func (m *Master[T]) State() State {
	s := m.state
	s.WaitingLow, s.WaitingHigh = m.waiting[low].count, m.waiting[high].count
	return s
}

// Join adds a worker with a number of slots, of which some are reserved for high priority. All are usable.
func (m *Master[T]) Join(slots, reserved int) Worker {
	reserved = min(reserved, slots)
	var w Worker
	if n := len(m.unused); n > 0 {
		w, m.unused = m.unused[n-1], m.unused[:n-1]
	} else {
		w = Worker(len(m.workers))
		m.workers = append(m.workers, worker{})
	}
	m.workers[w] = worker{slots: [2]int{slots - reserved, reserved}, usable: slots, tasks: newList(), links: [2]link{noLink(), noLink()}}
	m.state.Workers++
	m.state.Slots += slots
	m.state.Usable += slots
	m.state.Reserved += reserved
	m.refresh(w)
	return w
}

// Usable sets how many slots of a worker its node's cap leaves. Running tasks go on; none is started beyond it.
func (m *Master[T]) Usable(w Worker, slots int) {
	x := &m.workers[w]
	slots = max(0, min(slots, x.slots[low]+x.slots[high]))
	m.state.Usable += slots - x.usable
	x.usable = slots
	m.refresh(w)
}

// Reserve changes how many slots of a worker are reserved. Running tasks stay where they are.
func (m *Master[T]) Reserve(w Worker, reserved int) {
	x := &m.workers[w]
	all := x.slots[low] + x.slots[high]
	reserved = max(0, min(reserved, all))
	m.state.Reserved += reserved - x.slots[high]
	x.slots = [2]int{all - reserved, reserved}
	m.refresh(w)
}

// Leave removes a worker, and appends the tasks that it was running to lost.
func (m *Master[T]) Leave(w Worker, lost []T) []T {
	x := &m.workers[w]
	for at := x.tasks.first; at != none; at = x.tasks.first {
		lost = append(lost, m.pool.entries[at].task)
		m.stop(at)
	}
	for kind := range m.open {
		m.ring(kind, w, false)
	}
	m.state.Workers--
	m.state.Slots -= x.slots[low] + x.slots[high]
	m.state.Usable -= x.usable
	m.state.Reserved -= x.slots[high]
	*x = worker{}
	m.unused = append(m.unused, w)
	return lost
}

// Place takes a task; false if its queue is full, with nothing kept.
func (m *Master[T]) Place(task T, highPriority bool) (ID, bool) {
	queue := &m.waiting[kindOf(highPriority)]
	if most := m.options.WaitMost; most != 0 && queue.count >= most {
		return 0, false
	}
	at, id := m.pool.add(task, highPriority)
	m.pool.push(queue, at)
	return id, true
}

// Adopt takes a task that a worker is running already, for a master that replaces another one. A high-priority task counts against
// a reserved slot while there is one.
func (m *Master[T]) Adopt(task T, highPriority bool, w Worker) ID {
	at, id := m.pool.add(task, highPriority)
	x := &m.workers[w]
	m.run(at, w, kindOf(highPriority && x.running[high] < x.slots[high]))
	return id
}

// Next returns the next task to start; false if none can.
func (m *Master[T]) Next() (Start[T], bool) {
	priority, kind, ok := m.choose()
	if !ok {
		return Start[T]{}, false
	}
	at := m.waiting[priority].first
	m.pool.remove(&m.waiting[priority], at)
	w := m.first(kind)
	m.run(at, w, kind)
	return Start[T]{ID: m.pool.id(at), Task: m.pool.entries[at].task, Worker: w, High: priority == high, Reserved: kind == high}, true
}

// choose returns which queue is served next, by which kind of slot.
func (m *Master[T]) choose() (priority, kind int, ok bool) {
	waitsHigh, waitsLow := m.waiting[high].count > 0, m.waiting[low].count > 0
	if !waitsLow {
		m.row = 0
	}
	switch {
	case m.open[low].first != none && waitsHigh && waitsLow:
		if m.options.W > 0 && m.row >= m.options.W-1 {
			m.row = 0
			return low, low, true
		}
		m.row++
		return high, low, true
	case m.open[low].first != none && waitsHigh:
		return high, low, true
	case m.open[low].first != none && waitsLow:
		m.row = 0
		return low, low, true
	case m.open[high].first != none && waitsHigh:
		return high, high, true
	}
	return 0, 0, false
}

// End frees the slot of a task that its worker has ended; false if it is not running, as when the worker says so twice.
func (m *Master[T]) End(id ID) (task T, ok bool) {
	at, ok := m.pool.find(id)
	if !ok || m.pool.entries[at].owner == none {
		return task, false
	}
	task = m.pool.entries[at].task
	m.stop(at)
	return task, true
}

// Cancel takes a waiting task back. A running one keeps its slot until End, and its worker is returned.
func (m *Master[T]) Cancel(id ID) (w Worker, running, ok bool) {
	at, ok := m.pool.find(id)
	if !ok {
		return none, false, false
	}
	if e := &m.pool.entries[at]; e.owner != none {
		return Worker(e.owner), true, true
	}
	m.pool.remove(&m.waiting[kindOf(m.pool.entries[at].high)], at)
	m.pool.free(at)
	return none, false, true
}

// run puts a task on a slot of a kind.
func (m *Master[T]) run(at int32, w Worker, kind int) {
	e := &m.pool.entries[at]
	e.owner, e.reserved = int32(w), kind == high
	m.pool.push(&m.workers[w].tasks, at)
	m.workers[w].running[kind]++
	m.count(e.high, 1)
	m.refresh(w)
	m.open[kind].rotate(m.workers, kind, w)
}

// stop takes a running task off its slot and forgets it.
func (m *Master[T]) stop(at int32) {
	e := &m.pool.entries[at]
	w := Worker(e.owner)
	m.pool.remove(&m.workers[w].tasks, at)
	m.workers[w].running[kindOf(e.reserved)]--
	m.count(e.high, -1)
	m.pool.free(at)
	m.refresh(w)
}

func (m *Master[T]) count(highPriority bool, by int) {
	if highPriority {
		m.state.RunningHigh += by
	} else {
		m.state.RunningLow += by
	}
}

// refresh puts a worker in the rings of those with a free slot, or takes it out.
func (m *Master[T]) refresh(w Worker) {
	for kind := range m.open {
		m.ring(kind, w, m.workers[w].room(kind))
	}
}

func kindOf(highPriority bool) int {
	if highPriority {
		return high
	}
	return low
}
