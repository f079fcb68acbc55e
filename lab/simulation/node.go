package simulation

import (
	"fmt"
	"time"

	"headroom/capping"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// Intervals of a node, as powerd has them.
const (
	stepEvery      = 250 * time.Millisecond
	heartbeatEvery = time.Second
	missesToShout  = 2
)

// clock is one machine's clock against true time.
type clock struct {
	rate   float64 // seconds of it per true second
	base   time.Duration
	booted time.Duration // true time of the boot
}

func (c clock) read(now time.Duration) time.Duration {
	return c.base + time.Duration(float64(now-c.booted)*c.rate)
}

// wait is how long d of this clock takes in true time.
func (c clock) wait(d time.Duration) time.Duration { return time.Duration(float64(d) / c.rate) }

// node is one machine with its powerd, its disk and its hardware.
type node struct {
	process
	w     *world
	spec  ledger.Sighting
	clock clock
	slept time.Duration // how long it was suspended since boot, on its own clock
	sleep time.Duration // when it fell asleep, own clock; 0 while awake
	hw    hardware

	disk   lease.Memory // what survives kill -9
	frozen time.Duration

	// Of the running powerd.
	pid         uint64
	holder      *lease.Holder
	sprint      capping.Sprint
	stamp       lease.Stamp   // newest that the sprint machine has seen
	sampled     time.Duration // CLOCK_BOOTTIME of the last sample; 0: none yet
	meter       units.Energy  // drawn until then
	sleptBefore time.Duration // how long it had been suspended by then
	number      uint64
	leader      int
	misses      int
	answered    bool
	storing     bool
	waiting     []waitingGrant
	asking      string        // the request for a release that waits for its answer
	last        ledger.Report // newest that was sent
	blind       int           // heartbeats to come in which it does not know what its hardware holds
	gossip      gossip

	// Of the judge.
	sent map[uint64]time.Duration // true time of each heartbeat of this process
}

type waitingGrant struct {
	from  *server
	grant lease.Grant
}

func (w *world) newNode(i int) *node {
	n := &node{w: w}
	n.process = process{name: fmt.Sprintf("n%02d", i+1), address: len(w.servers) + i, dice: w.dice("node", i)}
	r, racks := w.dice("machine", i), w.racks()
	n.clock = w.drawClock(r, -1)
	n.spec = ledger.Sighting{
		Node: n.name, MachineID: fmt.Sprintf("machine-%d", i+1), Weight: 1,
		Domain: racks[r.IntN(len(racks))], Controlled: !r.chance(0.07),
	}
	n.spec.Rated, n.spec.Floor = r.watts(200, 300), r.watts(50, 80)
	n.configure(r)
	n.hw.held, n.hw.want = n.spec.Rated, n.spec.Rated
	n.hw.load, n.hw.next = n.spec.Rated, n.spec.Rated
	w.byName[n.name] = n
	return n
}

// configure draws what an operator may write into the node's configuration;
// rated watts and floor are physics and stay.
func (n *node) configure(r dice) {
	n.spec.FailSafe = n.spec.Floor + r.watts(0, 30)
	n.spec.Max = min(n.spec.Rated, n.spec.FailSafe+r.watts(20, 150))
	weight, odd := 0.5+2*r.Float64(), r.chance(0.3)
	if odd {
		n.spec.Weight = weight
	}
}

// now is the node's two clocks.
func (n *node) now() lease.Instant {
	boot := n.clock.read(n.w.now)
	slept := n.slept
	if n.sleep > 0 {
		slept += boot - n.sleep
	}
	if n.w.bent.awake {
		return lease.Instant{Boot: boot - slept, Awake: boot - slept}
	}
	return lease.Instant{Boot: boot, Awake: boot - slept}
}

// boot starts powerd: it adopts what is on disk and writes the fail-safe cap it
// has stored, or the lowest that it can hold when it remembers nothing: a
// fail-safe cap that only its configuration knows is not committed yet.
func (n *node) boot() {
	n.w.start(&n.process)
	n.pid = n.dice.Uint64() | 1
	n.number, n.misses, n.answered, n.storing, n.waiting = 0, 0, true, false, nil
	n.leader, n.asking = n.dice.IntN(len(n.w.servers)), ""
	n.sent = map[uint64]time.Duration{}
	n.spec.Process = n.pid
	if n.w.bent.boot != nil {
		n.w.bent.boot(n)
	}
	n.holder = lease.New(n.pid, n.disk, n.now())
	if n.disk.FailSafe == 0 {
		n.disk = n.holder.SetFailSafe(n.spec.Floor)
	}
	n.sprint, n.stamp, n.sampled, n.meter = capping.Sprint{}, n.disk.Highest, 0, n.hw.drawn
	n.gossip = gossip{known: n.disk.Brake}
	n.w.tracef("%s starts, process %x, fail-safe %v", n.name, n.pid, n.disk.FailSafe)
	n.write(n.disk.FailSafe)
	n.step()
	n.w.timer(&n.process, n.dice.upTo(heartbeatEvery/4), n.beat)
	n.w.meet(&n.process)
}

// crash is kill -9 of powerd: hardware keeps what it holds.
func (n *node) crash() {
	n.w.kill(&n.process)
	n.w.tracef("%s killed holding %v", n.name, n.hw.held)
	if n.dice.chance(0.5) {
		n.hw.writing++ // a write on its way is lost
	}
}

// released carries out a committed release: the originals go back and powerd ends.
func (n *node) released(id string) {
	if n.asking != id {
		return
	}
	n.w.hit("originals_restored")
	n.w.tracef("%s released", n.name)
	n.w.kill(&n.process)
	n.lose()
	n.hw.booting = false
	n.w.revive(n, n.dice, n.dice.about(4*time.Second)+100*time.Millisecond)
}

// step is the node's inner loop: the time first, then the cap in force.
func (n *node) step() {
	n.turn()
	n.w.timer(&n.process, n.clock.wait(stepEvery), n.step)
}

// turn is one round of powerd's loop: sample, decide, write.
func (n *node) turn() {
	n.advance()
	cap, state := n.holder.Cap()
	elapsed, wall := n.sample()
	offer, _ := n.holder.Sprint()
	highest := n.holder.Memory().Highest
	want := n.sprint.Step(n.now().Boot, capping.SprintInput{
		Base: cap, Held: state == lease.Held, Newer: highest != n.stamp,
		Offer: capping.SprintOffer{ID: offer.ID, Cap: offer.Cap, Duration: offer.Duration, Escrow: offer.Escrow},
		Wall:  wall, Elapsed: elapsed, Effective: capping.Reading{Power: n.hw.held, Known: n.spec.Controlled && !n.deaf()},
		Stop: !n.spec.Controlled,
	}, capping.SprintConfig{Rated: n.spec.Rated})
	n.stamp = highest
	if most, ok := n.holder.Most(n.under()); ok {
		want = min(want, most)
	}
	n.w.judge.turned(n)
	if want != n.hw.want || n.hw.rival || n.hw.failed {
		n.write(want)
	}
	n.w.judge.turned(n)
}

// under is the id of the sprint under way, "" for none.
func (n *node) under() string {
	if s, under := n.sprint.Status(n.now().Boot); under && !s.Ending {
		return s.ID
	}
	return ""
}

// sample is the mean power since the sample before, on the node's own clock.
func (n *node) sample() (time.Duration, capping.Reading) {
	n.integrate()
	now := n.now().Boot
	elapsed, energy := now-n.sampled, n.hw.drawn-n.meter
	first := n.sampled == 0 || n.slept != n.sleptBefore // nobody can tell what a sample with a suspend in it means
	n.sleptBefore = n.slept
	n.sampled, n.meter, n.hw.load = now, n.hw.drawn, n.hw.next
	if first || elapsed <= 0 {
		return 0, capping.Reading{}
	}
	return elapsed, capping.Reading{Power: energy.Over(elapsed), Known: true}
}

// advance tells the holder the time.
func (n *node) advance() {
	_, before := n.holder.Cap()
	n.holder.Advance(n.now())
	p, state := n.holder.Cap()
	if before == lease.Held && state != lease.Held {
		n.w.hit(endMark(n.holder.Why()))
		n.w.tracef("%s to fail-safe %v: %v", n.name, p, n.holder.Why())
	}
	n.w.judge.lease(n)
}

// beat is the heartbeat of each second. After two without an answer it goes to
// every coordinator.
func (n *node) beat() {
	n.misses++
	if n.answered {
		n.misses = 0
	}
	n.answered = false
	n.wander()
	n.report()
	n.w.timer(&n.process, n.clock.wait(heartbeatEvery), n.beat)
}

func (n *node) turnAndReport() {
	n.turn()
	n.report()
}

// report sends a heartbeat: the stamp first, then what the hardware holds, so
// that no newer grant hides behind an older reading.
func (n *node) report() {
	n.number++
	m := n.holder.Memory()
	r := ledger.Report{
		Sighting: n.spec, Boot: n.clock.booted.String(), Number: n.number, Highest: m.Highest, Brake: n.disk.Brake,
		Effective: n.hw.held, EffectiveKnown: n.blind == 0 && !n.deaf(), Stored: n.disk.FailSafe,
	}
	if under, is := n.sprint.Status(n.now().Boot); is {
		r.Sprint = under.ID
	}
	for _, e := range n.sprint.Ended() {
		told := ledger.SprintSpent{ID: e.ID}
		if e.Measured {
			told.Spent = &e.Spent
		}
		r.Ended = append(r.Ended, told)
	}
	demand := n.hw.next
	r.Demand = &demand
	if bend := n.w.bent.report; bend != nil {
		bend(n, &r)
	}
	n.blind = max(0, n.blind-1)
	n.last = r
	n.sent[n.number] = n.w.now
	n.holder.Sent(n.number, n.now())
	for i, s := range n.w.servers {
		if i == n.leader || n.misses >= missesToShout {
			n.w.send(&n.process, &s.process, func() { s.report(n, r) })
		}
	}
}

// granted is a lease arriving.
func (n *node) granted(from *server, g lease.Grant) {
	n.leader, n.answered = from.id, true
	if n.asking != "" {
		// A lease taken now would prove to the leader that the node is back, while
		// the answer that lets it go may be on its way.
		n.w.hit("grant_while_leaving")
		return
	}
	if n.storing {
		n.lower(g)
		n.waiting = append(n.waiting, waitingGrant{from, g})
		return
	}
	if n.w.bent.receipt {
		n.holder.Sent(g.Heartbeat, n.now())
	}
	n.advance()
	taken := g
	if bend := n.w.bent.grant; bend != nil {
		bend(n, &taken)
	}
	m, err := n.holder.Consider(taken, n.now())
	if err != nil {
		n.w.hit(refusalMark(err))
		return
	}
	if m == n.disk {
		n.take(g, taken)
		return
	}
	n.store(m, func() {
		n.storing = false
		n.advance()
		n.take(g, taken)
		n.next()
	})
	n.lower(taken)
}

// lower carries out what a grant takes away before its memory is stored.
func (n *node) lower(g lease.Grant) {
	n.w.judge.arrives(n, g)
	if n.w.bent.patient || n.holder.Lower(g, n.now()) != nil {
		return
	}
	n.turn()
}

// wouldTake tells whether the node would take the grant, did it arrive now.
func (n *node) wouldTake(g lease.Grant) bool {
	_, err := n.holder.Consider(g, n.now())
	return err == nil
}

// store makes the memory durable, then goes on; a crash may fall in between. A
// brake that was stored meanwhile stays.
func (n *node) store(m lease.Memory, then func()) {
	n.storing = true
	n.w.timer(&n.process, n.syncDelay(), func() {
		m.Brake = max(m.Brake, n.disk.Brake)
		n.disk = m
		n.w.timer(&n.process, n.dice.upTo(time.Millisecond), then)
	})
}

// syncDelay is how long a write to the node's disk takes to be durable.
func (n *node) syncDelay() time.Duration {
	return n.w.syncDelay(n.dice) + max(0, n.frozen-n.w.now)
}

// next turns to the grants that came meanwhile.
func (n *node) next() {
	for len(n.waiting) > 0 && !n.storing {
		g := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.granted(g.from, g.grant)
	}
}

// take makes the grant the node's lease. as is the grant as the node read it,
// which differs from it only where a rule is broken on purpose.
func (n *node) take(g, as lease.Grant) {
	before := n.holder.Memory().Highest
	if err := n.holder.Take(as, n.now()); err != nil {
		n.w.hit(refusalMark(err))
		return
	}
	n.w.judge.took(n, g, before)
	p, _ := n.holder.Cap()
	if before != as.Stamp {
		n.w.tracef("%s took %v of %v", n.name, p, g.Stamp)
	}
	n.turn()
	if before != as.Stamp {
		n.report()
	}
}
