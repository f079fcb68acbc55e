package simulation

import (
	"time"

	"headroom/units"
)

// hardware is what a node's machine is beneath powerd: the limit that it holds,
// what its work would draw, and the energy that it has drawn.
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

// integrate counts what was drawn until now. It comes before every change of
// what is drawn.
func (n *node) integrate() {
	d := n.w.now - n.hw.since
	n.hw.since = n.w.now
	if d <= 0 {
		return
	}
	n.hw.drawn += n.draw().For(d)
	n.w.judge.drew(n, n.draw(), d)
}

// write puts a limit into hardware. A higher one may be in force at once; a
// lower one is in force some time later.
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

// lose is the moment at which the machine forgets its limit: it draws whatever
// it can, until the next one is verified.
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

// watchdog lets what a domain with lost-charge fail-safe trusts in come true at
// the very last moment: the lease that has just been taken is over, and within
// the settle time the node has been brought to its fail-safe cap. One without a lease has
// been by the settle time after it stopped.
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
