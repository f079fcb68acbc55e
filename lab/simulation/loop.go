package simulation

import "time"

// event is something that happens at a moment of virtual time.
type event struct {
	at    time.Duration
	order uint64 // breaks ties: what was planned first happens first
	do    func()
}

func (e event) before(o event) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

// loop is the event loop: a binary heap ordered by time, then by order.
type loop struct {
	now   time.Duration
	order uint64
	heap  []event
	ran   uint64
}

// add plans do for d from now; a negative d counts as none.
func (l *loop) add(d time.Duration, do func()) {
	l.order++
	l.heap = append(l.heap, event{at: l.now + max(0, d), order: l.order, do: do})
	i := len(l.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !l.heap[i].before(l.heap[up]) {
			return
		}
		l.heap[i], l.heap[up] = l.heap[up], l.heap[i]
		i = up
	}
}

// next takes the earliest event, and false when none is left before end.
func (l *loop) next(end time.Duration) (event, bool) {
	if len(l.heap) == 0 || l.heap[0].at > end {
		return event{}, false
	}
	first := l.heap[0]
	last := len(l.heap) - 1
	l.heap[0], l.heap[last] = l.heap[last], event{}
	l.heap = l.heap[:last]
	l.sink()
	l.now = first.at
	l.ran++
	return first, true
}

func (l *loop) sink() {
	i := 0
	for {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < len(l.heap) && l.heap[down].before(l.heap[least]) {
				least = down
			}
		}
		if least == i {
			return
		}
		l.heap[i], l.heap[least] = l.heap[least], l.heap[i]
		i = least
	}
}

// process is one process of the cluster, as far as the loop is concerned: it
// may be down, and it may be paused (stopped, or its machine asleep), in which
// case what would happen to it happens when it runs again.
type process struct {
	name    string
	address int // place in the network
	up      bool
	paused  bool
	life    uint64 // counts its starts; timers of an earlier life are void
	backlog []func()
	since   time.Duration // true time since when it runs without a break
	random  random
}

// timer plans something that the process itself does; it dies with the process.
func (w *world) timer(p *process, d time.Duration, do func()) {
	life := p.life
	w.add(d, func() {
		if p.life == life {
			w.enter(p, do)
		}
	})
}

// enter runs do inside the process: now, when it runs again, or never.
func (w *world) enter(p *process, do func()) {
	switch {
	case !p.up:
	case p.paused:
		p.backlog = append(p.backlog, do)
	default:
		do()
	}
}

// pause stops the process.
func (w *world) pause(p *process) { p.paused = true }

// resume lets the process run on: what waited happens now, in the order it
// came, or jumbled where the schedule reorders.
func (w *world) resume(p *process) {
	waiting := p.backlog
	p.paused, p.backlog, p.since = false, nil, w.now
	for _, do := range waiting {
		d := p.random.upTo(3 * time.Millisecond)
		if w.net.reorder == 0 {
			d = 0
		}
		w.timer(p, d, do)
	}
}

// kill ends the process; timers and what waited are gone.
func (w *world) kill(p *process) {
	p.up, p.paused, p.backlog = false, false, nil
	p.life++
}

// start begins a new life of the process.
func (w *world) start(p *process) {
	p.up, p.paused, p.backlog, p.since = true, false, nil, w.now
	p.life++
}
