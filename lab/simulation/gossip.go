package simulation

import (
	"time"

	"headroom/ledger"
	"headroom/ledger/leader"
)

// How the brake spreads, as memberlist does by default.
const (
	gossipEvery  = 200 * time.Millisecond
	gossipFanout = 3
	gossipRounds = 8
	// meetEvery is how often a process compares its state with one other.
	meetEvery = 5 * time.Second
)

// gossip is one process's state of the brake, and how often it still sends it.
type gossip struct {
	known  uint64
	rounds int
}

// gossipOf is the gossip of the process at an address.
func (w *world) gossipOf(p *process) *gossip {
	if p.address < len(w.servers) {
		return &w.servers[p.address].gossip
	}
	return &w.nodes[p.address-len(w.servers)].gossip
}

func (w *world) processAt(address int) *process {
	if address < len(w.servers) {
		return &w.servers[address].process
	}
	return &w.nodes[address-len(w.servers)].process
}

// other is another process than p, whether it runs or not.
func (w *world) other(p *process) *process {
	i := p.random.IntN(len(w.servers) + len(w.nodes) - 1)
	if i >= p.address {
		i++
	}
	return w.processAt(i)
}

// hears takes in a generation. A new one is acted upon and passed on.
func (w *world) hears(p *process, generation uint64) {
	g := w.gossipOf(p)
	if generation <= g.known {
		return
	}
	spreads := g.rounds > 0
	g.known, g.rounds = generation, gossipRounds
	if p.address >= len(w.servers) {
		w.nodes[p.address-len(w.servers)].brake(generation)
	} else if s := w.servers[p.address]; s.lead != nil {
		s.lead.braked(generation)
	}
	if !spreads {
		w.spread(p)
	}
}

// spread sends the state to some other processes, round after round.
func (w *world) spread(p *process) {
	g := w.gossipOf(p)
	if g.rounds == 0 {
		return
	}
	g.rounds--
	for range gossipFanout {
		w.tell(p, w.other(p), g.known)
	}
	w.timer(p, gossipEvery, func() { w.spread(p) })
}

func (w *world) tell(from, to *process, generation uint64) {
	w.send(from, to, func() { w.hears(to, generation) })
}

// meet compares the process's state with one other, forever.
func (w *world) meet(p *process) {
	if !w.on["brake"] {
		return
	}
	w.timer(p, p.random.upTo(2*meetEvery), func() {
		to := w.other(p)
		known := w.gossipOf(p).known
		w.send(p, to, func() {
			w.hears(to, known)
			if mine := w.gossipOf(to).known; mine > known {
				w.tell(to, p, mine)
			}
		})
		w.meet(p)
	})
}

// brake is a generation reaching the node.
func (n *node) brake(generation uint64) {
	n.w.tracef("%s is braked, generation %d", n.name, generation)
	n.carryOut(n.exchange.Brake(generation, n.now()))
}

// brake is an operator who sets the brake at any process, and later lifts it.
func (w *world) brake(r random) {
	p := w.processAt(r.IntN(len(w.servers) + len(w.nodes)))
	if !p.up || p.paused {
		return
	}
	w.braked = max(w.braked, w.judge.state.Brake.Set) + 1
	w.hit("brake_set")
	w.tracef("brake %d is set at %s", w.braked, p.name)
	w.judge.braked(w.braked, p)
	w.hears(p, w.braked)
	w.add(r.between(4*time.Second, 15*time.Second), w.lift)
}

// lift is an operator who lifts the brake that he sees in force.
func (w *world) lift() {
	seen := w.judge.state.Brake
	if seen.Active() {
		w.askLift(seen.Set)
	}
}

func (w *world) askLift(generation uint64) {
	w.judge.brakes.asked[generation] = true
	w.ask(&order{what: "lift", make: func(_ leader.View, c *ledger.Command) error {
		c.LiftBrake = &ledger.LiftBrake{Generation: generation}
		return nil
	}})
}

// liftWhile lifts every brake that is set, until the end.
func (w *world) liftWhile() {
	if w.on["brake"] {
		w.lift()
		w.add(2*time.Second, w.liftWhile)
	}
}
