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
	exchange    *lease.Node   // nil before the first start
	sampled     time.Duration // CLOCK_BOOTTIME of the last sample; 0: none yet
	meter       units.Energy  // drawn until then
	sleptBefore time.Duration // how long it had been suspended by then
	leader      int
	asking      string        // the request for a release that waits for its answer
	last        ledger.Report // newest that was sent
	blind       int           // heartbeats to come in which what its hardware holds is unknown
	gossip      gossip

	// Of the judge.
	sent map[uint64]time.Duration // true time of each heartbeat of this process
}

func (w *world) newNode(i int) *node {
	n := &node{w: w}
	n.process = process{name: fmt.Sprintf("n%02d", i+1), address: len(w.servers) + i, random: w.random("node", i)}
	r, racks := w.random("machine", i), w.racks()
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
func (n *node) configure(r random) {
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
	return lease.Instant{Boot: boot, Awake: boot - slept}
}

// boot starts powerd: it adopts what is on disk and writes the fail-safe cap it
// has stored, or the lowest that it can hold when it remembers nothing: a
// fail-safe cap that only its configuration has is not committed yet.
func (n *node) boot() {
	n.w.start(&n.process)
	n.pid = n.random.Uint64() | 1
	n.leader, n.asking = n.random.IntN(len(n.w.servers)), ""
	n.sent = map[uint64]time.Duration{}
	n.spec.Process = n.pid
	n.exchange = lease.NewNode(n.pid, n.disk, n.now())
	if n.disk.FailSafe == 0 {
		n.disk = n.exchange.SetFailSafe(n.spec.Floor)
	}
	n.sampled, n.meter, n.last = 0, n.hw.drawn, ledger.Report{}
	n.gossip = gossip{known: n.disk.Brake}
	n.w.tracef("%s starts, process %x, fail-safe %v", n.name, n.pid, n.disk.FailSafe)
	n.write(n.disk.FailSafe)
	n.step()
	n.w.timer(&n.process, n.random.upTo(heartbeatEvery/4), n.beat)
	n.w.meet(&n.process)
}

// crash is kill -9 of powerd: hardware keeps what it holds.
func (n *node) crash() {
	n.w.kill(&n.process)
	n.w.tracef("%s killed holding %v", n.name, n.hw.held)
	if n.random.chance(0.5) {
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
	n.w.revive(n, n.random, n.random.about(4*time.Second)+100*time.Millisecond)
}

// step is the node's inner loop: the time first, then the cap in force.
func (n *node) step() {
	n.turn()
	n.w.timer(&n.process, n.clock.wait(stepEvery), n.step)
}

// turn is one round of powerd's loop: sample, decide, write, read back.
func (n *node) turn() {
	n.advance()
	n.act()
}

func (n *node) act() {
	now := n.now()
	n.exchange.Strayed(n.excess())
	elapsed, wall := n.sample()
	want := n.exchange.Turn(now, lease.TurnInput{
		Wall: wall, Elapsed: elapsed, Fresh: elapsed, Effective: capping.Reading{Power: n.hw.held, Known: n.spec.Controlled && !n.deaf()},
		Stop: !n.spec.Controlled, Rated: n.spec.Rated,
	})
	n.w.judge.turned(n)
	if want != n.hw.want || n.hw.rival || n.hw.failed {
		n.write(want)
	}
	n.w.judge.turned(n)
	over, known := n.excess()
	low := n.hw.held <= want && !n.hw.failed
	n.carryOut(n.exchange.Wrote(lease.WriteResult{Excess: over, Known: known, Whole: low, Failed: !low}))
}

// excess is how much more than the cap in force the hardware holds, as read back.
func (n *node) excess() (units.Power, bool) {
	if n.blind > 0 || n.deaf() {
		return 0, false
	}
	return max(0, n.hw.held-n.hw.want), true
}

// sample is the mean power since the sample before, on the node's own clock.
func (n *node) sample() (time.Duration, capping.Reading) {
	n.integrate()
	now := n.now().Boot
	elapsed, energy := now-n.sampled, n.hw.drawn-n.meter
	first := n.sampled == 0 || n.slept != n.sleptBefore // a sample with a suspend in it has no meaning
	n.sleptBefore = n.slept
	n.sampled, n.meter, n.hw.load = now, n.hw.drawn, n.hw.next
	if first || elapsed <= 0 {
		return 0, capping.Reading{}
	}
	return elapsed, capping.Reading{Power: energy.Over(elapsed), Known: true}
}

// advance passes the time to the exchange.
func (n *node) advance() {
	n.carryOut(n.exchange.Advance(n.now()))
	n.w.judge.lease(n)
}

// carryOut executes the exchange's outputs, in their order.
func (n *node) carryOut(outputs []lease.Output) {
	for _, o := range outputs {
		switch o := o.(type) {
		case lease.Act:
			n.act()
		case lease.Store:
			n.store(o.Memory)
		case lease.Beat:
			n.report()
		case lease.Took:
			n.took(o)
		case lease.Refused:
			n.w.hit(refusalMark(o.Err))
		case lease.Lost:
			n.w.hit(endMark(o.Why))
			n.w.tracef("%s to fail-safe %v: %v", n.name, n.exchange.Memory().FailSafe, o.Why)
		}
	}
}

// beat is the heartbeat of each second.
func (n *node) beat() {
	n.wander()
	n.report()
	n.w.timer(&n.process, n.clock.wait(heartbeatEvery), n.beat)
}

// report sends a heartbeat, to the leader or to every server.
func (n *node) report() {
	over, known := n.excess()
	hb, outputs := n.exchange.NextBeat(n.now(), over, known)
	n.w.judge.lease(n)
	n.blind = max(0, n.blind-1)
	r := ledger.ReportOf(n.spec, hb)
	demand := n.hw.next
	r.Boot, r.Demand = n.clock.booted.String(), &demand
	n.last = r
	n.sent[hb.Number] = n.w.now
	for i, s := range n.w.servers {
		if i == n.leader || hb.All {
			n.w.send(&n.process, &s.process, func() { s.report(n, r) })
		}
	}
	n.carryOut(outputs)
}

// granted is a lease arriving.
func (n *node) granted(from *server, g lease.Grant) {
	n.leader = from.id
	if n.exchange.Leaving() {
		n.w.hit("grant_while_leaving")
	} else {
		n.advance()
		n.w.judge.arrives(n, g)
	}
	n.carryOut(n.exchange.Grant(g, n.now()))
}

// waits is the leader's message that the node is granted no lease yet.
func (n *node) waits(from *server, lifted uint64) {
	n.leader = from.id
	n.exchange.Waits(lifted)
}

// wouldTake reports whether the node would take the grant, did it arrive now.
func (n *node) wouldTake(g lease.Grant) bool { return n.exchange.Consider(g, n.now()) == nil }

// store makes the memory durable and confirms it later; a crash may fall in between.
func (n *node) store(m lease.Memory) {
	n.w.timer(&n.process, n.syncDelay(), func() {
		n.disk = m
		n.w.judge.stored(n)
		n.w.timer(&n.process, n.random.upTo(time.Millisecond), func() { n.carryOut(n.exchange.Stored(nil, n.now())) })
	})
}

// syncDelay is how long a write to the node's disk takes to be durable.
func (n *node) syncDelay() time.Duration {
	return n.w.syncDelay(n.random) + max(0, n.frozen-n.w.now)
}

// took judges a lease that has been taken.
func (n *node) took(o lease.Took) {
	n.w.judge.took(n, o.Grant, o.Before)
	if o.Before != o.Grant.Stamp {
		n.w.tracef("%s took %v of %v", n.name, o.Grant.Cap, o.Grant.Stamp)
	}
}
