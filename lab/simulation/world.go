package simulation

import (
	"fmt"
	"io"
	"maps"
	"math"
	"time"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

// calmSpan is how long a schedule runs without faults at its end: an election, a lease and some ticks.
const calmSpan = 20 * time.Second

// world is everything of one schedule.
type world struct {
	loop
	schedule  Schedule
	on        map[string]bool // classes of this schedule
	end       time.Duration
	calm      time.Duration // when faults stop; end when they do not
	timing    ledger.Timing
	domains   []ledger.Domain // as the cluster is founded
	racks     []string        // the domains that nodes stand in
	servers   []*server
	nodes     []*node
	byName    map[string]*node
	processes []*process // by address: of the servers, then of the nodes
	net       *network
	judge     *judge
	history   *history // nil when nothing is recorded
	hits      map[string]int
	happened  []string // occurrences, as they came
	moment    uint64
	trace     io.Writer
	orders    int
	named     map[string]*order // by id

	group     int                 // counts the times the servers were begun again
	drops     []*ledger.DropTasks // all that were requested
	restoring bool                // the quorum is lost and not recovered yet
	saves     []saved             // snapshots that operators have put aside
	braked    uint64              // highest brake generation that was set
	chained   time.Duration       // until when a chain of faults goes on that another would spoil
	dark      bool                // the site has been dark
	echoes    []echoed            // heartbeats that are long on their way
	longest   time.Duration       // lease that may ever have been granted

	// Drawn once for the schedule.
	slowDisk   float64       // share of slow writes to disk
	slowWrite  float64       // share of limits that hardware applies late
	stuck      float64       // share of limits that hardware refuses to lower for seconds
	restless   float64       // share of heartbeats with a new demand
	ample      bool          // budgets begin with room for all
	adverse    bool          // the clocks of nodes are slow and those of servers fast
	conviction time.Duration // how long a leader believes without a majority
	wall       time.Time     // true wall clock at the start
}

// saved is a snapshot in an operator's hands.
type saved struct {
	group int
	data  []byte
	pots  map[potKey]pot // what was left for sprints by then, in the judge's view; nil if that is not known
}

// save puts a snapshot of a server aside, and is it.
func (w *world) save(s *server) saved {
	x := saved{group: w.group, data: w.judge.snapshot(s.state)}
	if s.applied == len(w.judge.log)-1 {
		x.pots = maps.Clone(w.judge.sprints.pots)
	}
	w.saves = append(w.saves, x)
	return x
}

func newWorld(s Schedule, trace io.Writer) *world {
	w := &world{
		schedule: s, end: s.span(), timing: ledger.DefaultTiming(),
		byName: map[string]*node{}, named: map[string]*order{}, hits: map[string]int{}, trace: trace,
	}
	w.drawSwarm()
	if w.on["site-dark"] {
		w.end += afterDark
	}
	if w.calm = w.end; w.end >= 2*calmSpan {
		w.calm = w.end - calmSpan
	}
	r := w.random("world", 0)
	w.drawFaults(r)
	w.drawDomains(w.random("domains", 0))
	for id := range 3 + 2*r.IntN(2) {
		w.servers = append(w.servers, w.newServer(id))
		w.processes = append(w.processes, &w.servers[id].process)
	}
	for i := range 3 + r.IntN(3) {
		w.nodes = append(w.nodes, w.newNode(i))
		w.processes = append(w.processes, &w.nodes[i].process)
	}
	w.drawBudgets(w.random("budgets", 0))
	w.drawLeases(w.random("leases", 0))
	w.drawNetwork()
	w.judge = newJudge(w)
	return w
}

// random returns a stream of random numbers of this schedule.
func (w *world) random(name string, i int) random { return newRandom(w.schedule.Seed, name, i) }

// drawFaults draws the properties that hold for the whole schedule.
func (w *world) drawFaults(r random) {
	w.slowDisk, w.slowWrite = w.when("slow-disk", 0.3*r.Float64()), w.when("slow-limit", 0.5*r.Float64())
	w.stuck, w.restless = w.when("stuck-limit", 0.3*r.Float64()), w.when("restless", 0.5*r.Float64())
	w.ample, w.adverse = r.chance(0.3), r.chance(0.5)
	if r.chance(0.5) && w.on["sprint"] || w.on["debt"] || w.on["sprinter-off"] { // which need room
		w.ample = true
	}
	w.ample = w.ample && !w.on["stranger"] // who must find room that is taken
	w.conviction = r.between(600*time.Millisecond, 5*time.Second)
	w.wall = time.Date(2031, 3, 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
	w.timing.Settle = r.between(3*time.Second, 8*time.Second)
	fast, hard := r.chance(0.4), r.chance(0.7) && w.on["lost-charge"] // which is about fractions of a second
	w.adverse = w.adverse || hard
	if fast || hard {
		w.timing.Tick = 250 * time.Millisecond
	}
}

func (w *world) nodeNamed(name string) *node { return w.byName[name] }

// happening numbers the things that happen, to show which came first.
func (w *world) happening() uint64 {
	w.moment++
	return w.moment
}

// hit counts a fault, or a rare path, that the schedule really took.
func (w *world) hit(what string) { w.hits[what]++ }

// happens counts and traces it.
func (w *world) happens(what, format string, args ...any) {
	w.hit(what)
	w.tracef(format, args...)
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		_, _ = fmt.Fprintf(w.trace, "%10.6f "+format+"\n", append([]any{w.now.Seconds()}, args...)...)
	}
}

// drawClock is a machine's clock: usual quartz, or anywhere within one percent. Where clocks are adverse, all of one kind err the same way.
func (w *world) drawClock(r random, adverse float64) clock {
	off, worst, edge := 50e-6*(2*r.Float64()-1), 2*r.Float64()-1, r.chance(0.3)
	if w.on["clock-rate"] {
		w.hit("clock_off")
		off = rho * worst
		switch {
		case w.adverse:
			off = rho * adverse
		case edge:
			off = math.Copysign(rho, worst)
		}
	}
	return clock{rate: 1 + off, base: r.upTo(time.Hour) + time.Second}
}

// drawDomains makes a site with one or two racks, at times below feeders. Budgets come with the nodes.
func (w *world) drawDomains(r random) {
	add := func(name, above string) {
		w.domains = append(w.domains, ledger.Domain{Domain: budget.Domain{Name: name, Parent: above}})
	}
	above := "site/lab"
	add(above, "")
	if r.chance(0.3) {
		add("feeder/f1", above)
		above = "feeder/f1"
	}
	for i := range 1 + r.IntN(2) {
		rack := fmt.Sprintf("rack/r%d", i+1)
		w.racks = append(w.racks, rack)
		add(rack, above)
	}
	for i := range w.domains {
		unmanaged, some, boot := r.watts(0, 80), r.chance(0.4), 1+r.IntN(2)
		if some {
			w.domains[i].Unmanaged = unmanaged
		}
		if w.on["boot-reserve"] && r.chance(0.6) {
			w.domains[i].BootNodes = boot
		}
	}
	if w.on["lost-charge"] {
		w.domains[0].LostCharge = ledger.LostFailSafe
	}
}

// drawLeases gives every server a length of leases of its own, of which the first leader's becomes the committed one.
func (w *world) drawLeases(r random) {
	w.longest = leaseLength
	for _, s := range w.servers {
		s.length = w.timing.Lease
		if length := r.between(ledger.LeaseLeast, 14*time.Second); w.on["lease-length"] {
			s.length, w.longest = length, max(w.longest, length)
		}
	}
}

// watts is a random power of whole eighths of a watt.
func (r random) watts(lo, hi int64) units.Power {
	return units.Power(8*lo+r.Int64N(8*(hi-lo)+1)) * budget.Quantum
}

// drawBudgets gives every domain a budget between tight and ample.
func (w *world) drawBudgets(r random) {
	for i := range w.domains {
		least, most := w.bounds(w.domains[i].Name)
		w.domains[i].Budget = least + units.Power(r.Int64N(int64(most-least)))
		if w.ample {
			w.domains[i].Budget = 2 * most // room to release nodes, which are then charged rated
		}
	}
}

// bounds is what a domain needs at the least, and what it could use at the most, as founded.
func (w *world) bounds(domain string) (least, most units.Power) {
	inside := map[string]bool{domain: true}
	for _, d := range w.domains { // parents come first
		inside[d.Name] = inside[d.Name] || inside[d.Parent]
		if inside[d.Name] {
			least, most = least+d.Unmanaged, most+d.Unmanaged
		}
		if d.Name == domain { // its boot reserve
			least, most = least+units.Power(d.BootNodes)*200*units.Watt, most+units.Power(d.BootNodes)*200*units.Watt
		}
	}
	for _, n := range w.nodes {
		switch {
		case !inside[n.spec.Domain]:
		case n.spec.Controlled:
			least, most = least+n.spec.FailSafe, most+n.spec.Max
		default:
			least, most = least+n.spec.Rated, most+n.spec.Rated
		}
	}
	return least, most + 20*units.Watt
}

// maxEvents bounds the events of one schedule, several hundred times what one of a minute has.
const maxEvents = 10_000_000

// run runs the world until its end, or until the judge has seen enough.
func (w *world) run() {
	w.tracef("seed %d: %d servers, %d nodes, %d domains", w.schedule.Seed, len(w.servers), len(w.nodes), len(w.domains))
	for _, s := range w.servers {
		s.boot()
	}
	for i, n := range w.nodes {
		w.add(w.random("start", i).upTo(3*time.Second), func() {
			if n.life == 0 && !(w.on["stranger"] && i == len(w.nodes)-1) { // which comes late
				n.boot()
			}
		})
	}
	w.disrupt()
	for w.next(w.end) {
		w.judge.look()
		if w.judge.ended() {
			return
		}
		if w.ran > maxEvents {
			w.judge.broken("ledger", "more than %d events by %v: endless loop", maxEvents, w.now)
			return
		}
	}
	if w.calm < w.end {
		w.judge.settled()
	}
}
