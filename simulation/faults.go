package simulation

import (
	"fmt"
	"time"

	"headroom/lease"
)

// calmSpan is how long a schedule runs without faults at its end: an election,
// a lease and some ticks.
const calmSpan = 20 * time.Second

// fault is something that goes wrong now and then.
type fault struct {
	name string
	do   func(*world)
}

// disruptions are the faults that happen at moments; the others are properties
// of a whole schedule.
func disruptions() []fault {
	return []fault{
		{"server_killed", (*world).killServer},
		{"server_paused", (*world).pauseServer},
		{"node_killed", (*world).killNode},
		{"node_paused", (*world).pauseNode},
		{"node_suspended", (*world).suspendNode},
		{"node_rebooted", (*world).rebootNode},
		{"release_asked", (*world).releaseNode},
		{"link_cut", (*world).cutLink},
		{"partition", (*world).partition},
		{"leader_isolated", (*world).isolateLeader},
	}
}

// half is 0 in half of the schedules, and at most p in the others.
func (w *world) half(p float64) float64 {
	if w.chance(0.5) {
		return p * w.rng.Float64()
	}
	return 0
}

// drawFaults draws the properties that hold for the whole schedule.
func (w *world) drawFaults() {
	w.offClocks = w.chance(0.5)
	w.lostState, w.ample = w.chance(0.3), w.chance(0.3)
	w.slowDisk, w.slowWrite, w.stuck, w.restless = w.half(0.3), w.half(0.5), w.half(0.3), w.half(0.5)
	w.busy = w.between(time.Second, 6*time.Second)
	w.conviction = w.between(600*time.Millisecond, 5*time.Second)
}

// drawNetwork draws what the network does to messages.
func (w *world) drawNetwork() {
	w.net = newNetwork(len(w.servers) + len(w.nodes))
	n := w.net
	n.loss, n.double, n.reorder, n.spiky = w.half(0.1), w.half(0.2), w.half(1), w.half(0.3)
	n.spike = w.between(50*time.Millisecond, 15*time.Second)
}

// disrupt draws which faults this schedule has, and how often.
func (w *world) disrupt() {
	for _, f := range disruptions() {
		if !w.chance(0.4) {
			continue
		}
		mean := w.between(2*time.Second, 15*time.Second)
		var again func()
		again = func() {
			if w.now >= w.calm {
				return
			}
			w.hit(f.name)
			f.do(w)
			w.add(w.about(mean), again)
		}
		w.add(w.about(mean), again)
	}
	if w.calm < w.end {
		w.add(w.calm, w.mend)
	}
}

// mend ends all faults: what is down starts, what is stopped runs on.
func (w *world) mend() {
	w.tracef("calm")
	n := w.net
	n.heal()
	n.loss, n.double, n.reorder, n.spiky, w.slowDisk, w.slowWrite, w.stuck, w.restless = 0, 0, 0, 0, 0, 0, 0, 0
	for _, s := range w.servers {
		switch {
		case !s.up:
			s.boot()
		case s.paused:
			w.resume(&s.process)
		}
	}
	for _, n := range w.nodes {
		switch {
		case !n.up:
			n.boot()
		case n.paused:
			n.wake()
		}
	}
}

// releasePatience is how long a node waits for the answer to its request.
const releasePatience = 5 * time.Second

func (w *world) killServer() {
	s := w.servers[w.rng.IntN(len(w.servers))]
	for _, busy := range w.servers {
		if busy.up && len(busy.log)-1 > busy.durable && w.chance(0.5) {
			s = busy // in the middle of a write is the worst moment
		}
	}
	if !s.up {
		return
	}
	s.crash()
	life := s.life
	w.add(100*time.Millisecond+w.about(2*time.Second), func() {
		if !s.up && s.life == life {
			s.boot()
		}
	})
}

func (w *world) pauseServer() {
	s := w.servers[w.rng.IntN(len(w.servers))]
	if !s.up || s.paused {
		return
	}
	w.pause(&s.process)
	life := s.life
	d := w.between(100*time.Millisecond, 8*time.Second)
	w.tracef("%s stands still for %v", s.name, d)
	w.add(d, func() {
		if s.paused && s.life == life {
			w.tracef("%s runs on", s.name)
			w.resume(&s.process)
		}
	})
}

func (w *world) someNode() *node { return w.nodes[w.rng.IntN(len(w.nodes))] }

func (w *world) killNode() {
	n := w.someNode()
	if !n.up {
		return
	}
	n.fallAsleep(false)
	n.crash()
	w.revive(n, 20*time.Millisecond+w.about(2*time.Second))
}

// revive starts a node's powerd after d, perhaps with another configuration or
// without its state directory.
func (w *world) revive(n *node, d time.Duration) {
	life := n.life
	if w.chance(0.2) {
		w.hit("configuration_changed")
		n.configure()
	}
	if w.lostState && w.chance(0.3) {
		w.hit("state_lost")
		n.disk = lease.Memory{}
	}
	n.blind = w.rng.IntN(3)
	w.add(d, func() {
		if !n.up && n.life == life {
			n.boot()
		}
	})
}

func (w *world) pauseNode() {
	n := w.someNode()
	if !n.up || n.paused {
		return
	}
	w.pause(&n.process)
	w.wakeAfter(n, w.between(100*time.Millisecond, 14*time.Second), "is stopped")
}

func (w *world) suspendNode() {
	n := w.someNode()
	if !n.up || n.paused {
		return
	}
	w.pause(&n.process)
	n.fallAsleep(true)
	w.wakeAfter(n, 50*time.Millisecond+w.about(3*time.Second), "is suspended")
}

func (w *world) wakeAfter(n *node, d time.Duration, what string) {
	w.tracef("%s %s for %v", n.name, what, d)
	life := n.life
	w.add(d, func() {
		if n.paused && n.life == life {
			n.wake()
		}
	})
}

// fallAsleep marks the moment from which CLOCK_MONOTONIC stands still.
func (n *node) fallAsleep(yes bool) {
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
	n.resumed = n.w.now
	n.w.tracef("%s runs on", n.name)
	n.w.resume(&n.process)
}

// rebootNode loses the limits until powerd writes the first one.
func (w *world) rebootNode() {
	n := w.someNode()
	n.sleep, n.slept = 0, 0
	if n.up {
		n.crash()
	}
	w.kill(&n.process)
	n.writing++
	n.clock.base, n.clock.booted = time.Second, w.now
	n.held, n.want, n.booting = n.spec.Rated, n.spec.Rated, n.spec.Controlled
	w.revive(n, w.between(2*time.Second, 15*time.Second))
}

// releaseNode is an operator who stops a powerd: it asks the leader whether it
// may put the originals back, and does so once that is committed.
func (w *world) releaseNode() {
	n := w.someNode()
	if !n.up || n.paused || !n.spec.Controlled || n.asking != "" {
		return
	}
	w.orders++
	o := &order{id: fmt.Sprintf("release-%d", w.orders), leaver: n}
	n.asking = o.id
	w.timer(&n.process, releasePatience, func() {
		if n.asking == o.id {
			n.asking = "" // the outcome stays unknown: nothing is put back
		}
	})
	s := w.servers[n.leader]
	w.send(&n.process, &s.process, func() { s.ordered(o) })
}

func (w *world) cutLink() {
	n := len(w.net.cut)
	from, to := w.rng.IntN(n), w.rng.IntN(n)
	w.net.cut[from][to] = true
	w.tracef("nothing passes from %d to %d", from, to)
	w.add(w.between(500*time.Millisecond, 15*time.Second), func() { w.net.cut[from][to] = false })
}

// partition splits all machines into two groups; at times only one way.
func (w *world) partition() {
	n := len(w.net.cut)
	side := make([]bool, n)
	for i := range side {
		side[i] = w.chance(0.5)
	}
	w.split(side, w.chance(0.3))
}

// isolateLeader cuts whoever leads off from some or all of the others.
func (w *world) isolateLeader() {
	for _, s := range w.servers {
		if s.up && s.role == leader {
			side := make([]bool, len(w.net.cut))
			side[s.address] = true
			for _, n := range w.nodes {
				side[n.address] = w.chance(0.5)
			}
			w.split(side, w.chance(0.3))
			return
		}
	}
}

func (w *world) split(side []bool, oneWay bool) {
	w.tracef("partition %v, one way %v", side, oneWay)
	set := func(cut bool) {
		for i := range side {
			for k := range side {
				if side[i] != side[k] && (!oneWay || side[i]) {
					w.net.cut[i][k] = cut
				}
			}
		}
	}
	set(true)
	w.add(w.between(500*time.Millisecond, 15*time.Second), func() { set(false) })
}
