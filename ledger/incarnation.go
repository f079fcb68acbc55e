package ledger

import (
	"fmt"
	"maps"
	"slices"

	"headroom/lease"
	"headroom/units"
)

// Recover makes the state of a restored snapshot, or of a recovered quorum, fit
// to lead again: what was committed after it is not known any more. A new
// incarnation begins, above every leadership that nodes may have heard of from
// this log; every node is charged its rated watts until it shows what it holds,
// nothing is raised before, and the sprint budgets start empty. The operator
// names the budget of each domain again: the snapshot may hold an older, higher
// one (promise P4). at is the wall clock in microseconds, actor and reason are
// for the audit log.
func (s *State) Recover(budgets map[string]units.Power, at int64, actor, reason string) error {
	for _, name := range slices.Sorted(maps.Keys(s.Domains)) {
		if budgets[name] <= 0 {
			return fmt.Errorf("ledger: recover: domain %q: %w", name, ErrBudgetNotNamed)
		}
	}
	for name := range budgets {
		if !s.knows(name) {
			return fmt.Errorf("ledger: recover: domain %q: %w", name, ErrUnknownDomain)
		}
	}
	t := begin(s)
	for name, d := range s.Domains {
		d.Budget, d.Back = budgets[name], nil
		if err := d.validate(); err != nil {
			t.rollback()
			return fmt.Errorf("ledger: recover: %w", err)
		}
		put(t, t.Domains, name, d)
	}
	t.incarnate(s.Epoch.Incarnation + 1)
	t.recordPower(Command{At: at, Actor: actor, Reason: reason}, fmt.Sprintf("incarnation %d begins", s.Epoch.Incarnation))
	return nil
}

// incarnate begins an incarnation. The next leadership's terms are compared within it.
func (t *tx) incarnate(number uint64) {
	t.Epoch, t.Restored = lease.Epoch{Incarnation: number}, true
	for _, n := range t.NodesByName() {
		if n.Off != "" || !n.Controlled || n.Released {
			continue
		}
		n = n.aim(max(n.Target, n.Least()))
		n.Ceiling, n.Unproven, n.Proof, n.Heard = max(n.Ceiling, n.Rated), n.Admitted, n.Seq, 0
		n.Pending, n.Owes = []Pending{{Seq: n.Seq, Cap: n.Target}}, ""
		t.putNode(n)
	}
	for id, p := range t.Sprints {
		if p.Open() {
			p.Closed, p.Refunded = true, 0
			put(t, t.Sprints, id, p)
		}
	}
	for name, d := range t.Domains {
		if d.Sprint != nil {
			put(t, t.Domains, name, d.emptied())
		}
	}
}

// Reincarnate raises the incarnation of a restored state above one that a node
// has reported: the node has heard of leaderships that the snapshot does not know.
type Reincarnate struct {
	// Above is the incarnation that the node reported.
	Above uint64 `json:"above"`
}

// reincarnate is for restored states only: a group that nodes have left for a
// newer incarnation must not overtake it.
func (t *tx) reincarnate(c Command, x *Reincarnate) error {
	switch {
	case !t.Restored:
		return fmt.Errorf("incarnation %d: %w", x.Above, ErrIncarnation)
	case x.Above < t.Epoch.Incarnation:
		return nil
	}
	t.incarnate(x.Above + 1)
	t.recordPower(c, fmt.Sprintf("incarnation %d begins: a node has heard of %d", t.Epoch.Incarnation, x.Above))
	return nil
}

// proven ends the restored state once every node that may be granted has shown what it holds.
func (t *tx) proven() {
	if !t.Restored {
		return
	}
	for _, n := range t.Nodes {
		if n.Unproven {
			return
		}
	}
	t.Restored = false
}
