package simulation

import (
	"time"

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

	disk lease.Memory // what survives kill -9

	// Of the running powerd.
	pid      uint64
	holder   *lease.Holder
	number   uint64
	leader   int
	misses   int
	answered bool
	storing  bool
	waiting  []waitingGrant
	demand   units.Power
	asking   string // the request for a release that waits for its answer
	blind    int    // heartbeats to come in which it does not know what its hardware holds

	// Of the hardware.
	held    units.Power // the limit in force: what the node may draw now
	want    units.Power // the limit last written
	writing uint64      // numbers the writes; a write of an earlier powerd is void
	booting bool        // rebooted, no limit verified since

	// Of the judge.
	below   []bool                   // by domain: the node draws from it
	sent    map[uint64]time.Duration // true time of each heartbeat of this process
	leased  time.Duration            // true time of the heartbeat that the lease answers
	resumed time.Duration            // true time at which the process ran on after a pause
}

type waitingGrant struct {
	from  *server
	grant lease.Grant
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
// fail-safe cap that only its configuration knows is not committed yet.
func (n *node) boot() {
	n.w.start(&n.process)
	n.pid = n.w.rng.Uint64() | 1
	n.number, n.misses, n.answered, n.storing, n.waiting = 0, 0, true, false, nil
	n.leader, n.asking = n.w.rng.IntN(len(n.w.servers)), ""
	n.sent = map[uint64]time.Duration{}
	n.spec.Process = n.pid
	n.holder = lease.New(n.pid, n.disk, n.now())
	if n.disk.FailSafe == 0 {
		n.disk = n.holder.SetFailSafe(n.spec.Floor)
	}
	n.w.tracef("%s starts, process %x, fail-safe %v", n.name, n.pid, n.disk.FailSafe)
	n.write(n.disk.FailSafe)
	n.step()
	n.w.timer(&n.process, n.w.upTo(heartbeatEvery/4), n.beat)
}

// crash is kill -9 of powerd: hardware keeps what it holds.
func (n *node) crash() {
	n.w.kill(&n.process)
	n.w.tracef("%s killed holding %v", n.name, n.held)
	if n.w.chance(0.5) {
		n.writing++ // a write on its way is lost
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
	n.writing++
	n.held, n.want = n.spec.Rated, n.spec.Rated
	n.w.revive(n, n.w.about(4*time.Second)+100*time.Millisecond)
}

// step is the node's inner loop: the time first, then the cap in force.
func (n *node) step() {
	n.advance()
	n.w.timer(&n.process, n.clock.wait(stepEvery), n.step)
}

func (n *node) advance() {
	_, before := n.holder.Cap()
	n.holder.Advance(n.now())
	p, state := n.holder.Cap()
	if before == lease.Held && state != lease.Held {
		n.w.hit(endMark(n.holder.Why()))
		n.w.tracef("%s to fail-safe %v: %v", n.name, p, n.holder.Why())
	}
	n.w.judge.lease(n)
	if p != n.want {
		n.write(p)
	}
}

// write puts a limit into hardware. A higher one may be in force at once; a
// lower one is in force some time later.
func (n *node) write(p units.Power) {
	n.want = p
	if !n.spec.Controlled {
		return
	}
	if p >= n.held {
		n.settle(p)
		return
	}
	write := n.writing
	n.w.add(n.w.writeDelay(), func() {
		if n.writing == write {
			n.settle(max(n.want, min(n.held, p)))
		}
	})
}

// settle is the moment at which the hardware holds p.
func (n *node) settle(p units.Power) {
	changed := p != n.held
	n.held = p
	if p <= n.want {
		n.booting = false
	}
	if changed {
		n.w.tracef("%s holds %v", n.name, p)
		n.w.enter(&n.process, n.report)
	}
}

// beat is the heartbeat of each second. After two without an answer it goes to
// every coordinator.
func (n *node) beat() {
	n.misses++
	if n.answered {
		n.misses = 0
	}
	n.answered = false
	n.w.wander(n)
	n.report()
	n.w.timer(&n.process, n.clock.wait(heartbeatEvery), n.beat)
}

// report sends a heartbeat: the stamp first, then what the hardware holds, so
// that no newer grant hides behind an older reading.
func (n *node) report() {
	n.number++
	m := n.holder.Memory()
	r := ledger.Report{
		Sighting: n.spec, Number: n.number, Highest: m.Highest,
		Effective: n.held, EffectiveKnown: n.blind == 0, Stored: n.disk.FailSafe,
	}
	demand := n.demand
	r.Demand = &demand
	if bend := n.w.bent.report; bend != nil {
		bend(n, &r)
	}
	n.blind = max(0, n.blind-1)
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
		n.waiting = append(n.waiting, waitingGrant{from, g})
		return
	}
	if n.w.bent.receipt {
		n.holder.Sent(g.Heartbeat, n.now())
	}
	n.advance()
	m, err := n.holder.Consider(g, n.now())
	if err != nil {
		n.w.hit(refusalMark(err))
		return
	}
	if m == n.disk {
		n.take(g)
		return
	}
	n.store(m, g)
}

// store makes the memory durable, then takes the grant; a crash may fall in between.
func (n *node) store(m lease.Memory, g lease.Grant) {
	n.storing = true
	n.w.timer(&n.process, n.w.syncDelay(), func() {
		n.disk = m
		n.w.timer(&n.process, n.w.upTo(time.Millisecond), func() {
			n.storing = false
			n.advance()
			n.take(g)
			n.next()
		})
	})
}

// next turns to the grants that came meanwhile.
func (n *node) next() {
	for len(n.waiting) > 0 && !n.storing {
		g := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.granted(g.from, g.grant)
	}
}

func (n *node) take(g lease.Grant) {
	before := n.holder.Memory().Highest
	if err := n.holder.Take(g, n.now()); err != nil {
		n.w.hit(refusalMark(err))
		return
	}
	n.w.judge.took(n, g, before)
	p, _ := n.holder.Cap()
	if before != g.Stamp {
		n.w.tracef("%s took %v of %v", n.name, p, g.Stamp)
	}
	if p != n.want {
		n.write(p)
	}
	if before != g.Stamp {
		n.report()
	}
}

// writeDelay is how long hardware takes to obey a lower limit, verified.
func (w *world) writeDelay() time.Duration {
	d := 2*time.Millisecond + w.upTo(40*time.Millisecond)
	if w.chance(w.slowWrite) {
		w.hit("limit_applied_late")
		d += w.upTo(1500 * time.Millisecond)
	}
	if w.chance(w.stuck) {
		w.hit("limit_stuck")
		d += w.upTo(15 * time.Second)
	}
	return d
}
