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

// fleet is many nodes in this process, and what they hold, as reported by themselves.
type fleet struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	stood  []standing
	held   int
	fell   int // how often a lease ended and the fail-safe cap came into force
	sum    units.Power
	budget units.Power // what sum may not exceed; 0: not watched
	at     time.Time   // when over was last updated
	over   float64     // above the budget, W s
	epochs map[lease.Epoch]*reign
	took   []float64 // exchanges, s
}

// reign is what nodes have of one leadership.
type reign struct {
	nodes       map[int]bool
	first, last time.Time // when the first and the latest node had its first lease of it
}

func newFleet(n int) *fleet {
	return &fleet{stood: make([]standing, n), epochs: map[lease.Epoch]*reign{}}
}

// startFleet starts n nodes that connect to the coordinators at addrs. Their loads follow the seed.
func startFleet(ctx context.Context, n int, addrs []string, seed uint64) *fleet {
	f := newFleet(n)
	ctx, f.cancel = context.WithCancel(ctx)
	for i := range n {
		node := newStreamNode(f, i, fmt.Sprintf("n%05d", i), addrs, loadOf(seed, uint64(i)))
		f.running.Go(func() { node.run(ctx, addrs) })
	}
	return f
}

// stop ends every node.
func (f *fleet) stop() {
	f.cancel()
	f.running.Wait()
}

// loadOf is a load between half and all of the node's CPUs.
func loadOf(seed, node uint64) func(time.Duration) float64 {
	phase := rand.New(rand.NewPCG(seed, node)).Int64N(int64(loadLasts))
	return func(since time.Duration) float64 {
		part := (since + time.Duration(phase)) / loadLasts
		return 0.5 + 0.5*rand.New(rand.NewPCG(seed^uint64(part)<<32, node)).Float64()
	}
}

// add updates the integral; the caller holds the lock.
func (f *fleet) add(now time.Time) {
	if f.budget > 0 && f.sum > f.budget && now.After(f.at) {
		f.over += (f.sum - f.budget).Watts() * now.Sub(f.at).Seconds()
	}
	f.at = now
}

// stands stores a node's new standing.
func (f *fleet) stands(i int, s standing, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(at)
	was := f.stood[i]
	f.stood[i], f.sum = s, f.sum+s.cap-was.cap
	switch {
	case s.held && !was.held:
		f.held++
	case was.held && !s.held:
		f.held--
		f.fell++
	}
	if !s.held {
		return
	}
	r := f.epochs[s.stamp.Epoch]
	if r == nil {
		r = &reign{nodes: map[int]bool{}, first: at}
		f.epochs[s.stamp.Epoch] = r
	}
	if !r.nodes[i] {
		r.nodes[i], r.last = true, at
	}
}

func (f *fleet) replied(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took = append(f.took, took.Seconds())
}

// exchanges returns how long the exchanges since the previous call took, s.
func (f *fleet) exchanges() []float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := f.took
	f.took = nil
	return took
}

// guard starts to integrate what the nodes hold above a budget, 0 for none; it returns the
// integral since the previous call in W s.
func (f *fleet) guard(budget units.Power) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(time.Now())
	over := f.over
	f.budget, f.over = budget, 0
	return over
}

// holds returns the sum of the caps in force, how many nodes hold a lease, and how often
// a node has fallen to its fail-safe cap so far.
func (f *fleet) holds() (sum units.Power, held, fell int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sum, f.held, f.fell
}

// newest is the highest epoch of all leases so far.
func (f *fleet) newest() lease.Epoch {
	f.mu.Lock()
	defer f.mu.Unlock()
	var best lease.Epoch
	for e := range f.epochs {
		if e.Compare(best) > 0 {
			best = e
		}
	}
	return best
}

// reigned returns when the first node and the last node applied a grant of an epoch above old; false
// until every node has.
func (f *fleet) reigned(old lease.Epoch) (first, last time.Time, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for e, r := range f.epochs {
		if e.Compare(old) <= 0 {
			continue
		}
		if first.IsZero() || r.first.Before(first) {
			first = r.first
		}
		if len(r.nodes) == len(f.stood) {
			last, all = r.last, true
		}
	}
	return first, last, all
}
