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
	next := begin(s.Clone())
	for _, x := range tick.Seen {
		if next.see(Command{}, x) != nil {
			continue // Validate and identity were checked: only a full table is left.
		}
	}
	tick.Acks = t.acks(next.State)
	for _, a := range tick.Acks {
		next.ack(a)
	}
	tick.Lapsed = t.lapses(next.State, now)
	for _, x := range tick.Lapsed {
		if next.lapse(Command{}, x) != nil {
			tick.Lapsed = nil // its domain keeps the charge: nothing is lost by waiting
			break
		}
	}
	tick.EndSprints = next.overdue(tick.Acks)
	for _, x := range tick.EndSprints {
		_ = next.endSprint(Command{}, &x) // it exists: overdue has just named it
	}
	if next.held() == nil {
		room := next.rooms()
		tick.Admit = admissions(next.State, t, room, now)
		for _, name := range tick.Admit {
			if next.admit(Command{}, name, room) != nil {
				tick.Admit = nil // no room after all: next tick
				break
			}
		}
	}
	tick.Targets = targets(next.State, t, now)
	return tick
}

// sprintSlack is how much longer than its duration a sprint may stay open: it
// begins when a node first applies it, and its end takes a heartbeat to be told.
const sprintSlack = 5 * time.Second

// overdue are the sprints to end: their time is over in the ledger's own time, or
// every node that may still sprint says that it is over there.
func (s *State) overdue(acks []Ack) []EndSprint {
	told := map[string]map[string]bool{}
	for _, a := range acks {
		for _, e := range a.Ended {
			if told[e.ID] == nil {
				told[e.ID] = map[string]bool{}
			}
			told[e.ID][a.Node] = true
		}
	}
	var out []EndSprint
	for _, p := range s.SprintsByTime() {
		switch {
		case !p.Open() || p.Ended != "":
		case s.Elapsed >= p.Began+p.Duration+sprintSlack:
			out = append(out, EndSprint{ID: p.ID, Why: "time"})
		case p.over(told[p.ID]):
			out = append(out, EndSprint{ID: p.ID, Why: "every node has ended it"})
		}
	}
	return out
}

// over tells whether every node that may still sprint has said that it does not.
func (p Sprint) over(told map[string]bool) bool {
	for node, x := range p.Shares {
		if x.BackSeq == 0 && x.Spent == nil && !told[node] {
			return false
		}
	}
	return true
}

// lapses are the lost nodes that can hold no lease any more.
func (t *Table) lapses(s *State, now time.Duration) []Lapse {
	var out []Lapse
	for _, n := range s.NodesByName() {
		silent := now - t.began
		if e, ok := t.nodes[n.Name]; ok {
			silent = now - max(e.at, e.granted)
		}
		gone := silent >= t.timing.Lease+t.timing.Margin()+t.timing.Settle
		if gone && n.Grantable() && !n.Unproven && n.Charge() > max(n.Least(), n.Stored) && s.lostCharge(n.Domain) == LostFailSafe {
			out = append(out, Lapse{Node: n.Name, Seq: n.Seq})
		}
	}
	return out
}

// Urgent tells whether a tick should not wait for its second after this node
// was heard: its read-back changes a charge, or it is new.
func Urgent(s *State, t *Table, node string) bool {
	e, ok := t.nodes[node]
	return ok && (s.news(e.report.Sighting) || s.changes(e.report.ack(s)))
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
	return !known || n.Off != "" || n.declared() != x
}

// acks are the read-backs that change what a node is charged.
func (t *Table) acks(s *State) []Ack {
	var acks []Ack
	for _, name := range t.names() {
		if a, ok := t.nodes[name].report.ack(s); s.changes(a, ok) {
			acks = append(acks, a)
		}
	}
	return acks
}

// ack is the report as a read-back, and false while the node does not know what
// its hardware holds. A sequence number counts only in the incarnation that gave it.
func (r Report) ack(s *State) (Ack, bool) {
	a := Ack{Node: r.Node, Process: r.Process, Number: r.Number, Effective: r.Effective, Stored: r.Stored}
	if r.Highest.Epoch.Incarnation == s.Epoch.Incarnation {
		a.Seq = r.Highest.Seq
	}
	if n := s.Nodes[r.Node]; n.Owes != "" {
		for _, e := range r.Ended {
			if e.ID == n.Owes {
				a.Ended = append(a.Ended, e)
			}
		}
	}
	return a, r.EffectiveKnown
}

// changes tells whether a read-back would change what its node is charged, or
// what is known of its sprint.
func (s *State) changes(a Ack, known bool) bool {
	n, ok := s.Nodes[a.Node]
	if !known || !ok || !n.hears(a) {
		return false
	}
	after := n.acknowledged(a)
	if after.Ceiling != n.Ceiling || after.Excess != n.Excess || after.Stored != n.Stored || after.Unproven != n.Unproven || after.From != n.From {
		return true
	}
	share, owes := s.Sprints[n.Owes].Shares[n.Name]
	return owes && a.Seq >= n.Proof && (len(a.Ended) > 0 && share.Spent == nil || share.BackSeq > 0 && a.Seq >= share.BackSeq)
}

// admissions are the nodes that wait and may come in now.
func admissions(s *State, t *Table, room map[string]units.Power, now time.Duration) []string {
	var names []string
	for _, n := range s.NodesByName() {
		switch {
		case n.Admitted || !n.Controlled || n.Released || n.Off != "" || !t.reachable(n.Name, now):
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
	tree := s.planTree()
	plan := budget.Divide(tree, Planned(s, t, now), budget.Policy(s.Policy))
	over := s.short()
	var out []Target
	for _, n := range s.NodesByName() {
		want, ok := plan.Caps[n.Name]
		if s.Brake.Active() && ok {
			want = n.Least()
		}
		if ok && want < n.Target && (over || n.Target-want > deadband(n.Target)) {
			out = append(out, Target{Node: n.Name, Cap: want})
		}
	}
	if over || s.held() != nil || !t.settled(s, now) {
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
		p := fixed(n)
		if want, ok := plan.Caps[n.Name]; ok && want > n.Target && n.Owes == "" && t.mayMove(n, now) {
			p.Fixed, p.Least, p.Most, p.Demand = false, n.Charge(), max(want, n.Charge()), want
		}
		nodes = append(nodes, p)
	}
	nodes = append(nodes, s.movedShadows()...)
	room := budget.Divide(tree, nodes, budget.Policy(s.Policy))
	var out []Target
	for _, n := range s.NodesByName() {
		fit, ok := room.Caps[n.Name]
		if to := min(fit, plan.Caps[n.Name]); ok && to > n.Target && (to-n.Target > deadband(n.Target) || to >= n.Most()) {
			out = append(out, Target{Node: n.Name, Cap: to})
		}
	}
	return out
}

// deadband is how far a plan may differ from a target before the target is
// moved: caps that follow every flicker of demand would cost more than they give.
func deadband(p units.Power) units.Power { return max(units.Watt, p/100) }

// fixed is a node as a plan sees it that may not move it.
func fixed(n Node) budget.Node {
	return budget.Node{Name: n.Name, Domain: n.Domain, Weight: n.Share(), Fixed: true, Charge: n.Charge()}
}

// Planned are all nodes as the plan of this moment sees them. A node that may not
// be granted a cap, or has not been heard lately, is fixed at its charge. So is
// one that sprints, unless watts are short: a new target would end its sprint.
func Planned(s *State, t *Table, now time.Duration) []budget.Node {
	nodes := make([]budget.Node, 0, len(s.Nodes))
	short := s.short()
	for _, n := range s.NodesByName() {
		p := fixed(n)
		if t.mayMove(n, now) && (n.Sprint == nil || short) {
			p.Fixed, p.Least, p.Most, p.Demand = false, n.Least(), n.Most(), n.Most()
			r := t.nodes[n.Name].report
			if r.Demand != nil {
				p.Demand = *r.Demand
			}
			p.Behind = t.behind[n.Name]
			if n.Drained {
				p.Most, p.Demand = n.Least(), n.Least()
			}
			if n.Sprint != nil {
				p.Most, p.Demand = n.Target, min(p.Demand, n.Target)
			}
		}
		nodes = append(nodes, p)
	}
	return append(nodes, s.movedShadows()...)
}

// mayMove tells whether a plan may count on the node to obey.
func (t *Table) mayMove(n Node, now time.Duration) bool {
	return n.Grantable() && t.reachable(n.Name, now)
}

// movedShadows are what moved nodes are charged in the domains they left, and
// what is counted twice above both.
func (s *State) movedShadows() []budget.Node {
	var out []budget.Node
	for _, n := range s.NodesByName() {
		if n.From != "" {
			out = append(out,
				budget.Node{Name: n.Name + " in " + n.From, Domain: n.From, Weight: 1, Fixed: true, Charge: n.Charge()},
				budget.Node{Name: n.Name + " twice", Domain: meet(s.Tree(), n.Domain, n.From), Weight: 1, Fixed: true, Charge: -n.Charge()})
		}
	}
	return out
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
	if to > d.Usable() {
		return BudgetPlan{}, &RatingError{Domain: domain, Budget: to, Rating: d.Rating, Usable: d.Usable()}
	}
	p := BudgetPlan{Before: s.Totals(), Stuck: map[string]units.Power{}}
	next := s.Clone()
	d.Budget = to
	next.Domains[domain] = d
	plan := budget.Divide(next.planTree(), Planned(next, t, now), budget.Policy(next.Policy))
	short := next.short()
	for _, n := range s.NodesByName() {
		want, movable := plan.Caps[n.Name]
		switch {
		case !movable && short:
			p.Stuck[n.Name] = n.Charge()
		case movable && (short || p.raise(next, domain)):
			if want != n.Target {
				p.Moves = append(p.Moves, Move{Node: n.Name, From: n.Target, To: want})
			}
			// Also a node whose lower is on its way already: After is when all have read back.
			n.Target, n.Ceiling, n.Pending, n.Sprint = want, want, nil, nil
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
