package leader

import (
	"slices"
	"time"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

// keptConfirmations is how many budget changes are followed until every node has confirmed.
const keptConfirmations = 64

// confirmations follow budget changes until every lowered node has read back its new cap.
// They are gone with the leadership.
type confirmations struct {
	changes []*confirmation
}

// confirmation follows one budget change.
type confirmation struct {
	revision  uint64
	committed time.Duration
	nodes     []Awaited
}

// follow begins to follow a change that has just committed.
func (c *confirmations) follow(s *ledger.State, now time.Duration, revision uint64, lowered []ledger.Target) {
	change := &confirmation{revision: revision, committed: now}
	for _, t := range lowered {
		change.nodes = append(change.nodes, Awaited{Node: t.Node, To: ledger.Pending{Seq: s.Nodes[t.Node].Seq, Cap: t.Cap}})
	}
	c.changes = append(c.changes, change)
	if len(c.changes) > keptConfirmations {
		c.changes = slices.Clone(c.changes[1:])
	}
}

// heard takes in a report that proves a sequence number, of a node whose target is now the
// given one: it confirms when that is the number of the change or a later one, and its hardware
// holds no more than the change's cap, or the target that came after.
func (c *confirmations) heard(r ledger.Report, seq uint64, target units.Power, at time.Duration) {
	if !r.EffectiveKnown {
		return
	}
	for _, change := range c.changes {
		for i := range change.nodes {
			a := &change.nodes[i]
			if a.After == 0 && a.Node == r.Node && seq >= a.To.Seq && r.Effective <= max(a.To.Cap, target)+budget.Quantum {
				a.After = max(1, at-change.committed)
			}
		}
	}
}

// Confirmations is what is known about a revision, and false when it is not followed here.
func (l *Leader) Confirmations(revision uint64) ([]Awaited, bool) {
	for _, change := range l.waits.changes {
		if change.revision == revision {
			return slices.Clone(change.nodes), true
		}
	}
	return nil, false
}
