package simulation

import (
	"cmp"
	"errors"
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

	// Of the judge.
	sent map[uint64]time.Duration // true time of each heartbeat of this process
}

func (w *world) newNode(i int) *node {
	n := &node{w: w}
	n.process = process{name: fmt.Sprintf("n%02d", i+1), address: len(w.servers) + i, random: w.random("node", i)}
	r := w.random("machine", i)
	n.clock = w.drawClock(r, -1)
	n.spec = ledger.Sighting{
		Node: n.name, MachineID: fmt.Sprintf("machine-%d", i+1), Weight: 1,
		Domain: pick(r, w.racks), Controlled: !r.chance(0.07),
	}
	n.spec.Rated, n.spec.Floor = r.watts(200, 300), r.watts(50, 80)
	n.configure(r)
	n.hw.held, n.hw.want = n.spec.Rated, n.spec.Rated
	n.hw.load, n.hw.next = n.spec.Rated, n.spec.Rated
	n.braked = func(generation uint64) {
		w.tracef("%s is braked, generation %d", n.name, generation)
		n.carryOut(n.exchange.Brake(generation, n.now()))
	}
	w.byName[n.name] = n
	return n
}

// configure draws what an operator may write into the node's configuration; rated watts and floor are physics and stay.
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

// boot starts powerd: it adopts what is on disk and writes the fail-safe cap it has stored, or the lowest that it can hold when it remembers
// nothing: a fail-safe cap that only its configuration has is not committed yet.
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
	n.fallAsleep(false)
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
	n.w.happens("originals_restored", "%s released", n.name)
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
			n.w.judge.took(n, o.Grant, o.Before)
			if o.Before != o.Grant.Stamp {
				n.w.tracef("%s took %v of %v", n.name, o.Grant.Cap, o.Grant.Stamp)
			}
		case lease.Refused:
			for why, mark := range map[error]string{
				lease.ErrOtherProcess: "grant_for_other_process", lease.ErrStale: "grant_stale",
				lease.ErrRanOut: "grant_too_late", lease.ErrBraked: "grant_under_brake",
			} {
				if errors.Is(o.Err, why) {
					n.w.hit(mark)
				}
			}
		case lease.Lost:
			marks := map[lease.Ended]string{lease.Suspended: "lease_ended_by_suspend", lease.Braked: "lease_ended_by_brake"}
			n.w.hit(cmp.Or(marks[o.Why], "lease_ran_out"))
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
	n.leader = from.address
	if n.exchange.Leaving() {
		n.w.hit("grant_while_leaving")
	} else {
		n.advance()
		n.w.judge.arrives(n, g)
	}
	n.carryOut(n.exchange.Grant(g, n.now()))
}

// wouldTake reports whether the node would take the grant, did it arrive now.
func (n *node) wouldTake(g lease.Grant) bool { return n.exchange.Consider(g, n.now()) == nil }

// store makes the memory durable and confirms it later; a crash may fall in between.
func (n *node) store(m lease.Memory) {
	n.w.timer(&n.process, n.w.syncDelay(n.random)+max(0, n.frozen-n.w.now), func() {
		n.disk = m
		k := n.w.judge.of(n)
		k.stored = max(k.stored, m.Brake)
		n.w.timer(&n.process, n.random.upTo(time.Millisecond), func() { n.carryOut(n.exchange.Stored(nil, n.now())) })
	})
}

// hardware is what a node's machine is beneath powerd: the limit that it holds, what its work would draw, and the energy that it has drawn.
type hardware struct {
	held    units.Power  // the limit in force: what the node may draw now
	want    units.Power  // the limit last written
	load    units.Power  // what its work would draw without a limit
	next    units.Power  // load from the next sample on
	drawn   units.Energy // since the schedule began, true
	since   time.Duration
	writing uint64        // numbers the writes; a write of an earlier powerd is void
	booting bool          // rebooted, no limit verified since
	rival   bool          // another program has raised the limit since powerd wrote it
	raised  time.Duration // when that was
	failed  bool          // the newest write had no effect
	deaf    time.Duration // until when writes have no effect and nothing can be read
	stuck   time.Duration // until when no lower limit takes effect
	unbound bool          // the limit reads back and binds nothing
	off     bool          // no power
	cord    string        // the order that keeps it without power until it is answered
}

// draw is what the machine draws at this moment.
func (n *node) draw() units.Power {
	if n.hw.off || n.sleep > 0 {
		return 0
	}
	if n.hw.unbound {
		return n.spec.Rated
	}
	return min(n.hw.held, n.hw.load)
}

// integrate counts what was drawn until now. It comes before every change of what is drawn.
func (n *node) integrate() {
	d := n.w.now - n.hw.since
	n.hw.since = n.w.now
	if d <= 0 {
		return
	}
	n.hw.drawn += n.draw().For(d)
	n.w.judge.drew(n, n.draw(), d)
}

// write puts a limit into hardware. A higher one may be in force at once; a lower one is in force some time later.
func (n *node) write(p units.Power) {
	n.hw.want = p
	if !n.spec.Controlled {
		return
	}
	if n.hw.failed = n.deaf(); n.hw.failed {
		n.w.hit("write_failed")
		return
	}
	if p >= n.hw.held {
		n.settle(p)
		return
	}
	write := n.hw.writing
	n.w.add(n.writeDelay(), func() {
		if n.hw.writing == write && !n.hw.off {
			n.settle(max(n.hw.want, min(n.hw.held, p)))
		}
	})
}

// deaf reports whether the machine's controls fail now.
func (n *node) deaf() bool { return n.w.now < n.hw.deaf }

// settle is the moment at which the hardware holds p.
func (n *node) settle(p units.Power) {
	n.integrate()
	changed := p != n.hw.held
	n.hw.held = p
	if p <= n.hw.want {
		n.hw.booting, n.hw.rival = false, false
	}
	n.w.judge.moved = true
	n.w.judge.turned(n)
	if changed {
		n.w.tracef("%s holds %v", n.name, p)
		n.w.enter(&n.process, n.turn)
	}
}

// lose is the moment at which the machine forgets its limit: it draws whatever it can, until the next one is verified.
func (n *node) lose() {
	n.integrate()
	n.hw.writing++
	n.hw.held, n.hw.want, n.hw.booting = n.spec.Rated, n.spec.Rated, true
	n.w.judge.moved = true
	n.w.judge.turned(n)
}

// plug switches the machine's power.
func (n *node) plug(on bool) {
	n.integrate()
	n.hw.off, n.hw.held, n.hw.want = !on, 0, 0
	n.hw.writing++
	n.hw.booting, n.hw.rival = false, false
	n.slept, n.sleep = 0, 0
	n.w.judge.moved = true
	n.w.judge.turned(n)
	n.w.tracef("%s has power: %v", n.name, on)
	if on {
		n.lose()
		n.clock.base, n.clock.booted = time.Second, n.w.now
	}
}

// writeDelay is how long hardware takes to obey a lower limit, verified.
func (n *node) writeDelay() time.Duration {
	w, r := n.w, n.random
	d, late, stuck := 2*time.Millisecond+r.upTo(40*time.Millisecond), r.chance(w.slowWrite), r.chance(w.stuck)
	lateBy, stuckFor := r.upTo(1500*time.Millisecond), r.upTo(15*time.Second)
	if late {
		w.hit("limit_applied_late")
		d += lateBy
	}
	if stuck {
		w.hit("limit_stuck")
		d += stuckFor
	}
	return max(d, n.hw.stuck-w.now)
}

// watchdog lets what a domain with lost-charge fail-safe trusts in come true at the very last moment: the lease that has just been taken is
// over, and within the settle time the node has been brought to its fail-safe cap. One without a lease has been by the settle time after it
// stopped.
func (w *world) watchdog(n *node, k *charged) {
	if !w.on["lost-charge"] {
		return
	}
	leased := k.leased
	at := max(k.ends, w.now) + w.timing.Settle
	w.add(at-w.now, func() {
		if k.leased != leased || n.hw.off || n.hw.booting || !n.spec.Controlled {
			return
		}
		if low := max(n.disk.FailSafe, n.spec.Floor); n.hw.held > low {
			w.hit("watchdog_bit")
			n.hw.writing++
			n.hw.want = low
			n.settle(low)
		}
	})
}

// wander changes what a node's work would draw, now and then.
func (n *node) wander() {
	changes, part := n.random.chance(n.w.restless), n.random.Float64()
	if n.w.now < n.w.calm && changes {
		n.hw.next = n.spec.Floor + units.Power(part*float64(n.spec.Rated-n.spec.Floor))
	}
}
