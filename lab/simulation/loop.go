package simulation

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// event is something that happens at a moment of virtual time.
type event struct {
	at    time.Duration
	order uint64
	do    func()
}

// loop is the event loop.
type loop struct {
	now    time.Duration
	order  uint64
	events []event // the earliest last; of two at one moment, what was planned first happens first
	ran    uint64
}

// add plans do for d from now; a negative d counts as none.
func (l *loop) add(d time.Duration, do func()) {
	l.order++
	e := event{at: l.now + max(0, d), order: l.order, do: do}
	i, _ := slices.BinarySearchFunc(l.events, e, func(a, b event) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.order, a.order))
	})
	l.events = slices.Insert(l.events, i, e)
}

// next runs the earliest event, and reports false when none is left before end.
func (l *loop) next(end time.Duration) bool {
	last := len(l.events) - 1
	if last < 0 || l.events[last].at > end {
		return false
	}
	first := l.events[last]
	l.events = slices.Delete(l.events, last, last+1)
	l.now = first.at
	l.ran++
	first.do()
	return true
}

// process is one process of the cluster, as far as the loop is concerned: it may be down, and it may be paused (stopped, or its machine
// asleep), in which case what would happen to it happens when it runs again.
type process struct {
	name    string
	address int // place in the network
	up      bool
	paused  bool
	life    uint64 // counts its starts and ends; timers of an earlier life are void
	backlog []func()
	since   time.Duration // true time since when it runs without a break
	random  random
	gossip  gossip
	braked  func(generation uint64) // acts upon a brake that is new to it
}

// timer plans something that the process itself does; it dies with the process.
func (w *world) timer(p *process, d time.Duration, do func()) {
	w.unchanged(p, d, func() { w.enter(p, do) })
}

// unchanged plans do, unless the process starts or ends meanwhile.
func (w *world) unchanged(p *process, d time.Duration, do func()) {
	life := p.life
	w.add(d, func() {
		if p.life == life {
			do()
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

// resume lets the process run on: what waited happens now, in the order it came, or jumbled where the schedule reorders.
func (w *world) resume(p *process) {
	w.tracef("%s runs on", p.name)
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
	w.kill(p)
	p.up, p.since = true, w.now
}

// random is one stream of random numbers. Each process, each fault and each order has its
// own, so a schedule that is run without one of its faults keeps the numbers of all others.
type random struct{ *rand.Rand }

// newRandom returns stream number i of the given name.
func newRandom(seed uint64, name string, i int) random {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return random{rand.New(rand.NewPCG(seed^h.Sum64(), 0x9e3779b97f4a7c15*uint64(i+1)))}
}

// upTo returns a uniformly distributed duration from 0 to d.
func (r random) upTo(d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(max(0, d)) + 1))
}

// between returns a uniformly distributed duration from lo to hi.
func (r random) between(lo, hi time.Duration) time.Duration { return lo + r.upTo(hi-lo) }

// about returns an exponentially distributed duration with the given mean.
func (r random) about(mean time.Duration) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(mean))
}

// chance returns true with probability p. It draws exactly once, whatever p is.
func (r random) chance(p float64) bool { return r.Float64() < p }
