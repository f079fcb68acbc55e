package simulation

//headroom:judge

import (
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// The numbers of the promises, written a second time: a judge that took them from the code under test would move with a mistake there.
const (
	// rho is by how much a clock may be off (P2).
	rho = 0.01
	// leaseLength is how long a lease runs unless the log sets another length (P2).
	leaseLength = 10 * time.Second
	// brakeWithin is how soon every reachable node is at its fail-safe cap once it is braked.
	brakeWithin = 2 * time.Second
	// unheardAfter is how long a node may be silent before a cut counts without it (P5).
	unheardAfter = 3500 * time.Millisecond
	// clocksApart is how far a clock of a quorum may be from the leader's, so that no two
	// are more than a minute apart (P5), and what reading them takes.
	clocksApart = 30*time.Second + 2*clocksWithin
)

// grantable reports whether the log may grant a node leases.
func grantable(n ledger.Node) bool { return n.Admitted && n.Controlled && !n.Released && n.Off == "" }

// failSafe is the fail-safe cap that a node must store, the operator's before its own.
func failSafe(n ledger.Node) units.Power {
	if own := n.Settings.FailSafe; own != nil {
		return min(max(*own, n.Floor), n.Rated)
	}
	return n.FailSafe
}

// least is the lowest cap of a node: not below its fail-safe cap and its floor, nor below what an operator has requested for it.
func least(n ledger.Node) units.Power {
	low := max(failSafe(n), n.Floor)
	if own := n.Settings.Min; own != nil {
		low = max(low, min(*own, n.Rated))
	}
	return low
}

// braked reports whether a generation of the brake is set and not lifted.
func braked(s *ledger.State) bool { return s.Brake.Set > s.Brake.Lifted }

// sprintOf is the sprint that a lease of the node carries.
func sprintOf(n ledger.Node) lease.Sprint {
	if n.Sprint == nil {
		return lease.Sprint{}
	}
	return lease.Sprint{ID: n.Sprint.ID, Cap: n.Sprint.Cap, Duration: n.Sprint.Duration, Escrow: n.Sprint.Escrow}
}

// overstays judges whether a running node holds a lease that has ended on the slowest clock (P2). slack is its own loop.
func (j *judge) overstays(i int, slack time.Duration) {
	n, k := j.w.nodes[i], &j.nodes[i]
	most := k.latest + slowest(slack) + time.Microsecond
	if j.w.now <= most || !n.up || n.paused || n.exchange == nil || slack > 0 && j.w.now-n.since <= slack {
		return
	}
	if p, state := n.exchange.Cap(); state == lease.Held {
		j.broken("P2", "%s holds %v %.3f s after the heartbeat of its lease was sent; at most %.3f s are allowed",
			n.name, p, (j.w.now - k.leased).Seconds(), (most - k.leased).Seconds())
	}
}

// slowest is how long d takes on the slowest clock that the design allows.
func slowest(d time.Duration) time.Duration { return time.Duration(float64(d) / (1 - rho)) }

// index is the place of a node in the judge's lists, and of is the judge's state of it.
func (j *judge) index(n *node) int   { return n.address - len(j.w.servers) }
func (j *judge) of(n *node) *charged { return &j.nodes[j.index(n)] }

// lease judges the holder right after it received the time.
func (j *judge) lease(n *node) { j.overstays(j.index(n), 0) }

// took judges a grant that a node has taken, where before was its newest. One that has lost its state directory may meet servers that were
// begun again by a slow clock, whose incarnation is lower: none is left that has a higher one.
func (j *judge) took(n *node, g lease.Grant, before lease.Stamp) {
	k := j.of(n)
	anew := k.forgot && g.Stamp.Epoch.Incarnation != k.stamp.Epoch.Incarnation
	if g.Stamp.Compare(k.stamp) < 0 && !anew || g.Stamp.Compare(before) < 0 {
		j.broken("P3", "%s accepted %v after %v", n.name, g.Stamp, k.stamp)
	}
	sent, ok := n.sent[g.Heartbeat]
	if !ok || g.Process != n.pid {
		j.broken("P2", "%s accepted a lease that does not answer a heartbeat of its process", n.name)
	}
	ends, latest := sent+n.clock.wait(g.Duration), sent+slowest(g.Duration)
	if g.Stamp == k.stamp {
		sent, ends, latest = max(sent, k.leased), max(ends, k.ends), max(latest, k.latest)
	} else {
		j.w.history.seen(holdInput{n.spec.Node, g.Stamp}, j.w.now)
	}
	k.ends, k.latest = ends, latest
	k.leased, k.stamp, k.forgot = sent, g.Stamp, false
	if k.feed != k.home && k.feedSeq > 0 && g.Stamp.Seq >= k.feedSeq {
		j.w.hit("move_followed")
		k.feed, k.feedSeq, j.moved = k.home, 0, true
	}
	if g.BrakeLifted < k.stored {
		j.broken("brake", "%s has stored generation %d, but accepted a lease with generation %d lifted", n.name, k.stored, g.BrakeLifted)
	}
	if g.BrakeLifted > j.lifted {
		j.broken("brake", "%s was sent generation %d as lifted; the log has lifted %d", n.name, g.BrakeLifted, j.lifted)
	}
	j.w.watchdog(n, k)
}

// cutWithin is how long a powerd may take to write a lower cap that has reached it, whatever its disk does.
const cutWithin = 600 * time.Millisecond

// arrives plans to look whether a lower cap that has reached a node is carried out, stored or not (P5).
func (j *judge) arrives(n *node, g lease.Grant) {
	most, at, pid := max(g.Cap, g.Sprint.Cap, n.disk.FailSafe), j.w.now, n.pid
	if most >= n.hw.want || !n.spec.Controlled || !n.wouldTake(g) {
		return
	}
	j.w.hit("cut_before_disk")
	j.w.add(cutWithin, func() {
		newer := n.exchange.Memory().Highest.Compare(g.Stamp) > 0
		if n.up && !n.paused && n.pid == pid && n.since <= at && !newer && n.hw.want > max(most, n.disk.FailSafe) {
			j.broken("P5", "%s received a cap of %v (%v) %.1f s ago and has been running since, but has written %v",
				n.name, g.Cap, g.Stamp, cutWithin.Seconds(), n.hw.want)
		}
	})
}

// heard notes the first arrival of a heartbeat at a leadership.
func (j *judge) heard(l *leadership, r ledger.Report) {
	if key := (arrival{l, r.Node, r.Process, r.Number}); j.arrived[key] == 0 {
		j.arrived[key] = j.w.happening()
	}
}

// granted judges a lease as it is issued (P3).
func (j *judge) granted(l *leadership, g ledger.NodeGrant) {
	at, heard := j.arrived[arrival{l, g.Node, g.Grant.Process, g.Grant.Heartbeat}]
	switch {
	case !heard:
		j.broken("P3", "%s answered heartbeat %d of %s, which it never received", l.s.name, g.Grant.Heartbeat, g.Node)
	case at > l.appended:
		j.broken("P3", "%s answered heartbeat %d of %s before an entry appended after its arrival had committed",
			l.s.name, g.Grant.Heartbeat, g.Node)
	case g.Grant.Stamp.Epoch != l.epoch:
		j.broken("P3", "%s granted in %v, but leads %v", l.s.name, g.Grant.Stamp, l.epoch)
	}
	if l.known > j.state.Brake.Set {
		j.broken("brake", "%s knows generation %d and granted %s a lease; the log has generation %d only", l.s.name, l.known, g.Node, j.state.Brake.Set)
	}
	if g.Grant.Duration > j.w.longest {
		j.broken("P2", "%s granted %s for %v; the longest lease is %v", l.s.name, g.Node, g.Grant.Duration, j.w.longest)
	}
	j.offered(j.w.nodeNamed(g.Node), g.Grant)
	c, ok := j.caps[capKey{l.s.group, g.Node, g.Grant.Stamp.Seq}]
	if !ok || c.cap != g.Grant.Cap || c.sprint != g.Grant.Sprint {
		j.broken("P3", "%s granted %s %v (sprint %v) as %v; committed is %v (sprint %v)",
			l.s.name, g.Node, g.Grant.Cap, g.Grant.Sprint.Cap, g.Grant.Stamp, c.cap, c.sprint.Cap)
	}
}

// gift is what the log has given a node under one sequence number.
type gift struct {
	cap    units.Power
	sprint lease.Sprint
}

// cut judges that a budget that was cut lowers every node that can be reached, in the same entry, as far as it takes (P5): where the domain
// stays too full even once they all have obeyed, each of them is at its least.
func (j *judge) cut(c ledger.Command, b before) {
	if c.Budget == nil {
		return
	}
	at := j.placeOf(c.Budget.Domain)
	if at < 0 || j.tree[at].budget >= b.domains[c.Budget.Domain].Budget { // a schedule below a temporary budget cuts later
		return
	}
	p := j.tree[at]
	aimed, high, reachable := p.boot-p.room(), (*ledger.Node)(nil), j.proposals[c.Epoch].reachable
	for i, n := range j.w.nodes {
		x := j.state.Nodes[n.spec.Node]
		leaves := !j.lies(j.nodes[i].home, at) && reachable[x.Name] // its next acknowledgement frees what it is charged here
		if !j.charges(i, at) || leaves {
			continue
		}
		if !reachable[x.Name] || !grantable(x) {
			aimed += x.Charge()
			continue
		}
		obeys := max(x.Target, failSafe(x), x.Floor)
		if x.Sprint != nil {
			obeys = max(obeys, x.Sprint.Cap)
		}
		aimed += obeys
		if obeys > least(x) {
			high = &x
		}
	}
	if aimed > units.Watt && high != nil {
		j.broken("P5", "%s was cut to %v and is still %v over, but %s is not at its least %v: target %v, sprint %q",
			p.name, p.budget, aimed, high.Name, least(*high), high.Target, high.Owes)
	}
}

// proposed is what was true when a leader made an entry.
type proposed struct {
	walls     []time.Time
	reachable map[string]bool
}

func (j *judge) walls() []time.Time {
	var walls []time.Time
	for _, s := range j.w.servers {
		walls = append(walls, s.wallNow())
	}
	return walls
}

// proposed notes what is true at the moment at which a leader makes an entry.
func (j *judge) proposed(l *leadership, c ledger.Command) {
	if c.Budget == nil {
		return
	}
	reachable := map[string]bool{}
	for name := range l.s.state.Nodes {
		v, heard := l.leader.Table().View(name, l.s.now())
		reachable[name] = heard && v.Age <= unheardAfter
	}
	j.proposals[l.epoch] = proposed{j.walls(), reachable}
}

// clock judges a raise by the clock, against the true clocks (P5).
func (j *judge) clock(c ledger.Command, b before) {
	if c.Budget == nil || c.Budget.Clock == nil {
		return
	}
	j.w.hit("budget_by_clock")
	if j.state.Domains[c.Budget.Domain].Budget <= b.domains[c.Budget.Domain].Budget {
		return
	}
	j.w.hit("raise_by_clock")
	at, near, made := time.UnixMicro(c.At), 0, j.proposals[c.Epoch].walls
	for i := range j.w.servers {
		if at.Sub(j.asked[i]).Abs() <= clocksApart || at.Sub(made[i]).Abs() <= clocksApart {
			near++
		}
	}
	if near < j.w.majority() {
		j.broken("P5", "%s had a scheduled raise to %v, but only %d of %d clocks are near %s",
			c.Budget.Domain, c.Budget.Budget, near, len(j.w.servers), at.UTC().Format(time.TimeOnly))
	}
	if c.At < c.Budget.Clock.Due {
		j.broken("P5", "%s had a scheduled raise before it was due", c.Budget.Domain)
	}
}

// brake judges that nothing is lifted but what an operator has named, and nothing before it was set.
func (j *judge) brake() {
	now := j.state.Brake.Lifted
	if now > j.lifted && (!j.mayLift[now] || now > j.w.braked) {
		j.broken("brake", "the log lifted generation %d; highest generation set: %d; lift requested: %v",
			now, j.w.braked, j.mayLift[now])
	}
	j.lifted = max(j.lifted, now)
}

// lookBraked checks that a node that has stored a brake holds no lease until it is lifted.
func (j *judge) lookBraked(i int) {
	n, k := j.w.nodes[i], j.nodes[i]
	if !n.up || n.paused || n.exchange == nil || k.stored <= j.lifted {
		return
	}
	if p, state := n.exchange.Cap(); state == lease.Held {
		j.broken("brake", "%s holds %v; it has stored generation %d and the log has lifted %d", n.name, p, k.stored, j.lifted)
	}
}

// braked plans to look whether a brake that is set now reaches every node that can be reached: 2 s, and what the last messages of it take.
func (j *judge) braked(generation uint64, at *process) {
	began := j.w.now
	j.w.add(brakeWithin+20*time.Millisecond, func() {
		whole := func(p *process) bool { return p.up && !p.paused && p.since <= began }
		if !j.w.net.quietSince(began) || !whole(at) {
			return
		}
		for _, n := range j.w.nodes {
			if !whole(&n.process) || n.exchange == nil || j.lifted >= generation {
				continue
			}
			j.w.hit("brake_in_time")
			if p, state := n.exchange.Cap(); n.exchange.Memory().Brake < generation || state == lease.Held {
				j.broken("brake", "generation %d was set %.1f s ago, but %s has generation %d and holds %v",
					generation, (j.w.now - began).Seconds(), n.name, n.exchange.Memory().Brake, p)
			}
		}
	})
}
