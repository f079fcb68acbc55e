package ledger

import (
	"fmt"

	"headroom/units"
)

// see takes in what a node declares. A new node is charged its rated watts
// until its first read-back; a node that came back after a release or after it
// was off is, too.
func (t *tx) see(c Command, x Sighting) error {
	if err := x.Validate(); err != nil {
		return err
	}
	n, known := t.node(x.Node)
	switch {
	case known && n.MachineID != x.MachineID:
		return fmt.Errorf("node %q: %w", x.Node, ErrIdentity)
	case !known && t.knows(x.Domain):
		n = Node{Name: x.Node, MachineID: x.MachineID, Domain: x.Domain, Seq: t.SeqFloor}
	case !known:
		return fmt.Errorf("node %q: domain %q: %w", x.Node, x.Domain, ErrUnknownDomain)
	}
	if !known && len(t.Nodes) >= MaxNodes {
		return fmt.Errorf("node %q: %d nodes: %w", x.Node, len(t.Nodes), ErrFull)
	}
	was := n
	n = t.rated(n, x.watts())
	if !known {
		n.Ceiling = n.Full()
	}
	released := n.Released && n.Process != x.Process
	if released || n.Off != "" {
		n.Released, n.Off, n.Ceiling, n.Pending = false, "", n.Full(), nil
	}
	if !n.Controlled && x.Controlled {
		n.Ceiling = max(n.Ceiling, n.Full())
	}
	if n.Process != x.Process {
		n.Heard = 0
	}
	again := n.Process != x.Process || n.Off != was.Off
	n.Process, n.Weight, n.Controlled = x.Process, x.Weight, x.Controlled
	n.Stored = max(n.Stored, n.FailSafe)
	if known {
		again = again || n.Controlled && !was.Controlled || n.FailSafeCap() != was.FailSafeCap()
		n.Stored = max(n.Stored, was.FailSafeCap())
	}
	if again && n.Admitted {
		n = t.renumber(n, n.Target)
	}
	if !n.Controlled {
		n.From, n.Unproven = "", false // it acknowledges nothing, and is charged its rated watts
		n = t.forfeit(n)
	}
	switch waits := !n.Admitted && n.Controlled && !n.Released; {
	case waits && (x.Granted || t.Restored || released):
		n = n.doubted()
	case waits && known && again:
		n = n.questioned()
	}
	t.putNode(n)
	if n.Claimed() > 0 && n.Claimed() != was.Claimed() {
		t.record(c, fmt.Sprintf("node %s says that it is rated %v; accepted are %v, the rest waits for an operator", n.Name, n.Claimed(), n.Rated))
	}
	if !known {
		t.recordPower(c, fmt.Sprintf("node %s seen in %s, machine %s", n.Name, n.Domain, n.MachineID))
	}
	return nil
}

// renumber aims the node under a number that its read-backs must name before
// they lower anything.
//
// So it is with a node whose process is another one. Process ids have no order:
// the process may be one that was replaced long ago, whose heartbeat was delayed,
// while the node's hardware was given back meanwhile; only one that is alive to
// take the new number can name it. And so with a node that is to store another
// fail-safe cap: once it names the number, it takes no lease with the old one.
// A sprint is over with it: a new process does not know whether it began.
func (t *tx) renumber(n Node, to units.Power) Node {
	n = t.retarget(n, to)
	n.Proof = n.Seq
	return n
}

// questioned is a node that waits and has another process. Which of two processes lives
// is not known: a heartbeat of one that was replaced may be late, and what it read back
// may be over. So the node is taken in at its fail-safe cap, which raises nobody, and
// only a read-back that names that lease lowers what it is charged.
func (n Node) questioned() Node {
	n = n.aim(n.lowest())
	n.Admitted, n.Unproven, n.Proof, n.Heard = true, true, n.Seq, 0
	return n
}

// ack takes in a read-back.
func (t *tx) ack(a Ack) {
	n, ok := t.node(a.Node)
	if ok && n.hears(a) {
		t.takeAck(n, a)
	}
}

// takeAck takes in a read-back that a node hears, and returns the node after it.
func (t *tx) takeAck(n Node, a Ack) Node {
	was := n
	n = n.acknowledged(a)
	for _, e := range a.Ended { // measured is measured, whatever the read-back proves beside it
		t.spent(n, e)
	}
	if a.Seq >= n.Proof {
		n = t.returned(n, a)
	}
	t.replaceNode(was, n)
	return n
}

// hears reports whether a read-back says anything about the node's charge: it is
// of the process last seen, that process holds caps, and nothing newer of it has
// counted before. (A new leader may hear an old heartbeat first: what the
// hardware has done since shows in no target that is still pending.)
func (n Node) hears(a Ack) bool {
	return n.Process == a.Process && a.Number >= n.Heard && n.Controlled && !n.Released && n.Off == ""
}

// acknowledged is the node after a read-back. It lowers the ceiling only to
// the highest of the effective cap and every committed target that the node
// may still take up: those with the sequence it names or a later one, for it
// refuses older ones and takes its own once more when a renewal arrives.
func (n Node) acknowledged(a Ack) Node {
	if a.Seq < n.Proof {
		return n.warned(a)
	}
	a.Effective, a.Stored = n.believed(a.Effective), n.believed(a.Stored) // sums must not overflow, and no node takes all by its word
	n.Heard, n.Unproven = a.Number, false
	for len(n.Pending) > 0 && n.Pending[0].Seq < a.Seq { // oldest first
		n.Pending = n.Pending[1:]
	}
	still := a.Effective
	for _, p := range n.Pending {
		still = max(still, p.Cap)
	}
	n.Ceiling = max(min(n.Ceiling, still), n.Target)
	n.Stored = a.Stored
	n.Excess = 0
	if a.Effective > n.Ceiling {
		n.Excess = a.Effective
	}
	if n.From != "" && a.Seq >= n.FromSeq {
		n.From, n.FromSeq = "", 0
	}
	return n
}

// warned is the node after a read-back that proves nothing but may be true: it
// raises the charge and lowers nothing.
func (n Node) warned(a Ack) Node {
	n.Stored = max(n.Stored, n.believed(a.Stored))
	if e := n.believed(a.Effective); e > n.Ceiling {
		n.Excess = max(n.Excess, e)
	}
	return n
}

// Lapse tells that a lost node can hold no lease any more: it was not granted
// one for so long that lease, drift, watchdog, restart and settling are over.
type Lapse struct {
	Node string `json:"node"`
	// Seq of the node when the leader began to wait; a newer one makes the lapse void.
	Seq uint64 `json:"seq"`
}

// lapse lowers the charge of a lost node to its fail-safe cap, where its domain
// says so. Whatever was pending cannot be taken up any more.
func (t *tx) lapse(c Command, x Lapse) error {
	n, ok := t.node(x.Node)
	switch {
	case !ok:
		return fmt.Errorf("lapse of %q: %w", x.Node, ErrUnknownNode)
	case !t.lapsing(n):
		return fmt.Errorf("lapse of %q: %w", x.Node, ErrLostCharge)
	case !n.Grantable() || n.Seq != x.Seq || n.Unproven || !n.high():
		return nil
	}
	was := n.Charge()
	n = t.renumber(n, n.lowest())
	n.Pending = []Pending{{Seq: n.Seq, Cap: n.Target}}
	n.Ceiling = max(n.Target, n.Stored)
	t.putNode(n)
	t.recordPower(c, fmt.Sprintf("node %s is lost and its lease over: charged %v instead of %v", n.Name, n.Charge(), was))
	return nil
}

// lapsing reports whether every domain that the node is charged in lowers the charge of lost nodes.
func (s *State) lapsing(n Node) bool {
	return s.lostCharge(n.Domain) == LostFailSafe && (n.From == "" || s.lostCharge(n.From) == LostFailSafe)
}

// high reports whether the node may hold more than it falls to by itself.
func (n Node) high() bool { return n.Ceiling > max(n.lowest(), n.Stored) }

// retarget aims the node anew, and ends its share of a sprint if it has one.
func (t *tx) retarget(n Node, to units.Power) Node {
	n = n.aim(to)
	return t.endShare(n)
}
