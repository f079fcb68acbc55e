package ledger

import (
	"fmt"

	"headroom/units"
)

// admit lets a node have leases, where its domain is not short (room, from
// rooms). Its first target is its fail-safe cap: an admission leaves every charge
// as it is, so one look serves them all.
func (t *tx) admit(c Command, name string, room map[string]units.Power) error {
	n, ok := t.node(name)
	switch {
	case !ok:
		return fmt.Errorf("admit %q: %w", name, ErrUnknownNode)
	case !n.Controlled || n.Released || n.Off != "":
		return fmt.Errorf("admit %q: %w", name, ErrNotGrantable)
	case n.Admitted:
		return nil
	}
	if head := room[n.Domain]; head < 0 {
		return fmt.Errorf("admit %q: its domain is %v over its budget: %w", name, -head, ErrOverBudget)
	}
	n.Admitted = true
	n = n.aim(n.lowest())
	t.putNode(n)
	t.recordPower(c, fmt.Sprintf("node %s admitted at %v", n.Name, n.Target))
	return nil
}

// rooms are, for each domain, the least headroom of it and of those above it:
// what a node there could be given at most.
func (s *State) rooms(totals map[string]Totals) map[string]units.Power {
	t := s.Tree()
	if t == nil {
		return nil
	}
	out := make(map[string]units.Power, len(totals))
	for _, d := range t.Domains() { // parents come first
		out[d.Name] = totals[d.Name].Headroom()
		if d.Parent != "" {
			out[d.Name] = min(out[d.Name], out[d.Parent])
		}
	}
	return out
}

// target gives a node a new cap, up or down. It goes up only where no domain is
// short by these sums (nil where none is), even if the node is charged more already: that is about to
// fall, and what falls belongs to the domain until it fits (P1).
func (t *tx) target(g Target, totals map[string]Totals) error {
	n, ok := t.node(g.Node)
	switch {
	case !ok:
		return fmt.Errorf("target of %q: %w", g.Node, ErrUnknownNode)
	case !n.Grantable():
		return fmt.Errorf("target of %q: %w", g.Node, ErrNotGrantable)
	case n.Sprint != nil && g.Cap == n.Target: // ends its sprint and leaves it where the plan had it
	case g.Cap < n.Least() || g.Cap > n.Most():
		return fmt.Errorf("target of %q: %v is outside %v to %v: %w", g.Node, g.Cap, n.Least(), n.Most(), ErrTarget)
	case g.Cap > n.Target && t.held() != nil:
		return fmt.Errorf("target of %q: %w", g.Node, t.held())
	case g.Cap > n.Target:
		if err := t.shortAbove(n, totals); err != nil {
			return fmt.Errorf("target of %q: %w", g.Node, err)
		}
	}
	t.replaceNode(n, t.retarget(n, g.Cap))
	return nil
}

// lower gives a node a lower cap, as a budget cut does.
func (t *tx) lower(g Target) error {
	if n, ok := t.node(g.Node); ok && g.Cap > n.Target {
		return fmt.Errorf("target of %q: %v is above its %v: %w", g.Node, g.Cap, n.Target, ErrTarget)
	}
	return t.target(g, nil)
}

// shortAbove is the error of a domain that is over its budget and in which the
// node is charged; nil when all have room.
func (s *State) shortAbove(n Node, totals map[string]Totals) error {
	if len(totals) == 0 {
		return nil
	}
	for _, name := range append(s.above(n.Domain), s.above(n.From)...) {
		if sum := totals[name]; sum.Headroom() < 0 {
			return sum.over(name)
		}
	}
	return nil
}

// over is the error of a domain that is charged more than its budget.
func (t Totals) over(domain string) error {
	return &OverBudgetError{Domain: domain, Over: -t.Headroom(), Budget: t.Budget - t.Unmanaged - t.Boot, Reserved: t.Reserved}
}

// held says why nothing may be raised now; nil when it may.
func (s *State) held() error {
	switch {
	case s.Brake.Active():
		return ErrBraked
	case s.Restored:
		return ErrRestored
	}
	return nil
}

// fits is promise P1: no grant may leave a domain over its budget, unless the
// domain was over it before and is now charged no more.
func (s *State) fits(before map[string]Totals) error {
	after := s.Totals()
	if !short(after) {
		return nil
	}
	for _, d := range s.Tree().Domains() {
		now, was := after[d.Name], before[d.Name]
		if now.Headroom() < 0 && now.Reserved > was.Reserved {
			return now.over(d.Name)
		}
	}
	return nil
}
