package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/lease"
	"headroom/units"
)

// Recover makes the state of a restored snapshot, or of a recovered quorum, fit
// to lead again: what was committed after it is not known any more. A new
// incarnation begins, above every leadership that nodes may have heard of from
// this log, and another one than if the same snapshot had been restored before.
// Every node is charged its rated watts until it shows what it holds, nothing is
// raised before, and the sprint budgets start empty. The operator names the budget
// of each domain again: the snapshot may hold an older, higher one (promise P4).
// It holds until a schedule is due next. Tokens are dropped but
// for those that keep names, by id or name: which were revoked since is not known.
// at is the wall clock in microseconds, actor and reason are for the audit log.
//
//headroom:apply
func (s *State) Recover(budgets map[string]units.Power, at int64, actor, reason string, keep ...string) error {
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
	c := Command{At: at, Actor: actor, Reason: reason}
	if err := t.dropTokens(c, keep); err != nil {
		t.rollback()
		return fmt.Errorf("ledger: recover: %w", err)
	}
	t.incarnate(numberAt(at, s.Epoch.Incarnation))
	t.Unknown = LeaseMost
	t.recordPower(c, fmt.Sprintf("incarnation %d begins", s.Epoch.Incarnation))
	for _, name := range slices.Sorted(maps.Keys(s.Domains)) {
		d := s.Domains[name]
		was := d.Budget
		d.Budget, d.Back = budgets[name], nil
		if err := d.Validate(); err != nil {
			t.rollback()
			return fmt.Errorf("ledger: recover: %w", err)
		}
		put(t, t.Domains, name, d.marked())
		t.changed(c, BudgetChange{Domain: name, From: was, To: d.Budget})
		t.supersede(name, at)
	}
	return nil
}

// numberAt is the incarnation that begins at a wall-clock time, above the one
// before: its milliseconds since the Unix epoch. Two that begin from one snapshot must
// not share a number, or nodes would name to one what the other has granted them.
// A clock that is slow gives no number above the one before; then the microseconds,
// in which no two beginnings agree, say how far above it.
func numberAt(at int64, before uint64) uint64 {
	clock := uint64(max(0, at)) / uint64(time.Millisecond/time.Microsecond)
	if clock > before && clock <= MaxIncarnation/2 {
		return clock
	}
	return beyond(before, at)
}

// beyond is an incarnation above one that is known, and most likely another one
// than anybody else begins above it.
func beyond(before uint64, at int64) uint64 { return before + 1 + uint64(max(0, at))%maxSkip }

// maxSkip bounds how far that goes.
const maxSkip = 1 << 16

// incarnate begins an incarnation. The next leadership's terms are compared
// within it. What was said before of machines that are off counts no more: they
// may have been switched on since.
func (t *tx) incarnate(number uint64) {
	t.Epoch, t.Restored, t.Began = lease.Epoch{Incarnation: number}, true, t.Elapsed
	for _, n := range t.NodesByName() {
		n.Off, n.Sprint, n.Owes = "", nil, ""
		if n.Controlled && !n.Released {
			n = n.doubted()
		}
		t.putNode(n)
	}
	for id, p := range t.Sprints {
		if p.Open() {
			p.Closed, p.Ended, p.Refunded = true, cmp.Or(p.Ended, "a new incarnation began"), 0
			put(t, t.Sprints, id, p)
		}
	}
	for name, d := range t.Domains {
		if d.Sprint != nil {
			put(t, t.Domains, name, d.emptied())
		}
	}
}

// doubted is a node of which the log does not know what it was granted last: it
// is charged its rated watts, and only a lease of this incarnation can prove
// more. That lease is for its fail-safe cap, so that it raises no node.
func (n Node) doubted() Node {
	n.Ceiling = max(n.Ceiling, n.Full())
	n = n.questioned()
	n.Pending = []Pending{{Seq: n.Seq, Cap: n.Target}}
	return n
}

// MaxIncarnation is above what counting or a clock can have come to. A node that
// reports more is not believed: there would be no room above it.
const MaxIncarnation = 1 << 43

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
	case !t.Restored || x.Above > MaxIncarnation:
		return fmt.Errorf("incarnation %d: %w", x.Above, ErrIncarnation)
	case x.Above < t.Epoch.Incarnation:
		return nil
	}
	t.incarnate(beyond(x.Above, c.At))
	t.recordPower(c, fmt.Sprintf("incarnation %d begins: a node has heard of %d", t.Epoch.Incarnation, x.Above))
	return nil
}

// proven ends the restored state once every node that may be granted has shown what it holds.
func (t *tx) proven() {
	if !t.Restored || t.Elapsed < t.Began+t.unknownLeases() {
		return
	}
	for _, n := range t.Nodes {
		if n.Unproven {
			return
		}
	}
	t.Restored = false
}
