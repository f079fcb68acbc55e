package coordinator

import (
	"slices"
	"time"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

// confirmations follow budget changes until every lowered node has read back
// its new cap. They are the desk's, and gone with the leadership.
type confirmations struct {
	changes []*confirmation
}

// confirmation follows one budget change.
type confirmation struct {
	revision  uint64
	committed time.Time
	nodes     []*awaited
}

type awaited struct {
	node  string
	to    ledger.Pending
	after time.Duration // 0 while outstanding
}

// follow begins to follow a committed change.
func (c *confirmations) follow(revision uint64, committed time.Time, lowered []awaited) {
	change := &confirmation{revision: revision, committed: committed}
	for _, a := range lowered {
		change.nodes = append(change.nodes, &a)
	}
	c.changes = append(c.changes, change)
	if len(c.changes) > keptConfirmations {
		c.changes = slices.Clone(c.changes[1:])
	}
}

// heard takes in a report of a node whose target is now the given one: it
// confirms when it names the sequence of the change or a later one, and its
// hardware holds no more than the change's cap, or the target that came after.
func (c *confirmations) heard(r ledger.Report, target units.Power, at time.Time) {
	if !r.EffectiveKnown {
		return
	}
	for _, change := range c.changes {
		for _, a := range change.nodes {
			if a.after == 0 && a.node == r.Node && r.Highest.Seq >= a.to.Seq && r.Effective <= max(a.to.Cap, target)+budget.Quantum {
				a.after = max(1, at.Sub(change.committed))
			}
		}
	}
}

// of copies what is known about a revision, and false when it is not followed here.
func (c *confirmations) of(revision uint64) ([]awaited, bool) {
	for _, change := range c.changes {
		if change.revision == revision {
			out := make([]awaited, 0, len(change.nodes))
			for _, a := range change.nodes {
				out = append(out, *a)
			}
			return out, true
		}
	}
	return nil, false
}
