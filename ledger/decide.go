package ledger

import (
	"maps"
	"slices"
	"time"

	"headroom/budget"
	"headroom/units"
)

// stagedAdmissions bounds how many nodes one tick admits, so that a site that
// boots cold comes up over some seconds and every step is seen in the log.
const stagedAdmissions = 64

// Decide is the leader's tick as a function: what to commit now, from the
// committed state and what was heard. It changes nothing. The caller fills in
// the epoch and how much time has passed since its last tick entry.
func Decide(s *State, t *Table, now time.Duration) Tick {
	tick := Tick{Seen: t.sightings(s)}
	next := s.Clone()
	tx := begin(next)
	for _, x := range tick.Seen {
		if tx.see(Command{}, x) != nil {
			continue // Validate and identity were checked: only a full table is left.
		}
	}
	tick.Acks = t.acks(next)
	for _, a := range tick.Acks {
		tx.ack(a)
	}
	room := next.rooms()
	tick.Admit = admissions(next, t, room, now)
	for _, name := range tick.Admit {
		if tx.admit(Command{}, name, room) != nil {
			tick.Admit = nil // no room after all: next tick
			break
		}
	}
	tick.Targets = targets(next, t, now)
	return tick
}

// Urgent tells whether a tick should not wait for its second after this node
// was heard: its read-back changes a charge, or it is new.
func Urgent(s *State, t *Table, node string) bool {
	e, ok := t.nodes[node]
	return ok && (s.news(e.report.Sighting) || s.changes(e.report.ack()))
}

// sightings are the heard nodes that the log does not know as they now declare themselves.
func (t *Table) sightings(s *State) []Sighting {
	var seen []Sighting
	for _, name := range t.names() {
		if x := t.nodes[name].report.Sighting; s.news(x) && len(s.Nodes)+len(seen) < MaxNodes {
			seen = append(seen, x)
		}
	}
	return seen
}

// news tells whether a declaration is one to commit: valid, of this machine, and not what the log has.
func (s *State) news(x Sighting) bool {
	n, known := s.Nodes[x.Node]
	switch {
	case x.Validate() != nil, known && n.MachineID != x.MachineID, !known && !s.knows(x.Domain):
		return false
	case known:
		x.Domain = n.Domain // a node does not move itself between domains
	}
	return !known || n.declared() != x
}

func (s *State) knows(domain string) bool {
	_, ok := s.Domains[domain]
	return ok
}

// declared is the node's declaration as the log has it.
func (n Node) declared() Sighting {
	return Sighting{
		Node: n.Name, MachineID: n.MachineID, Process: n.Process, Domain: n.Domain,
		Rated: n.Rated, Floor: n.Floor, Max: n.Max, FailSafe: n.FailSafe, Weight: n.Weight, Controlled: n.Controlled,
	}
}

// acks are the read-backs that change what a node is charged.
func (t *Table) acks(s *State) []Ack {
	var acks []Ack
	for _, name := range t.names() {
		if a, ok := t.nodes[name].report.ack(); s.changes(a, ok) {
			acks = append(acks, a)
		}
	}
	return acks
}

// ack is the report as a read-back, and false while the node does not know what its hardware holds.
func (r Report) ack() (Ack, bool) {
	return Ack{Node: r.Node, Process: r.Process, Number: r.Number, Seq: r.Highest.Seq, Effective: r.Effective, Stored: r.Stored}, r.EffectiveKnown
}

// changes tells whether a read-back would change what its node is charged.
func (s *State) changes(a Ack, known bool) bool {
	n, ok := s.Nodes[a.Node]
	if !known || !ok || !n.hears(a) {
		return false
	}
	after := n.acknowledged(a)
	return after.Ceiling != n.Ceiling || after.Excess != n.Excess || after.Stored != n.Stored
}

// admissions are the nodes that wait and may come in now.
func admissions(s *State, t *Table, room map[string]units.Power, now time.Duration) []string {
	var names []string
	for _, n := range s.NodesByName() {
		switch {
		case n.Admitted || !n.Controlled || n.Released || !t.reachable(n.Name, now):
		case len(names) >= stagedAdmissions || room[n.Domain] < 0:
		default:
			names = append(names, n.Name)
		}
	}
	return names
}

// targets are the caps to change now: every lower that the plan wants, and as
// many raises as fit beside what is still charged.
func targets(s *State, t *Table, now time.Duration) []Target {
	if len(s.Domains) == 0 {
		return nil
	}
	tree := s.Tree()
	plan := budget.Divide(tree, planned(s, t, now))
	over := s.short()
	var out []Target
	for _, n := range s.NodesByName() {
		want, ok := plan.Caps[n.Name]
		if ok && want < n.Target && (over || n.Target-want > deadband(n.Target)) {
			out = append(out, Target{Node: n.Name, Cap: want})
		}
	}
	if over || !t.settled(s, now) {
		return out
	}
	return append(out, raises(s, tree, plan, t, now)...)
}

// short tells whether any domain is over its budget.
func (s *State) short() bool {
	for _, t := range s.Totals() {
		if t.Headroom() < 0 {
			return true
		}
	}
	return false
}

// raises fills the room that the charges of now leave with the raises that the plan wants.
func raises(s *State, tree *budget.Tree, plan budget.Plan, t *Table, now time.Duration) []Target {
	var nodes []budget.Node
	for _, n := range s.NodesByName() {
		p := budget.Node{Name: n.Name, Domain: n.Domain, Weight: n.Weight, Fixed: true, Charge: n.Charge()}
		if want, ok := plan.Caps[n.Name]; ok && want > n.Target && n.Grantable() && t.reachable(n.Name, now) {
			p.Fixed, p.Least, p.Most, p.Demand = false, n.Charge(), max(want, n.Charge()), want
		}
		nodes = append(nodes, p)
	}
	room := budget.Divide(tree, nodes)
	var out []Target
	for _, n := range s.NodesByName() {
		fit, ok := room.Caps[n.Name]
		if to := min(fit, plan.Caps[n.Name]); ok && to > n.Target && (to-n.Target > deadband(n.Target) || to >= n.Max) {
			out = append(out, Target{Node: n.Name, Cap: to})
		}
	}
	return out
}

// deadband is how far a plan may differ from a target before the target is
// moved: caps that follow every flicker of demand would cost more than they give.
func deadband(p units.Power) units.Power { return max(units.Watt, p/100) }

// planned are all nodes as the plan sees them. A node that may not be granted
// a cap, or has not been heard lately, is fixed at its charge.
func planned(s *State, t *Table, now time.Duration) []budget.Node {
	nodes := make([]budget.Node, 0, len(s.Nodes))
	for _, n := range s.NodesByName() {
		p := budget.Node{Name: n.Name, Domain: n.Domain, Weight: n.Weight, Fixed: true, Charge: n.Charge()}
		if n.Grantable() && t.reachable(n.Name, now) {
			p.Fixed, p.Least, p.Most, p.Demand = false, n.Least(), max(n.Max, n.Least()), n.Max
			if d := t.nodes[n.Name].report.Demand; d != nil {
				p.Demand = *d
			}
		}
		nodes = append(nodes, p)
	}
	return nodes
}

// BudgetPlan is what a change of a budget would do at once.
type BudgetPlan struct {
	// Before and After are the sums of every domain; After charges lowered nodes
	// at their new targets (what it comes to once they have acknowledged).
	Before, After map[string]Totals
	// Moves are the targets that the change lowers or, when watts are freed, will raise.
	Moves []Move
	// Stuck are nodes that cannot be lowered now, by name: what they are charged.
	Stuck map[string]units.Power
}

// Move is one node's change of target.
type Move struct {
	Node     string
	From, To units.Power
}

// PlanBudget works out what setting the domain's budget would do, without doing it.
func PlanBudget(s *State, t *Table, now time.Duration, domain string, to units.Power) (BudgetPlan, error) {
	d, ok := s.Domains[domain]
	if !ok {
		return BudgetPlan{}, ErrUnknownDomain
	}
	if to <= 0 {
		return BudgetPlan{}, budget.ErrAmount
	}
	p := BudgetPlan{Before: s.Totals(), Stuck: map[string]units.Power{}}
	next := s.Clone()
	d.Budget = to
	next.Domains[domain] = d
	plan := budget.Divide(next.Tree(), planned(next, t, now))
	short := next.short()
	for _, n := range s.NodesByName() {
		want, movable := plan.Caps[n.Name]
		switch {
		case !movable && short:
			p.Stuck[n.Name] = n.Charge()
		case movable && (short || p.raise(next, domain)) && want != n.Target:
			p.Moves = append(p.Moves, Move{Node: n.Name, From: n.Target, To: want})
			n.Target, n.Ceiling, n.Pending = want, want, nil
			next.Nodes[n.Name] = n
		}
	}
	p.After = next.Totals()
	return p, nil
}

// raise tells whether the plan sets the domain's budget above what it was.
func (p BudgetPlan) raise(next *State, domain string) bool {
	return next.Domains[domain].Budget > p.Before[domain].Budget
}

// Lowers are the moves that go into the same entry as the budget.
func (p BudgetPlan) Lowers() []Target {
	var out []Target
	for _, m := range p.Moves {
		if m.To < m.From {
			out = append(out, Target{Node: m.Node, Cap: m.To})
		}
	}
	return out
}

// StuckNames are the nodes that cannot be lowered, sorted.
func (p BudgetPlan) StuckNames() []string { return slices.Sorted(maps.Keys(p.Stuck)) }
