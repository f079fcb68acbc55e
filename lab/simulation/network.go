package simulation

import (
	"time"

	"headroom/ledger"
)

// network carries messages between addresses: the servers first, then the nodes.
type network struct {
	cuts    [][]int           // [from][to]: how many faults let nothing pass
	last    [][]time.Duration // newest planned arrival, where order is kept
	random  []random          // by sender
	delay   time.Duration     // usual longest delay
	spike   time.Duration     // longest delay of a delayed message
	spiky   float64           // share of messages that are delayed
	loss    float64           // share of messages lost
	double  float64           // share of messages that arrive twice
	reorder float64           // share of messages that may overtake others
	broken  int               // cuts that are in force
	whole   time.Duration     // since when nothing is cut
	heals   int               // counts the times everything was healed
}

// drawNetwork draws what the network does to messages. All is drawn in any case, so that a class that is turned off moves no other chance.
func (w *world) drawNetwork() {
	r := w.random("network", 0)
	n := &network{
		delay: 2 * time.Millisecond, loss: w.when("loss", 0.1*r.Float64()), double: w.when("duplicate", 0.2*r.Float64()),
		reorder: w.when("reorder", r.Float64()), spiky: w.when("delay", 0.3*r.Float64()), spike: r.between(50*time.Millisecond, 15*time.Second),
	}
	for i := range w.processes {
		n.cuts = append(n.cuts, make([]int, len(w.processes)))
		n.last = append(n.last, make([]time.Duration, len(w.processes)))
		n.random = append(n.random, w.random("link", i))
	}
	w.net = n
}

// send carries a message: arrive runs inside the receiver, if it ever arrives. A message to a process that has been restarted meanwhile
// arrives at the new one, which must detect that itself.
func (w *world) send(from, to *process, arrive func()) {
	n, r := w.net, w.net.random[from.address]
	lost, doubled := r.chance(n.loss), r.chance(n.double)
	switch {
	case n.cuts[from.address][to.address] > 0:
		w.hit("message_cut")
		return
	case lost:
		w.hit("message_lost")
		return
	}
	w.carry(from, to, arrive)
	if doubled {
		w.hit("message_doubled")
		w.carry(from, to, arrive)
	}
}

func (w *world) carry(from, to *process, arrive func()) {
	n, r := w.net, w.net.random[from.address]
	d, late, free := 100*time.Microsecond+r.upTo(n.delay), r.chance(n.spiky), r.chance(n.reorder)
	if late {
		w.hit("message_delayed")
		d += r.upTo(n.spike)
	}
	last := &n.last[from.address][to.address]
	switch {
	case !free:
		*last = max(*last, w.now+d)
		d = *last - w.now
	case w.now+d < *last:
		w.hit("message_overtakes")
	}
	w.add(d, func() { w.enter(to, arrive) })
}

// sever cuts the links for which cut returns true, for d.
func (w *world) sever(d time.Duration, cut func(from, to int) bool) {
	n := w.net
	heals := n.heals
	mark := func(by int) {
		for from, row := range n.cuts {
			for to := range row {
				if from != to && cut(from, to) {
					row[to] += by
					n.broken += by
				}
			}
		}
		if n.broken == 0 {
			n.whole = w.now
		}
	}
	mark(1)
	w.add(d, func() {
		if n.heals == heals {
			mark(-1)
		}
	})
}

// heal ends all cuts.
func (w *world) heal() {
	for _, row := range w.net.cuts {
		clear(row)
	}
	if w.net.broken > 0 {
		w.net.broken, w.net.whole = 0, w.now
	}
	w.net.heals++
}

// quietSince reports whether every message has passed unharmed since then.
func (n *network) quietSince(t time.Duration) bool {
	return n.loss == 0 && n.spiky == 0 && n.broken == 0 && n.whole <= t
}

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

// other is another process than p, whether it runs or not.
func (w *world) other(p *process) *process {
	i := p.random.IntN(len(w.processes) - 1)
	if i >= p.address {
		i++
	}
	return w.processes[i]
}

// hears takes in a generation. A new one is acted upon and passed on.
func (w *world) hears(p *process, generation uint64) {
	if generation <= p.gossip.known {
		return
	}
	spreads := p.gossip.rounds > 0
	p.gossip = gossip{generation, gossipRounds}
	p.braked(generation)
	if !spreads {
		w.spread(p)
	}
}

// spread sends the state to some other processes, round after round.
func (w *world) spread(p *process) {
	if p.gossip.rounds == 0 {
		return
	}
	p.gossip.rounds--
	for range gossipFanout {
		w.tell(p, w.other(p), p.gossip.known)
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
		to, known := w.other(p), p.gossip.known
		w.send(p, to, func() {
			w.hears(to, known)
			if mine := to.gossip.known; mine > known {
				w.tell(to, p, mine)
			}
		})
		w.meet(p)
	})
}

// brake is an operator who sets the brake at any process, and later lifts it.
func (w *world) brake(r random) {
	p := pick(r, w.processes)
	if !p.up || p.paused {
		return
	}
	w.braked = max(w.braked, w.judge.state.Brake.Set) + 1
	w.happens("brake_set", "brake %d is set at %s", w.braked, p.name)
	w.judge.braked(w.braked, p)
	w.hears(p, w.braked)
	w.add(r.between(4*time.Second, 15*time.Second), w.lift)
}

// lift is an operator who lifts the brake that he sees in force.
func (w *world) lift() {
	if seen := w.judge.state.Brake; seen.Active() {
		w.askLift(seen.Set)
	}
}

func (w *world) askLift(generation uint64) {
	w.judge.mayLift[generation] = true
	w.ask(&order{what: "lift", set: func(c *ledger.Command) { c.LiftBrake = &ledger.LiftBrake{Generation: generation} }})
}

// liftWhile lifts every brake that is set, until the end.
func (w *world) liftWhile() {
	if w.on["brake"] {
		w.lift()
		w.add(2*time.Second, w.liftWhile)
	}
}
