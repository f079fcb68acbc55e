package simulation

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

// world is everything of one schedule.
type world struct {
	loop
	seed    uint64
	rng     *rand.Rand
	end     time.Duration
	calm    time.Duration // when faults stop; end when they do not
	timing  ledger.Timing
	domains []budget.Domain
	servers []*server
	nodes   []*node
	byName  map[string]*node
	net     *network
	judge   *judge
	hits    map[string]int
	moment  uint64
	trace   io.Writer
	orders  int
	bent    bends

	// Drawn once for the schedule.
	slowDisk   float64       // share of slow writes to disk
	slowWrite  float64       // share of limits that hardware applies late
	stuck      float64       // share of limits that hardware refuses to lower for seconds
	restless   float64       // share of heartbeats with a new demand
	offClocks  bool          // clocks at the edge of what the design allows
	busy       time.Duration // mean time between two orders of the operator
	ample      bool          // budgets begin with room for all
	lostState  bool          // a killed powerd may lose its state directory
	conviction time.Duration // how long a leader believes without a majority
}

// bends are seams for tests that must see the judges at work: each replaces a
// piece of correct behaviour by a plausible mistake. All are nil or false in a
// real run.
type bends struct {
	tick    func(*leadership, *ledger.Tick) // changes what the leader commits
	report  func(*node, *ledger.Report)     // changes what a node reports
	receipt bool                            // a lease counts from the arrival of its grant
	early   bool                            // heartbeats are answered before the entry has committed
}

func newWorld(seed uint64, span time.Duration, trace io.Writer, bent bends) *world {
	w := &world{
		seed: seed, rng: newRand(seed), end: span, calm: span, timing: ledger.DefaultTiming(),
		byName: map[string]*node{}, hits: map[string]int{}, trace: trace, bent: bent,
	}
	if span >= 2*calmSpan {
		w.calm = span - calmSpan
	}
	w.drawFaults()
	w.drawDomains()
	for id := range 3 + 2*w.rng.IntN(2) {
		w.servers = append(w.servers, w.newServer(id))
	}
	for i := range 3 + w.rng.IntN(3) {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	w.drawBudgets()
	w.drawNetwork()
	w.judge = newJudge(w)
	return w
}

func (w *world) nodeNamed(name string) *node { return w.byName[name] }

// happening numbers the things that happen, to tell which came first.
func (w *world) happening() uint64 {
	w.moment++
	return w.moment
}

// hit counts a fault, or a rare path, that the schedule really took.
func (w *world) hit(what string) { w.hits[what]++ }

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		_, _ = fmt.Fprintf(w.trace, "%10.6f "+format+"\n", append([]any{w.now.Seconds()}, args...)...)
	}
}

// drawClock is a machine's clock: usual quartz, or anywhere within one percent.
func (w *world) drawClock() clock {
	off := 50e-6 * (2*w.rng.Float64() - 1)
	if w.offClocks {
		off = ledger.Rho * (2*w.rng.Float64() - 1)
		if w.chance(0.3) {
			off = ledger.Rho * float64(1-2*w.rng.IntN(2))
		}
		w.hit("clock_off")
	}
	return clock{rate: 1 + off, base: w.upTo(time.Hour) + time.Second}
}

// drawDomains makes a site with one or two racks; budgets come with the nodes.
func (w *world) drawDomains() {
	w.domains = []budget.Domain{{Name: "site/lab"}}
	for i := range 1 + w.rng.IntN(2) {
		w.domains = append(w.domains, budget.Domain{Name: fmt.Sprintf("rack/r%d", i+1), Parent: "site/lab"})
	}
	for i := range w.domains {
		if w.chance(0.4) {
			w.domains[i].Unmanaged = w.watts(0, 80)
		}
	}
}

// watts is a random power of whole eighths of a watt.
func (w *world) watts(lo, hi int64) units.Power {
	return units.Power(8*lo+w.rng.Int64N(8*(hi-lo)+1)) * budget.Quantum
}

func (w *world) newNode(i int) *node {
	n := &node{w: w, clock: w.drawClock(), below: make([]bool, len(w.domains))}
	name := fmt.Sprintf("n%02d", i+1)
	n.process = process{name: name, address: len(w.servers) + i}
	n.spec = ledger.Sighting{
		Node: name, MachineID: fmt.Sprintf("machine-%d", i+1), Weight: 1,
		Domain: w.domains[1+w.rng.IntN(len(w.domains)-1)].Name, Controlled: !w.chance(0.07),
	}
	n.spec.Rated, n.spec.Floor = w.watts(200, 300), w.watts(50, 80)
	n.configure()
	n.held, n.want = n.spec.Rated, n.spec.Rated
	n.demand = n.spec.Max
	for k, d := range w.domains {
		n.below[k] = d.Name == n.spec.Domain || d.Parent == ""
	}
	w.byName[name] = n
	return n
}

// configure draws what an operator may write into the node's configuration;
// rated watts and floor are physics and stay.
func (n *node) configure() {
	n.spec.FailSafe = n.spec.Floor + n.w.watts(0, 30)
	n.spec.Max = min(n.spec.Rated, n.spec.FailSafe+n.w.watts(20, 150))
	if n.w.chance(0.3) {
		n.spec.Weight = 0.5 + 2*n.w.rng.Float64()
	}
}

// drawBudgets gives every domain a budget between tight and ample.
func (w *world) drawBudgets() {
	for i := range w.domains {
		least, most := w.bounds(i)
		w.domains[i].Budget = least + units.Power(w.rng.Int64N(int64(most-least)))
		if w.ample {
			w.domains[i].Budget = 2 * most // room to release nodes, which are then charged rated
		}
	}
}

// bounds is what a domain needs at the least, and what it could use at the most.
func (w *world) bounds(domain int) (least, most units.Power) {
	for k, d := range w.domains {
		if k == domain || w.domains[domain].Parent == "" {
			least, most = least+d.Unmanaged, most+d.Unmanaged
		}
	}
	for _, n := range w.nodes {
		if !n.below[domain] {
			continue
		}
		if n.spec.Controlled {
			least, most = least+n.spec.FailSafe, most+n.spec.Max
		} else {
			least, most = least+n.spec.Rated, most+n.spec.Rated
		}
	}
	return least, most + 20*units.Watt
}

// wander changes what a node can use, now and then.
func (w *world) wander(n *node) {
	if w.now < w.calm && w.chance(w.restless) {
		n.demand = n.spec.Floor + units.Power(w.rng.Int64N(int64(n.spec.Max-n.spec.Floor)+1))
	}
}

// order is a change of a budget that an operator asks for, and asks for again
// under the same id until it is answered.
type order struct {
	id     string
	domain string
	budget units.Power
	force  bool
	check  bool
	leaver *node // set when it is this node's request to be released
	done   bool
	tries  int
}

const (
	orderPause = 3 * time.Second
	orderTries = 5
)

// operate lets the operator change a budget from time to time.
func (w *world) operate() {
	if w.now >= w.calm {
		return
	}
	w.orders++
	i := w.rng.IntN(len(w.domains))
	least, most := w.bounds(i)
	low := least * 4 / 5
	o := &order{
		id: fmt.Sprintf("order-%d", w.orders), domain: w.domains[i].Name,
		budget: max(units.Watt, low+units.Power(w.rng.Int64N(int64(most-low)))),
		force:  w.chance(0.3), check: w.chance(0.2),
	}
	if w.ample && w.chance(0.5) {
		o.budget = 2 * most
	}
	w.ask(o)
	w.add(w.about(w.busy)+100*time.Millisecond, w.operate)
}

// ask hands the order to a server that takes itself for the leader.
func (w *world) ask(o *order) {
	if o.done || o.tries >= orderTries {
		return
	}
	if o.tries++; o.tries > 1 {
		w.hit("order_repeated")
	}
	leads := slices.DeleteFunc(slices.Clone(w.servers), func(s *server) bool { return !s.up || s.lead == nil })
	if len(leads) > 0 {
		s := leads[w.rng.IntN(len(leads))]
		w.add(w.upTo(5*time.Millisecond), func() { w.enter(&s.process, func() { s.ordered(o) }) })
	}
	w.add(orderPause, func() { w.ask(o) })
}

func (s *server) ordered(o *order) {
	if s.lead != nil {
		s.lead.orders = append(s.lead.orders, o)
		s.lead.pump()
	}
}
