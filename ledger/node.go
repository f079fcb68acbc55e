package ledger

import (
	"fmt"
	"slices"

	"headroom/units"
)

// tx remembers the nodes that a command changes, so that a refused one leaves no trace.
type tx struct {
	s        *State
	saved    map[string]*Node // nil: the node did not exist
	revision uint64
	power    uint64
	events   []Event
}

func begin(s *State) *tx {
	return &tx{s: s, saved: map[string]*Node{}, revision: s.Revision, power: s.PowerRevision, events: s.Events}
}

func (t *tx) put(n Node) {
	if _, done := t.saved[n.Name]; !done {
		if old, ok := t.s.Nodes[n.Name]; ok {
			t.saved[n.Name] = &old
		} else {
			t.saved[n.Name] = nil
		}
	}
	t.s.Nodes[n.Name] = n
}

func (t *tx) rollback() {
	for name, old := range t.saved {
		if old == nil {
			delete(t.s.Nodes, name)
		} else {
			t.s.Nodes[name] = *old
		}
	}
	t.s.Events = t.events // record only appends, or makes a new list
	t.s.Revision, t.s.PowerRevision = t.revision, t.power
}

// see takes in what a node declares. A new node is charged its rated watts
// until its first read-back; a node that came back after a release is, too.
func (t *tx) see(c Command, x Sighting) error {
	if err := x.Validate(); err != nil {
		return err
	}
	n, known := t.s.Nodes[x.Node]
	switch {
	case known && n.MachineID != x.MachineID:
		return fmt.Errorf("node %q: %w", x.Node, ErrIdentity)
	case !known && t.s.Tree().Has(x.Domain):
		n = Node{Name: x.Node, MachineID: x.MachineID, Domain: x.Domain, Ceiling: x.Rated}
	case !known:
		return fmt.Errorf("node %q: domain %q: %w", x.Node, x.Domain, ErrUnknownDomain)
	}
	if !known && len(t.s.Nodes) >= MaxNodes {
		return fmt.Errorf("node %q: %d nodes: %w", x.Node, len(t.s.Nodes), ErrFull)
	}
	if n.Released && n.Process != x.Process {
		n.Released, n.Ceiling, n.Pending = false, x.Rated, nil
	}
	if !n.Controlled && x.Controlled {
		n.Ceiling = max(n.Ceiling, x.Rated)
	}
	if n.Process != x.Process {
		n = n.restarted()
	}
	n.Process, n.Rated, n.Floor, n.Max, n.Weight = x.Process, x.Rated, x.Floor, x.Max, x.Weight
	n.FailSafe, n.Controlled = x.FailSafe, x.Controlled
	n.Stored = max(n.Stored, x.FailSafe)
	t.put(n)
	if !known {
		t.s.recordPower(c, fmt.Sprintf("node %s seen in %s, machine %s", n.Name, n.Domain, n.MachineID))
	}
	return nil
}

// restarted is the node with another process. Process ids have no order: the
// process may be one that was replaced long ago, whose heartbeat was delayed,
// while the node's hardware was given back meanwhile. So a node that has leases
// gets its target once more under a new number, and only a process that is
// alive to take it can name that number.
func (n Node) restarted() Node {
	n.Heard = 0
	if n.Admitted {
		n = n.aim(n.Target)
		n.Proof = n.Seq
	}
	return n
}

// ack takes in a read-back.
func (t *tx) ack(a Ack) {
	if n, ok := t.s.Nodes[a.Node]; ok && n.hears(a) {
		t.put(n.acknowledged(a))
	}
}

// hears tells whether a read-back says anything about the node's charge: it is
// of the process last seen, that process holds caps, and nothing newer of it has
// counted before. (A new leader may hear an old heartbeat first: what the
// hardware has done since shows in no target that is still pending.)
func (n Node) hears(a Ack) bool {
	return n.Process == a.Process && a.Number >= n.Heard && n.Controlled && !n.Released
}

// acknowledged is the node after a read-back. It lowers the ceiling only to
// the highest of the effective cap and every committed target that the node
// may still take up: those with the sequence it names or a later one, for it
// refuses older ones and takes its own once more when a renewal arrives.
func (n Node) acknowledged(a Ack) Node {
	if a.Seq < n.Proof {
		return n.warned(a)
	}
	a.Effective, a.Stored = min(a.Effective, MaxPower), min(a.Stored, MaxPower) // sums must not overflow
	n.Heard = a.Number
	n.Pending = slices.DeleteFunc(slices.Clone(n.Pending), func(p Pending) bool { return p.Seq < a.Seq })
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
	return n
}

// warned is the node after a read-back that proves nothing but may be true: it
// raises the charge and lowers nothing.
func (n Node) warned(a Ack) Node {
	n.Stored = max(n.Stored, min(a.Stored, MaxPower))
	if e := min(a.Effective, MaxPower); e > n.Ceiling {
		n.Excess = max(n.Excess, e)
	}
	return n
}

// admit lets a node have leases, where its domain is not short (room, from
// rooms: an admission leaves every charge as it is, so one look serves them all). Its first target is its least cap.
func (t *tx) admit(c Command, name string, room map[string]units.Power) error {
	n, ok := t.s.Nodes[name]
	if !ok {
		return fmt.Errorf("admit %q: %w", name, ErrUnknownNode)
	}
	if !n.Controlled || n.Released {
		return fmt.Errorf("admit %q: %w", name, ErrNotGrantable)
	}
	if n.Admitted {
		return nil
	}
	if head := room[n.Domain]; head < 0 {
		return fmt.Errorf("admit %q: its domain is %v short: %w", name, -head, ErrOverBudget)
	}
	n.Admitted = true
	t.put(n.aim(n.Least()))
	t.s.recordPower(c, fmt.Sprintf("node %s admitted at %v", n.Name, n.Least()))
	return nil
}

// rooms are, for each domain, the least headroom of it and of those above it:
// what a node there could be given at most.
func (s *State) rooms() map[string]units.Power {
	t := s.Tree()
	if t == nil {
		return nil
	}
	totals := s.Totals()
	out := make(map[string]units.Power, len(totals))
	for _, d := range t.Domains() { // parents come first
		out[d.Name] = totals[d.Name].Headroom()
		if d.Parent != "" {
			out[d.Name] = min(out[d.Name], out[d.Parent])
		}
	}
	return out
}

// target gives a node a new cap, up or down.
func (t *tx) target(g Target) error {
	n, ok := t.s.Nodes[g.Node]
	switch {
	case !ok:
		return fmt.Errorf("target of %q: %w", g.Node, ErrUnknownNode)
	case !n.Grantable():
		return fmt.Errorf("target of %q: %w", g.Node, ErrNotGrantable)
	case g.Cap < n.Least() || g.Cap > max(n.Max, n.Least()):
		return fmt.Errorf("target of %q: %v is outside %v to %v: %w", g.Node, g.Cap, n.Least(), max(n.Max, n.Least()), ErrTarget)
	}
	t.put(n.aim(g.Cap))
	return nil
}

// lower gives a node a lower cap, as a budget cut does.
func (t *tx) lower(g Target) error {
	if n, ok := t.s.Nodes[g.Node]; ok && g.Cap > n.Target {
		return fmt.Errorf("target of %q: %v is above its %v: %w", g.Node, g.Cap, n.Target, ErrTarget)
	}
	return t.target(g)
}

// aim is the node with a new target under the next sequence number.
func (n Node) aim(p units.Power) Node {
	n.Seq++
	n.Target = p
	n.Pending = append(slices.Clone(n.Pending), Pending{Seq: n.Seq, Cap: p})
	if len(n.Pending) > maxPending {
		folded := n.Pending[1]
		folded.Cap = max(folded.Cap, n.Pending[0].Cap)
		n.Pending = append([]Pending{folded}, n.Pending[2:]...)
	}
	n.Ceiling = max(n.Ceiling, p)
	return n
}
