package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"headroom/lease"
	"headroom/units"
)

// loadLasts is how long a node's load stays what it is; the nodes' loads change one
// after the other.
const loadLasts = 10 * time.Second

// fleet is many nodes in this process.
type fleet struct {
	*book

	cancel context.CancelFunc
	nodes  []*streamNode
}

// startFleet starts n nodes that look for coordinators at addrs. Their loads follow the seed.
func startFleet(ctx context.Context, n int, addrs []string, seed uint64) *fleet {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{book: newBook(n), cancel: cancel}
	for i := range n {
		f.nodes = append(f.nodes, openNode(ctx, fmt.Sprintf("n%05d", i), addrs, streamWatch{
			busy:    loadOf(seed, uint64(i)),
			stands:  func(s standing) { f.stands(i, s, time.Now()) },
			replied: f.answered,
		}))
	}
	return f
}

// stop ends every node.
func (f *fleet) stop() {
	f.cancel()
	for _, n := range f.nodes {
		n.wait()
	}
}

// loadOf is a load between half and all of the node's CPUs.
func loadOf(seed, node uint64) func(time.Duration) float64 {
	phase := rand.New(rand.NewPCG(seed, node)).Int64N(int64(loadLasts))
	return func(since time.Duration) float64 {
		part := (since + time.Duration(phase)) / loadLasts
		return 0.5 + 0.5*rand.New(rand.NewPCG(seed^uint64(part)<<32, node)).Float64()
	}
}

// book is what the nodes hold, from themselves. Many goroutines write into it.
type book struct {
	mu     sync.Mutex
	stood  []standing
	held   int
	fell   int         // times that a lease ended and the fail-safe cap came in force
	why    lease.Ended // the newest of them
	sum    units.Power
	budget units.Power // what sum may not exceed; 0: nobody looks
	at     time.Time   // when over was last added to
	over   float64     // above the budget, W s
	epochs map[lease.Epoch]*reign
	took   []float64 // exchanges, s; nil: they are not collected
}

// reign is what nodes have of one leadership.
type reign struct {
	nodes       map[int]bool
	first, last time.Time // when the first and the latest node had its first lease of it
}

func newBook(n int) *book {
	return &book{stood: make([]standing, n), epochs: map[lease.Epoch]*reign{}}
}

// add sums up until now; the caller holds the lock.
func (b *book) add(now time.Time) {
	if b.budget > 0 && b.sum > b.budget && now.After(b.at) {
		b.over += (b.sum - b.budget).Watts() * now.Sub(b.at).Seconds()
	}
	b.at = now
}

// stands takes a node's new standing.
func (b *book) stands(i int, s standing, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(at)
	was := b.stood[i]
	b.stood[i], b.sum = s, b.sum+s.cap-was.cap
	switch {
	case s.held && !was.held:
		b.held++
	case was.held && !s.held:
		b.held--
		b.fell, b.why = b.fell+1, s.why
	}
	if !s.held {
		return
	}
	r := b.epochs[s.stamp.Epoch]
	if r == nil {
		r = &reign{nodes: map[int]bool{}, first: at}
		b.epochs[s.stamp.Epoch] = r
	}
	if !r.nodes[i] {
		r.nodes[i], r.last = true, at
	}
}

func (b *book) answered(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.took != nil {
		b.took = append(b.took, took.Seconds())
	}
}

// collect begins to keep how long exchanges take; collected ends it.
func (b *book) collect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.took = []float64{}
}

func (b *book) collected() []float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	took := b.took
	b.took = nil
	return took
}

// guard begins to integrate what the nodes hold above a budget; unguard ends it and
// answers the integral in W s.
func (b *book) guard(budget units.Power) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(time.Now())
	b.budget, b.over = budget, 0
}

func (b *book) unguard() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(time.Now())
	b.budget = 0
	return b.over
}

// holds is the sum of the caps in force, how many nodes hold a lease, and how often
// one has fallen to its fail-safe cap so far.
func (b *book) holds() (sum units.Power, held, fell int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sum, b.held, b.fell
}

// lastFell is why a node fell to its fail-safe cap the last time.
func (b *book) lastFell() lease.Ended {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why
}

// newest is the highest epoch that any node has had a lease of.
func (b *book) newest() lease.Epoch {
	b.mu.Lock()
	defer b.mu.Unlock()
	var best lease.Epoch
	for e := range b.epochs {
		if e.Compare(best) > 0 {
			best = e
		}
	}
	return best
}

// reigned is when the first node, and the last of all, carried out a grant of an
// epoch above old; false until every node has.
func (b *book) reigned(old lease.Epoch) (first, last time.Time, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e, r := range b.epochs {
		if e.Compare(old) <= 0 {
			continue
		}
		if first.IsZero() || r.first.Before(first) {
			first = r.first
		}
		if len(r.nodes) == len(b.stood) {
			last, all = r.last, true
		}
	}
	return first, last, all
}
