package ledger

import (
	"fmt"
	"time"

	"headroom/budget"
	"headroom/units"
)

// Why says what keeps a node's cap where it is.
type Why struct {
	// By is one of the words of budget.Bound, or "drained", "brake", "restored", "sprint" or "held".
	By string
	// Domain that is full, when By is budget.ByDomain.
	Domain string
	// Words is the whole of it as a sentence.
	Words string
	// Planned is what the plan of this moment gives the node; nil when it may not be moved.
	Planned *units.Power
	// Spare is what the plan leaves free in each domain above the node.
	Spare map[string]units.Power
}

// Explain says why a node of the state has its cap, from the same inputs as the
// tick that gave it.
func Explain(s *State, t *Table, now time.Duration, node string) Why {
	n := s.Nodes[node]
	totals := s.Totals()
	nodes, tree := planned(s, t, now, t.roll(s), totals), s.planTree(totals)
	plan := budget.Divide(tree, nodes, budget.Policy(s.Policy))
	b, _ := budget.Explain(tree, nodes, plan, node)
	w := Why{By: b.By, Domain: b.Domain, Spare: b.Spare}
	if planned, ok := plan.Caps[node]; ok {
		w.Planned = &planned
	}
	most, held := t.Held(node, now)
	switch {
	case s.Brake.Active():
		w.By, w.Words = "brake", "the brake is set: every node goes to its fail-safe cap"
	case w.Planned == nil && n.Sprint != nil:
		w.By, w.Words = "sprint", fmt.Sprintf("it is in sprint %s: its base cap stays until the sprint is over", n.Sprint.ID)
	case w.Planned == nil:
		w.Words = fmt.Sprintf("it may not be moved now and is charged %v", n.Charge())
	case n.Drained:
		w.By, w.Words = "drained", fmt.Sprintf("it is drained: it goes to its least cap %v", n.Least())
	case s.Restored && *w.Planned > n.Target:
		w.By, w.Words = "restored", "the cluster was restored: nothing is raised until every node has shown what it holds"
	case w.By == budget.ByMost && held:
		w.By, w.Words = "held", fmt.Sprintf("it is held at %v: a watt is worth more to the jobs of other nodes", most)
	case w.By == budget.ByMost:
		w.Words = fmt.Sprintf("it is at its most, %v", n.Most())
	case w.By == budget.ByLeast:
		w.Words = fmt.Sprintf("it needs no more than its least cap, %v", n.Least())
	case w.By == budget.ByDemand:
		w.Words = "its demand is met"
	default:
		w.Words = fmt.Sprintf("%s is full", w.Domain)
	}
	return w
}
