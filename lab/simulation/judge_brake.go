package simulation

//headroom:judge

import (
	"time"

	"headroom/lease"
)

// brakeJudge watches the brake: it reaches every node in time, and nothing but the
// log lifts it.
type brakeJudge struct {
	stored []uint64        // by node: highest generation that is on its disk
	lifted uint64          // highest that any log has lifted
	asked  map[uint64]bool // generations that operators have requested to lift
}

// applied judges that nothing is lifted but what an operator has named, and nothing
// before it was set.
func (k *brakeJudge) applied(j *judge) {
	now := j.state.Brake.Lifted
	if now > k.lifted && (!k.asked[now] || now > j.w.braked) {
		j.broken("brake", "the log lifted generation %d; highest generation set: %d; lift requested: %v",
			now, j.w.braked, k.asked[now])
	}
	k.lifted = max(k.lifted, now)
}

// stored notes that a node has stored what it was sent.
func (j *judge) stored(n *node) {
	i := j.index(n)
	j.brakes.stored[i] = max(j.brakes.stored[i], n.disk.Brake)
}

// forgets learns that a node has lost its state directory.
func (j *judge) forgets(n *node) {
	i := j.index(n)
	j.brakes.stored[i], j.nodes[i].forgot = 0, true
}

// took judges a lease against the brake that the node has stored.
func (k *brakeJudge) took(j *judge, n *node, g lease.Grant) {
	if stored := k.stored[j.index(n)]; g.BrakeLifted < stored {
		j.broken("brake", "%s has stored generation %d, but accepted a lease with generation %d lifted", n.name, stored, g.BrakeLifted)
	}
	if g.BrakeLifted > k.lifted {
		j.broken("brake", "%s was sent generation %d as lifted; the log has lifted %d", n.name, g.BrakeLifted, k.lifted)
	}
}

// look checks that no node that has stored a brake holds a lease until it is lifted.
func (k *brakeJudge) look(j *judge) {
	for i, n := range j.w.nodes {
		if !n.up || n.exchange == nil || k.stored[i] <= k.lifted {
			continue
		}
		if p, state := n.exchange.Cap(); state == lease.Held && !n.paused {
			j.broken("brake", "%s holds %v; it has stored generation %d and the log has lifted %d", n.name, p, k.stored[i], k.lifted)
		}
	}
}

// braked plans to look whether a brake that is set now reaches every node that
// can be reached: 2 s, and what the last messages of it take.
func (j *judge) braked(generation uint64, at *process) {
	began := j.w.now
	j.w.add(brakeWithin+20*time.Millisecond, func() {
		whole := func(p *process) bool { return p.up && !p.paused && p.since <= began }
		if !j.w.net.quietSince(began) || !whole(at) {
			return
		}
		for _, n := range j.w.nodes {
			if !whole(&n.process) || n.exchange == nil || j.brakes.lifted >= generation {
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
