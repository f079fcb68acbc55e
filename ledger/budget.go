package ledger

import (
	"fmt"
	"slices"
	"time"

	"headroom/budget"
	"headroom/units"
)

// SetBudget changes what a domain may draw. Lowers go in the same entry, so that a cut waits for no tick.
type SetBudget struct {
	Domain string      `json:"domain"`
	Budget units.Power `json:"budget_uw"`
	// Force accepts a budget below the domain's floor.
	Force bool `json:"force,omitempty"`
	// Until is when the budget in force now comes back, microseconds since the Unix epoch; 0: it does not.
	Until int64 `json:"until_us,omitempty"`
	// Clock is set when the budget changes by itself.
	Clock *Clock `json:"clock,omitempty"`
	// Targets may only lower.
	Targets []Target `json:"targets,omitempty"`
}

// BudgetChange is one line of a budget's history. A domain that was added came
// from 0 W, one that was removed went to 0 W.
type BudgetChange struct {
	Revision uint64      `json:"revision"`
	At       int64       `json:"at_us"`
	Actor    string      `json:"actor"`
	Domain   string      `json:"domain"`
	From     units.Power `json:"from_uw"`
	To       units.Power `json:"to_uw"`
	Reason   string      `json:"reason,omitempty"`
	// Until as the change asked for.
	Until int64 `json:"until_us,omitempty"`
}

func (t *tx) setBudget(c Command, b *SetBudget) error {
	d, ok := t.Domains[b.Domain]
	switch {
	case !ok:
		return fmt.Errorf("domain %q: %w", b.Domain, ErrUnknownDomain)
	case b.Budget <= 0:
		return fmt.Errorf("domain %q: %w", b.Domain, budget.ErrAmount)
	case b.Until != 0 && b.Until <= c.At:
		return fmt.Errorf("domain %q: until %s: %w", b.Domain, time.UnixMicro(b.Until).UTC().Format(time.RFC3339), ErrPast)
	}
	if b.Clock != nil {
		if err := t.dueBudget(c, b); err != nil {
			return err
		}
	}
	if b.Budget < d.Budget && !b.Force && b.Clock == nil {
		if err := t.floorError(b.Domain, b.Budget); err != nil {
			return err
		}
	}
	for _, g := range b.Targets {
		if err := t.lower(g); err != nil {
			return err
		}
	}
	return t.changeBudget(c, d, b)
}

// floorError returns a *FloorError if a budget is below the floor of its domain.
func (s *State) floorError(domain string, b units.Power) error {
	sum := s.Totals()[domain]
	if b >= sum.Floor {
		return nil
	}
	return &FloorError{Domain: domain, Budget: b, Unmanaged: sum.Unmanaged + sum.Boot, Floor: sum.Floor, Nodes: sum.Nodes}
}

func (t *tx) changeBudget(c Command, d Domain, b *SetBudget) error {
	was := d.Budget
	d.Budget = b.Budget
	what := fmt.Sprintf("budget %s %v -> %v", d.Name, was, b.Budget)
	switch {
	case b.Until != 0 && d.Back != nil:
		d.Back = &Back{At: b.Until, Budget: d.Back.Budget} // what was temporary before does not come back
	case b.Until != 0:
		d.Back = &Back{At: b.Until, Budget: was}
	case b.Clock != nil && b.Clock.Schedule != "" && d.Back != nil:
		// A schedule runs on below an operator's temporary budget, and comes into force after it.
		what = fmt.Sprintf("budget %s stays at %v for its time, then %v -> %v", d.Name, was, d.Back.Budget, b.Budget)
		d.Back, d.Budget = &Back{At: d.Back.At, Budget: b.Budget}, was
	default:
		d.Back = nil
	}
	if err := d.Validate(); err != nil {
		return err
	}
	put(t, t.Domains, d.Name, d.marked())
	if b.Clock != nil {
		t.carriedOut(b.Clock)
	} else { // a raise by the clock that still waits for its quorum must not come after an operator's word
		t.supersede(d.Name, c.At)
	}
	t.recordPower(c, what)
	t.changed(c, BudgetChange{Domain: d.Name, From: was, To: d.Budget, Until: b.Until})
	return nil
}

// changed writes a line of the history, for the revision just made.
func (t *tx) changed(c Command, x BudgetChange) {
	x.Revision, x.At, x.Actor, x.Reason = t.Revision, c.At, c.Actor, c.Reason
	t.Changes = append(t.Changes, x)
	if over := len(t.Changes) - keptChanges; over > 0 {
		t.ChangesFrom = t.Changes[over-1].Revision
		t.Changes = bounded(t.Changes, keptChanges)
	}
}

// BudgetAt is the budget of a domain as it was at a revision; false when there
// was no such domain then, or the history does not reach so far back.
func (s *State) BudgetAt(domain string, revision uint64) (units.Power, bool) {
	if revision > s.Revision || revision < s.ChangesFrom || s.ChangesFrom == 0 {
		return 0, false
	}
	found := s.Domains[domain].Budget
	for _, x := range slices.Backward(s.Changes) {
		switch {
		case x.Domain != domain:
		case x.Revision <= revision:
			return x.To, x.To > 0
		default:
			found = x.From
		}
	}
	return found, found > 0
}
