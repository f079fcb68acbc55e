package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"headroom/budget"
	"headroom/units"
)

// Why explains a node's cap.
type Why struct {
	// By is one of the words of budget.Bound, or "drained", "brake", "restored", "sprint" or "held".
	By string
	// Domain that has no headroom, when By is budget.ByDomain.
	Domain string
	// Words is the explanation as a sentence.
	Words string
	// Planned is the cap in the current plan; nil if the node's cap cannot change now.
	Planned *units.Power
	// Spare is what the plan leaves free in each domain above the node.
	Spare map[string]units.Power
}

// Moved returns the newest changes of the audit log that may have moved a node's cap, newest
// first: what operators, schedules and the clock did to the node, to a domain above it, to the
// policy or to another node there. They are in the log, so every leader knows them.
func Moved(s *State, node string, most int) []Event {
	above := s.above(s.Nodes[node].Domain)
	var out []Event
	for _, e := range slices.Backward(s.Events) {
		kind, rest, _ := strings.Cut(e.What, " ")
		name, _, _ := strings.Cut(rest, " ")
		moves := kind == "policy" || kind == "brake" || (kind == "budget" || kind == "domain") && slices.Contains(above, name)
		if kind == "node" {
			n, known := s.Nodes[name]
			moves = !known || slices.ContainsFunc(s.above(n.Domain), func(d string) bool { return slices.Contains(above, d) })
		}
		if moves && len(out) < most && !strings.HasPrefix(e.Actor, "coordinator/") {
			out = append(out, e)
		}
	}
	return out
}

// Explain returns why a node has its cap, from the inputs that the tick uses.
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
		w.By, w.Words = "brake", "the brake is set: every node holds its fail-safe cap"
	case w.Planned == nil && n.Sprint != nil:
		w.By, w.Words = "sprint", fmt.Sprintf("it is in sprint %s: its base cap does not change until the sprint ends", n.Sprint.ID)
	case w.Planned == nil:
		w.Words = fmt.Sprintf("its cap cannot change now; it is charged %v", n.Charge())
	case n.Drained:
		w.By, w.Words = "drained", fmt.Sprintf("it is drained: it is lowered to its lowest cap, %v", n.Least())
	case s.Restored && *w.Planned > n.Target:
		w.By, w.Words = "restored", "the cluster was restored: nothing is raised until every node has confirmed its cap"
	case w.By == budget.ByMost && held:
		w.By, w.Words = "held", fmt.Sprintf("it is held at %v: jobs on other nodes gain more from the power", most)
	case w.By == budget.ByMost:
		w.Words = fmt.Sprintf("it is at its highest cap, %v", n.Most())
	case w.By == budget.ByLeast:
		w.Words = fmt.Sprintf("its demand is at or below its lowest cap, %v", n.Least())
	case w.By == budget.ByDemand:
		w.Words = "its demand is met"
	default:
		w.Words = fmt.Sprintf("%s has no headroom", w.Domain)
	}
	return w
}
