package simulation

import (
	"time"

	"headroom/ledger"
	"headroom/units"
)

// Chains of faults of which each is usual, and that chance alone would bring together too rarely.

// later plans a step of a chain; none comes after faults have ended.
func (w *world) later(d time.Duration, do func()) {
	w.add(d, func() {
		if w.now < w.calm {
			do()
		}
	})
}

// cutOff severs all links between a node and the servers for d.
func (w *world) cutOff(n *node, d time.Duration) {
	w.sever(d, func(from, to int) bool {
		return from == n.address && to < len(w.servers) || to == n.address && from < len(w.servers)
	})
}

// strand starts a node that comes to the cluster late, and loses the quorum while the node cannot reach the servers. What the operators have
// put aside is older than the node: the log that begins again has no record that a lease is held.
func (w *world) strand(r random) {
	n := w.nodes[len(w.nodes)-1]
	joined, wrong := r.between(5*time.Second, 9*time.Second), r.upTo(time.Minute)
	if n.life > 0 || len(w.seen().Nodes) == 0 || w.restoring {
		return
	}
	from, ok := w.putAside()
	if !ok {
		return
	}
	w.hit("node_joined")
	n.boot()
	w.later(joined, func() {
		if w.restoring || w.group != from.group || w.seen().Nodes[n.spec.Node].Target == 0 {
			return
		}
		w.cutOff(n, 14*time.Second)
		w.hit("quorum_lost")
		w.beginAnew(from, wrong, r.between(100*time.Millisecond, time.Second))
	})
}

// putAside is an operator who saves a snapshot now; false while no server can give one.
func (w *world) putAside() (saved, bool) {
	for _, s := range w.servers {
		if s.up && !s.paused && s.applied == len(w.judge.log)-1 && len(s.state.Domains) > 0 {
			return w.save(s), true
		}
	}
	return saved{}, false
}

// orderLease is an operator who changes how long leases run.
func (w *world) orderLease(r random) {
	length := r.between(ledger.LeaseLeast, 14*time.Second)
	w.ask(&order{what: "lease", set: func(c *ledger.Command) {
		w.longest = max(w.longest, length) // it may be committed from now on
		c.SetLease = &ledger.SetLease{Length: length}
	}})
}

// liftUnseen is an operator who lifts a generation that is not the one in force: one of before, or a number mistyped.
func (w *world) liftUnseen(r random) {
	seen, off := w.seen().Brake, uint64(1+r.IntN(3))
	if !seen.Active() {
		return
	}
	generation := seen.Set + off
	if r.chance(0.5) && seen.Set > off {
		generation = seen.Set - off
	}
	w.hit("lift_unseen")
	w.askLift(generation)
}

// flurry cuts a node off, raises it, and lowers it so often that more targets may still reach it than the log keeps one by one.
func (w *world) flurry(r random, n *node) {
	x := w.seen().Nodes[n.spec.Node]
	room := min(n.spec.Rated, x.Most()) - x.Least()
	if !n.up || n.paused || !x.Grantable() || room < 30*units.Watt {
		return
	}
	most := func(p units.Power) { w.askMost(x, &p) }
	most(x.Least() + 2*units.Watt)
	w.later(1500*time.Millisecond, func() {
		low := w.seen().Nodes[x.Name].Target
		w.cutOff(n, 4*time.Second)
		w.askMost(x, nil)
		w.whenRaised(x.Name, low+20*units.Watt, 100, func(to units.Power) {
			for i := range 20 {
				w.later(time.Duration(i)*30*time.Millisecond, func() { most(x.Least() + (to-x.Least())*units.Power(20-i)/24) })
			}
		})
	})
}

// askMost requests the settings that a node had, with another highest cap; nil for none.
func (w *world) askMost(x ledger.Node, most *units.Power) {
	set := x.Settings
	set.Max = most
	w.askSettings(x.Name, set)
}

// whenRaised runs then as soon as a node's target is above a power, looking tries times.
func (w *world) whenRaised(node string, above units.Power, tries int, then func(units.Power)) {
	switch to := w.seen().Nodes[node].Target; {
	case to > above:
		then(to)
	case tries > 0:
		w.later(30*time.Millisecond, func() { w.whenRaised(node, above, tries-1, then) })
	}
}

// oldLease loses the quorum while a lease is on its way to a node, and begins again from what was put aside several targets before: what the
// node names then is above all that the log has.
func (w *world) oldLease(r random, n *node) {
	wrong := r.upTo(time.Minute)
	x := w.seen().Nodes[n.spec.Node]
	from, ok := w.putAside()
	if !ok || w.restoring || !n.up || n.paused || !x.Grantable() || w.now < w.chained {
		return
	}
	w.chained = w.now + 8*time.Second
	most := func(after time.Duration, part float64) {
		w.later(after, func() { w.askMost(x, new(x.Least()+units.Power(part*float64(n.spec.Rated-x.Least())))) })
	}
	for i := range 4 {
		most(time.Duration(i)*300*time.Millisecond, 0.2-0.05*float64(i))
	}
	w.later(2*time.Second, func() { w.cutOff(n, 3500*time.Millisecond) })
	w.later(2050*time.Millisecond, func() { w.askSettings(x.Name, x.Settings) })
	w.later(2040*time.Millisecond, func() {
		w.whenRaised(x.Name, w.seen().Nodes[x.Name].Target+5*units.Watt, 80, func(units.Power) {
			w.later(30*time.Millisecond, func() { // the leases of it have left
				if !w.restoring && w.group == from.group {
					w.hit("quorum_lost")
					w.beginAnew(from, wrong, 200*time.Millisecond)
				}
			})
		})
	})
}

// toggleControl is an operator who restarts a powerd that holds no caps, or holds them again. The limit goes once the log shows it.
func (w *world) toggleControl(r random, n *node) {
	for _, x := range w.nodes {
		if !x.spec.Controlled && r.chance(0.6) {
			n = x
		}
	}
	if !n.up || n.paused || w.on["lost-charge"] {
		return
	}
	n.crash()
	n.spec.Controlled = !n.spec.Controlled
	w.hit("control_changed")
	if n.spec.Controlled {
		w.hit("control_again")
	} else {
		w.later(r.between(3*time.Second, 6*time.Second), func() {
			if x := w.seen().Nodes[n.spec.Node]; !n.spec.Controlled && !x.Controlled && x.Name != "" && !n.hw.off {
				n.integrate()
				n.hw.writing++
				n.hw.held, n.hw.want = n.spec.Rated, n.spec.Rated
				w.judge.moved = true
			}
		})
	}
	w.tracef("%s: controlled is %v", n.name, n.spec.Controlled)
	n.hw.stuck = w.now + r.between(0, 4*time.Second)
	w.revive(n, r, 100*time.Millisecond+r.about(time.Second))
}

// deafen lets a node's controls fail for a while: nothing that is written takes effect, and nothing can be read back.
func (w *world) deafen(r random, n *node) {
	n.hw.deaf = w.now + r.between(time.Second, 9*time.Second)
	w.tracef("%s: its controls fail for %v", n.name, n.hw.deaf-w.now)
}

// raisedRestart starts a powerd again while another program raises the limit: what the new process reads back proves nothing.
func (w *world) raisedRestart(r random, n *node) {
	if !n.up || n.paused || !n.capped() || n.spec.Rated <= n.hw.held {
		return
	}
	n.crash()
	w.hit("node_killed")
	n.hw.stuck = w.now + r.between(2*time.Second, 6*time.Second)
	w.raiseLimit(n, n.spec.Rated)
	w.revive(n, r, r.between(50*time.Millisecond, 500*time.Millisecond))
}

// echo delivers a heartbeat to a leader that has just begun, after a newer one has reported that the node's limit was raised.
func (w *world) echo(r random, n *node) {
	raised, gap := r.between(50*time.Millisecond, 400*time.Millisecond), r.between(1500*time.Millisecond, 3*time.Second)
	if !n.up || n.paused || n.exchange.Beats() == 0 || !n.capped() {
		return
	}
	w.echoes = append(w.echoes, echoed{n, n.last, w.now + 12*time.Second})
	w.later(raised, func() {
		n.hw.stuck = w.now + 10*time.Second
		w.raiseLimit(n, n.spec.Rated)
	})
	w.later(raised+gap, func() {
		for _, s := range w.servers {
			if s.up && s.lead != nil {
				w.hit("server_killed")
				s.crash()
				w.restart(s, 100*time.Millisecond+r.about(time.Second))
				return
			}
		}
	})
}

// echoed is a heartbeat that is long on its way.
type echoed struct {
	from  *node
	said  ledger.Report
	until time.Duration
}

// echoesArrive are the heartbeats that a new leadership receives first.
func (l *leadership) echoesArrive() {
	for _, x := range l.s.w.echoes {
		if l.s.w.now < x.until {
			l.s.w.hit("heartbeat_echoed")
			l.heard(x.said)
		}
	}
}

// sprintOf is an operator who requests a sprint of some nodes that just fits what is left for it, of a small budget that fills slowly. An
// idle first node has no use for it, all others have.
func (w *world) sprintOf(count int, idle bool) {
	d := w.seen().Domains["site/lab"]
	if d.Sprint == nil {
		w.askPot(&ledger.SetSprintBudget{Domain: d.Name, Capacity: 400 * units.Joule, Refill: 40 * units.Watt})
		return
	}
	pot := sortedKeys(d.Sprint.Balances)[0]
	each := d.Sprint.Balances[pot] * 8 / 10 / units.Energy(count)
	x := &ledger.GrantSprint{Domain: d.Name, Class: pot, Duration: time.Duration(count) * 2 * time.Second}
	for _, n := range w.seen().NodesByName() {
		more := min(n.Rated-n.Target, w.judge.headroom(n.Domain)/units.Power(count), each.Over(x.Duration))
		if n.Grantable() && n.Owes == "" && more >= 5*units.Watt && len(x.Caps) < count {
			x.Caps = append(x.Caps, ledger.Target{Node: n.Name, Cap: n.Target + more})
			work := w.nodeNamed(n.Name)
			if work.hw.next = n.Rated; idle && len(x.Caps) == 1 {
				work.hw.next = n.Target
			}
		}
	}
	if len(x.Caps) == count {
		w.askGrant(x)
	}
}

// sprinting are the running nodes that are in a sprint.
func (w *world) sprinting() (list []*node) {
	for _, n := range w.nodes {
		if w.judge.of(n).stint != nil && n.up && !n.paused {
			list = append(list, n)
		}
	}
	return list
}

// sprinterOff takes the power of a node that has reported what its sprint drew, while another of the sprint, killed, has not.
func (w *world) sprinterOff(r random) {
	list := w.sprinting()
	if len(list) < 2 {
		w.sprintOf(2, true)
		return
	}
	n := list[0]
	list[1].crash()
	w.revive(list[1], r, 15*time.Second)
	w.later(r.between(4500*time.Millisecond, 5500*time.Millisecond), func() {
		x := w.seen().Nodes[n.spec.Node]
		if share, owes := w.seen().Sprints[x.Owes].Shares[x.Name]; owes && share.Spent != nil && !n.hw.off && n.up {
			w.hit("sprinter_off")
			w.powerOff(n, r, true)
		}
	})
}

// overdraw ends the powerd of a node in its sprint, which leaves the hardware at the sprint's cap; where that becomes a debt the quorum is
// lost, and what the operators have put aside records it.
func (w *world) overdraw(r random) {
	back, wrong := r.between(6*time.Second, 10*time.Second), r.upTo(time.Minute)
	list := w.sprinting()
	if len(list) == 0 {
		w.sprintOf(1, false)
		return
	}
	n := list[0]
	n.crash()
	w.revive(n, r, back)
	w.later(back, func() { w.loseInDebt(wrong, 30) })
}

func (w *world) loseInDebt(wrong time.Duration, tries int) {
	if w.restoring || tries == 0 {
		return
	}
	for _, p := range w.judge.sprints.pots {
		if p.most+p.slack < -10 {
			if from, ok := w.putAside(); ok {
				w.hit("snapshot_in_debt")
				w.hit("quorum_lost")
				w.beginAnew(from, wrong, 500*time.Millisecond)
				return
			}
		}
	}
	w.later(time.Second, func() { w.loseInDebt(wrong, tries-1) })
}

// killUnsynced lowers a node's fail-safe cap and kills its powerd before the cap is on disk: the next one starts at the higher.
func (w *world) killUnsynced(r random, n *node) {
	x := w.seen().Nodes[n.spec.Node]
	high := min(n.spec.Rated, x.Floor+60*units.Watt)
	if !n.up || n.paused || !x.Grantable() || w.now < w.chained {
		return
	}
	w.chained = w.now + 7*time.Second
	both := func(p units.Power) {
		set := x.Settings
		set.Min, set.FailSafe, set.Max = nil, &p, &p
		w.askSettings(x.Name, set)
	}
	both(high)
	w.later(2500*time.Millisecond, func() {
		if w.seen().Nodes[x.Name].Stored == high {
			w.hit("fail_safe_unsynced")
			n.frozen = w.now + 4*time.Second
			both(x.Floor)
		}
	})
	w.later(5*time.Second, func() {
		if n.up && !n.paused && n.frozen > w.now {
			w.hit("node_killed")
			n.crash()
			w.revive(n, r, 100*time.Millisecond)
		}
	})
}
