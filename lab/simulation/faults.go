package simulation

import (
	"fmt"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

// mend ends all faults: what is down starts, what is stopped runs on. From here on operators only clear up.
func (w *world) mend() {
	w.tracef("calm")
	w.heal()
	n := w.net
	n.whole = w.now
	n.loss, n.double, n.reorder, n.spiky, w.slowDisk, w.slowWrite, w.stuck, w.restless = 0, 0, 0, 0, 0, 0, 0, 0
	for _, s := range w.servers {
		s.frozen = 0
		switch {
		case w.restoring, s.gone: // it begins again in a moment
		case !s.up:
			s.boot()
		case s.paused:
			w.resume(&s.process)
		}
	}
	for _, n := range w.nodes {
		n.frozen = 0
		switch {
		case n.hw.cord != "":
		case n.hw.off:
			n.plug(true)
			n.boot()
		case !n.up:
			n.boot()
		case n.paused:
			n.wake()
		}
	}
	w.liftWhile()
}

// killSomebody is kill -9 of a server or of a powerd, which is started again soon.
func (w *world) killSomebody(r random) {
	if r.chance(0.5) {
		w.killServer(r)
		return
	}
	n := pick(r, w.nodes)
	for _, braked := range w.nodes {
		if r.chance(0.6) && braked.up && braked.disk.Brake > w.judge.state.Brake.Lifted {
			n = braked // what it has stored must outlive it
		}
	}
	if !n.up {
		return
	}
	w.hit("node_killed")
	n.crash()
	w.revive(n, r, 20*time.Millisecond+r.about(2*time.Second))
}

func (w *world) killServer(r random) {
	s := pick(r, w.servers)
	for _, busy := range w.servers {
		if r.chance(0.5) && busy.up && len(busy.log)-1 > busy.durable {
			s = busy // in the middle of a write is the worst moment
		}
	}
	if !s.up {
		return
	}
	w.hit("server_killed")
	s.crash()
	w.restart(s, 100*time.Millisecond+r.about(2*time.Second))
}

// restart starts a dead server's process after d.
func (w *world) restart(s *server, d time.Duration) { w.unchanged(&s.process, d, s.boot) }

// revive starts a node's dead powerd after d, perhaps with another configuration or without its state directory.
func (w *world) revive(n *node, r random, d time.Duration) {
	other, lost, blind := r.chance(0.2), r.chance(0.3), r.IntN(3)
	if other && w.on["reconfigure"] {
		w.hit("configuration_changed")
		n.configure(r)
		if r.chance(0.15) && !w.on["lost-charge"] { // which trusts that powerd goes on holding caps
			w.hit("control_changed")
			n.spec.Controlled = !n.spec.Controlled
		}
	}
	if lost && w.on["state-lost"] {
		n.loseState()
	}
	n.blind = blind
	w.unchanged(&n.process, d, func() {
		if !n.hw.off {
			n.boot()
		}
	})
}

// loseState empties the state directory of a node's powerd.
func (n *node) loseState() {
	n.w.hit("state_lost")
	n.disk = lease.Memory{}
	k := n.w.judge.of(n)
	k.stored, k.forgot = 0, true
}

// pauseSomebody stops a server or a powerd for a while (SIGSTOP).
func (w *world) pauseSomebody(r random) {
	if n := pick(r, w.nodes); r.chance(0.5) {
		if n.up && !n.paused {
			w.hit("node_paused")
			w.halt(&n.process, r.between(100*time.Millisecond, 14*time.Second), "is stopped", n.wake)
		}
		return
	}
	s := pick(r, w.servers)
	for _, leads := range w.servers {
		if leads.lead != nil && r.chance(0.5) {
			s = leads
		}
	}
	if !s.up || s.paused {
		return
	}
	w.hit("server_paused")
	w.halt(&s.process, r.between(100*time.Millisecond, 12*time.Second), "stands still", func() { w.resume(&s.process) })
}

func (w *world) suspendNode(r random, n *node) {
	if !n.up || n.paused {
		return
	}
	w.hit("node_suspended")
	n.fallAsleep(true)
	w.halt(&n.process, 50*time.Millisecond+r.about(3*time.Second), "is suspended", n.wake)
}

// halt stops a process for d.
func (w *world) halt(p *process, d time.Duration, what string, wake func()) {
	p.paused = true
	w.tracef("%s %s for %v", p.name, what, d)
	w.unchanged(p, d, func() {
		if p.paused {
			wake()
		}
	})
}

// fallAsleep marks the moment from which CLOCK_MONOTONIC stands still.
func (n *node) fallAsleep(yes bool) {
	n.integrate()
	now := n.clock.read(n.w.now)
	if n.sleep > 0 {
		n.slept += now - n.sleep
		n.sleep = 0
	}
	if yes {
		n.sleep = now
	}
}

func (n *node) wake() {
	n.fallAsleep(false)
	n.w.resume(&n.process)
}

// rebootNode loses the limits until powerd writes the first one.
func (w *world) rebootNode(r random, n *node) {
	if n.hw.off {
		return
	}
	w.hit("node_rebooted")
	if n.up {
		n.crash()
	}
	w.kill(&n.process)
	n.fallAsleep(false)
	n.slept = 0
	n.clock.base, n.clock.booted = time.Second, w.now
	n.lose()
	w.revive(n, r, r.between(2*time.Second, 15*time.Second))
}

// loseNode takes a node out of sight for long: its links are cut, or its powerd is dead, or stands still.
func (w *world) loseNode(r random, n *node) {
	d := r.between(8*time.Second, 30*time.Second)
	kind, oneWay := r.IntN(3), r.IntN(3)
	w.happens("node_lost", "%s is lost for %v", n.name, d)
	switch {
	case kind == 0 && n.up:
		n.crash()
		w.unattended(n)
		w.revive(n, r, d)
	case kind == 1 && n.up && !n.paused:
		w.unattended(n)
		w.halt(&n.process, d, "is stopped", n.wake)
		fallthrough
	default:
		w.sever(d, func(from, to int) bool {
			return from == n.address && oneWay != 1 || to == n.address && oneWay != 2
		})
	}
}

// unattended starts the watchdog of a node that stops without a lease: its hardware would not be lowered yet.
func (w *world) unattended(n *node) {
	if k := w.judge.of(n); k.ends <= w.now {
		w.watchdog(n, k)
	}
}

// wedgeNodes stops powerds until their domain, with lost-charge fail-safe, charges them for no more than that.
func (w *world) wedgeNodes(r random) {
	d := max(w.timing.Lease, w.seen().LongestLease()) + w.timing.Settle + r.between(2*time.Second, 4*time.Second)
	for _, n := range w.nodes {
		if r.chance(0.6) && n.up && !n.paused && n.hw.held > n.disk.FailSafe {
			w.hit("node_wedged")
			w.unattended(n)
			w.halt(&n.process, d, "is wedged", n.wake)
		}
	}
}

// powerNodeOff turns a node off. An operator who marks it as off gives it power again only once that was answered.
func (w *world) powerNodeOff(r random, n *node) {
	if !n.hw.off {
		w.powerOff(n, r, false)
	}
}

// powerOff takes a node's power; where it is surely seen an operator reports it as soon as the node counts as silent.
func (w *world) powerOff(n *node, r random, surely bool) {
	w.hit("node_powered_off")
	w.kill(&n.process)
	n.plug(false)
	back := r.between(8*time.Second, 25*time.Second)
	if seen, removes := r.chance(0.7), r.chance(0.3); seen || surely {
		o := &order{what: "power-off", make: leader.PowerOff(n.spec.Node, "bmc")}
		if removes {
			o.make = leader.Remove(n.spec.Node, true)
		}
		later := r.between(0, 4*time.Second)
		if surely {
			later = 700 * time.Millisecond
		}
		w.unchanged(&n.process, w.timing.Lost+later, func() {
			if n.hw.off {
				o.after = func(error) { n.hw.cord = "" }
				w.ask(o)
				n.hw.cord = o.id
			}
		})
	}
	w.unchanged(&n.process, back, func() {
		if n.hw.off && n.hw.cord == "" {
			n.plug(true)
			w.revive(n, r, r.between(time.Second, 5*time.Second))
		}
	})
}

// overwriteLimit is another program that raises the node's limit; powerd finds it at its next turn.
func (w *world) overwriteLimit(r random, n *node) {
	if n.capped() && n.hw.held < n.spec.Rated {
		w.raiseLimit(n, n.hw.held+units.Power(r.Float64()*float64(n.spec.Rated-n.hw.held)))
	}
}

// capped reports whether the machine runs under a limit.
func (n *node) capped() bool { return !n.hw.off && !n.hw.booting && n.spec.Controlled }

// raiseLimit lets another program raise a node's limit.
func (w *world) raiseLimit(n *node, to units.Power) {
	if n.hw.off || n.hw.booting || to <= n.hw.held {
		return
	}
	w.hit("limit_overwritten")
	n.integrate()
	n.hw.held, n.hw.rival, n.hw.raised = to, true, w.now
	w.judge.of(n).told = false
	n.hw.writing++
	w.judge.moved = true
	w.tracef("%s: somebody raises its limit to %v", n.name, n.hw.held)
}

// twinBoot is the boot of every second machine.
const twinBoot = "twin"

// doubleIdentity is a second machine that has the node's identity for a while: a disk that was cloned. It takes no lease, and its word must
// lower no charge. (A node that was never given a lease has nothing to prove itself with: of two such machines either may be the one that is
// charged.)
func (w *world) doubleIdentity(r random, n *node) {
	x, until := n.spec, min(w.calm, w.now+r.between(2*time.Second, 12*time.Second))
	x.Process = r.Uint64() | 1
	leased := func() bool { known := w.seen().Nodes[x.Node]; return known.Admitted && known.Off == "" }
	if !leased() {
		return
	}
	w.happens("identity_doubled", "a second machine says that it is %s, process %x", n.name, x.Process)
	twin := lease.NewNode(x.Process, lease.Memory{FailSafe: x.Floor}, n.now())
	var beat func()
	beat = func() {
		hb, _ := twin.NextBeat(n.now(), 0, true)
		told := ledger.ReportOf(x, hb)
		told.Boot = twinBoot
		for _, s := range w.servers {
			w.send(&n.process, &s.process, func() {
				if leased() {
					s.report(n, told)
				}
			})
		}
		if w.now+heartbeatEvery < until && leased() {
			w.add(heartbeatEvery, beat)
		}
	}
	beat()
}

// freezeDisk lets a machine's disk stand still for a while.
func (w *world) freezeDisk(r random) {
	d := r.between(500*time.Millisecond, 8*time.Second)
	if r.chance(0.3) {
		w.hit("node_disk_frozen")
		pick(r, w.nodes).frozen = w.now + d
		return
	}
	s := pick(r, w.servers)
	w.happens("server_disk_frozen", "the disk of %s stands still for %v", s.name, d)
	s.frozen = w.now + d
}

// releaseNode is an operator who stops a powerd: it puts the originals back once the leader's consent is committed.
func (w *world) releaseNode(r random, n *node) {
	if !n.up || n.paused || !n.spec.Controlled || n.asking != "" {
		return
	}
	w.hit("release_asked")
	o := &order{what: "release", actor: n.name, id: w.orderID("release"), leaver: n, group: w.group}
	n.asking = o.id
	w.named[o.id] = o
	n.exchange.Leave()
	w.timer(&n.process, 5*time.Second, func() {
		if n.asking == o.id {
			n.asking = "" // the outcome stays unknown: nothing is put back
			n.exchange.Stay()
		}
	})
	o.set = func(c *ledger.Command) { c.Release = &ledger.Release{Node: n.spec.Node, MachineID: n.spec.MachineID} }
	s := w.servers[n.leader]
	w.send(&n.process, &s.process, func() { s.ordered(o) })
}

// cutOneWay lets nothing pass from one machine to another.
func (w *world) cutOneWay(r random) {
	n := len(w.net.cuts)
	from, to := r.IntN(n), r.IntN(n)
	w.happens("link_cut_one_way", "nothing passes from %d to %d", from, to)
	w.sever(r.between(500*time.Millisecond, 15*time.Second), func(a, b int) bool { return a == from && b == to })
}

// partition splits all machines into two groups; at times only one way.
func (w *world) partition(r random) {
	side := make([]bool, len(w.net.cuts))
	for i := range side {
		side[i] = r.chance(0.5)
	}
	w.hit("partition")
	w.split(side, r)
}

// isolateLeader isolates the leader from some or all of the others.
func (w *world) isolateLeader(r random) {
	for _, s := range w.servers {
		if s.up && s.role == leading {
			side := make([]bool, len(w.net.cuts))
			side[s.address] = true
			for _, n := range w.nodes {
				side[n.address] = r.chance(0.5)
			}
			w.hit("leader_isolated")
			w.split(side, r)
			return
		}
	}
}

func (w *world) split(side []bool, r random) {
	oneWay := r.chance(0.3)
	w.tracef("partition %v, one way %v", side, oneWay)
	w.sever(r.between(500*time.Millisecond, 15*time.Second), func(from, to int) bool {
		return side[from] != side[to] && (!oneWay || side[from])
	})
}

// stepWallClock sets a server's wall clock wrong, often by more than a minute, or right.
func (w *world) stepWallClock(r random) {
	s := pick(r, w.servers)
	far, back, right := r.between(0, 3*time.Minute), r.chance(0.5), r.chance(0.3)
	s.wallOff = far
	switch {
	case right:
		s.wallOff = 0
	case back:
		s.wallOff = -far
	}
	w.happens("wall_clock_stepped", "the wall clock of %s is off by %v", s.name, s.wallOff)
}

func (w *world) orderID(what string) string {
	w.orders++
	return fmt.Sprintf("%s-%d", what, w.orders)
}
