package simulation

//headroom:judge

import (
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// overstays judges whether a running node still holds a lease that must have
// ended, on the slowest clock the design allows (P2). slack is its own loop.
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

// place of a node in the judge's lists.
func (j *judge) index(n *node) int { return n.address - len(j.w.servers) }

// lease judges the holder right after it received the time.
func (j *judge) lease(n *node) { j.overstays(j.index(n), 0) }

// took judges a grant that a node has taken, where before was its newest.
// One that has lost its state directory may meet servers that were begun again by
// a slow clock, whose incarnation is lower: none is left that has a higher one.
func (j *judge) took(n *node, g lease.Grant, before lease.Stamp) {
	k := &j.nodes[j.index(n)]
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
		j.w.history.holds(n.spec.Node, g)
	}
	k.ends, k.latest = ends, latest
	k.leased, k.stamp, k.forgot = sent, g.Stamp, false
	if k.feed != k.home && k.feedSeq > 0 && g.Stamp.Seq >= k.feedSeq {
		j.w.hit("move_followed")
		k.feed, k.feedSeq, j.moved = k.home, 0, true
	}
	j.brakes.took(j, n, g)
	j.w.watchdog(n, k)
}

// cutWithin is how long a powerd may take to write a lower cap that has reached it,
// whatever its disk does.
const cutWithin = 600 * time.Millisecond

// arrives plans to look whether a lower cap that has reached a node is carried out,
// stored or not (P5).
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
	key := arrival{l, r.Node, r.Process, r.Number}
	if _, again := j.arrived[key]; !again {
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

// given is what the log has given a node under one sequence number.
type given struct {
	cap    units.Power
	sprint lease.Sprint
}
