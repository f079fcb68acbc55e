package simulation

import "time"

// network carries messages between addresses: the servers first, then the nodes.
type network struct {
	cut       [][]bool          // [from][to]: nothing passes
	last      [][]time.Duration // newest planned arrival, where order is kept
	delay     time.Duration     // usual longest delay
	spike     time.Duration     // longest delay of a delayed message
	spiky     float64           // share of messages that are delayed
	loss      float64           // share of messages lost
	double    float64           // share of messages that arrive twice
	reorder   float64           // share of messages that may overtake others
	addresses int
}

func newNetwork(addresses int) *network {
	n := &network{addresses: addresses, delay: 2 * time.Millisecond}
	for range addresses {
		n.cut = append(n.cut, make([]bool, addresses))
		n.last = append(n.last, make([]time.Duration, addresses))
	}
	return n
}

// send carries a message: arrive runs inside the receiver, if it ever arrives.
// A message to a process that has been restarted meanwhile arrives at the new
// one, which must tell by itself.
func (w *world) send(from, to *process, arrive func()) {
	n := w.net
	switch {
	case n.cut[from.address][to.address]:
		return
	case w.chance(n.loss):
		w.hit("message_lost")
		return
	}
	w.carry(from, to, arrive)
	if w.chance(n.double) {
		w.hit("message_doubled")
		w.carry(from, to, arrive)
	}
}

func (w *world) carry(from, to *process, arrive func()) {
	n := w.net
	d := 100*time.Microsecond + w.upTo(n.delay)
	if w.chance(n.spiky) {
		w.hit("message_delayed")
		d += w.upTo(n.spike)
	}
	last := &n.last[from.address][to.address]
	if w.chance(n.reorder) {
		if w.now+d < *last {
			w.hit("message_overtakes")
		}
	} else {
		*last = max(*last, w.now+d)
		d = *last - w.now
	}
	w.add(d, func() { w.enter(to, arrive) })
}

// heal ends all cuts.
func (n *network) heal() {
	for _, row := range n.cut {
		clear(row)
	}
}
