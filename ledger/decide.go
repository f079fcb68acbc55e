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
// the epoch and how much time has passed since its last tick entry. What it
// decides, Apply accepts on the same state: one refused part would cost everybody
// the whole tick.
func Decide(s *State, t *Table, now time.Duration) Tick {
	var tick Tick
	next := try(s)
	roll := next.hear(t, now, &tick)
	for _, x := range t.lapses(next.State, roll, now) {
		if next.lapse(Command{}, x) == nil {
			tick.Lapsed = append(tick.Lapsed, x)
		}
	}
	next.update(roll, len(tick.Lapsed))
	totals := next.totalsOf(roll) // nothing below changes what a node is charged
	for _, x := range next.endings(tick.Acks, totals) {
		if next.endSprint(Command{}, &x) == nil {
			tick.EndSprints = append(tick.EndSprints, x)
		}
	}
	if candidates := t.candidates(roll, now); len(candidates) > 0 && next.held() == nil {
		room := next.rooms(totals)
		for _, name := range admissions(candidates, room) {
			if next.admit(Command{}, name, room) == nil {
				tick.Admit = append(tick.Admit, name)
			}
		}
	}
	next.update(roll, len(tick.EndSprints)+len(tick.Admit))
	tick.Targets = targets(next.State, t, now, roll, totals)
	return tick
}

// hear takes what was heard into a draft and into the tick, and returns the roll of all
// nodes after that. What one node has told changes no other, so each is looked at once.
func (t *tx) hear(table *Table, now time.Duration, tick *Tick) []present {
	roll, fresh := table.blank(len(table.sorted)), 0
	for _, e := range table.sorted {
		roll = append(roll, present{heard: e})
		n, known := &roll[len(roll)-1].Node, false
		*n, known = t.Nodes[e.report.Node]
		if x, ok := table.sighting(t.State, n, known, e, now); ok && len(t.Nodes)+len(tick.Seen) < MaxNodes && t.see(Command{}, x) == nil {
			if tick.Seen = append(tick.Seen, x); !known {
				fresh++
			}
			*n, known = t.node(x.Node)
		}
		if !known {
			roll = roll[:len(roll)-1]
			continue
		}
		if x, ok := e.report.draw(n); ok && t.draw(Command{}, x) == nil {
			tick.Drawn = append(tick.Drawn, x)
			*n, _ = t.node(x.Node)
		}
		if a, ok := e.report.ack(t.State, n); ok && !table.gone(t.State, n.Name, now) {
			tick.Acks = append(tick.Acks, a)
			*n = t.takeAck(*n, a)
		}
	}
	if len(roll)-fresh == len(t.Nodes) {
		return roll
	}
	return table.withUnheard(t.State, roll)
}

// update brings the nodes of a roll up to date, if any has changed.
func (t *tx) update(roll []present, changed int) {
	if changed == 0 {
		return
	}
	for i := range roll {
		if n, ok := t.drafted[roll[i].Name]; ok {
			roll[i].Node = n
		}
	}
}

// sprintSlack is how much longer than its duration a sprint may stay open: it
// begins when a node first applies it, and its end takes a heartbeat to be told.
const sprintSlack = 5 * time.Second

// endings are the sprints to end: their time is over in the ledger's own time,
// every node that may still sprint says that it is over there, or the watts that
// a node draws for one are missing in a domain above it.
func (t *tx) endings(acks []Ack, totals map[string]Totals) []EndSprint {
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
	for _, id := range slices.Sorted(maps.Keys(t.Sprints)) {
		switch p := t.Sprints[id]; {
		case !p.Open() || p.Ended != "":
		case t.Elapsed >= p.Began+p.Duration+sprintSlack:
			out = append(out, EndSprint{ID: id, Why: "time"})
		case p.over(told[id]):
			out = append(out, EndSprint{ID: id, Why: "every node has ended it"})
		case t.starves(p, totals):
			out = append(out, EndSprint{ID: id, Why: "watts are short"})
		}
	}
	return out
}

// starves reports whether a node that may still sprint stands in a domain that is short.
func (t *tx) starves(p Sprint, totals map[string]Totals) bool {
	for node, x := range p.Shares {
		if n, _ := t.node(node); x.BackSeq == 0 && t.missing(n.Domain, totals) {
			return true
		}
	}
	return false
}

// missing reports whether watts are short in the domain or above it.
func (s *State) missing(domain string, totals map[string]Totals) bool {
	return slices.ContainsFunc(s.above(domain), func(d string) bool { return totals[d].Headroom() < 0 })
}

// over reports whether every node that may still sprint has said that it does not.
func (p Sprint) over(told map[string]bool) bool {
	for node, x := range p.Shares {
		if x.BackSeq == 0 && x.Spent == nil && !told[node] {
			return false
		}
	}
	return true
}

// lapses are the lost nodes that can hold no lease any more.
func (t *Table) lapses(s *State, roll []present, now time.Duration) []Lapse {
	lower := func(d Domain) bool { return d.LostCharge == LostFailSafe }
	if !slices.ContainsFunc(slices.Collect(maps.Values(s.Domains)), lower) {
		return nil
	}
	var out []Lapse
	for i := range roll {
		if n := &roll[i].Node; t.gone(s, n.Name, now) && n.Grantable() && !n.Unproven && n.high() && s.lapsing(*n) {
			out = append(out, Lapse{Node: n.Name, Seq: n.Seq})
		}
	}
	return out
}

// gone reports whether the node has been silent, and granted nothing, for so long
// that it can hold no lease any more and is at its fail-safe cap.
func (t *Table) gone(s *State, node string, now time.Duration) bool {
	silent := t.Silent(node, now)
	if e, ok := t.nodes[node]; ok {
		silent = min(silent, now-e.granted)
	}
	return silent >= s.waiting(t.timing).Fallen()
}

// Urgent reports whether a tick should not wait for its second after this node
// was heard: its read-back changes a charge, or it is new.
func Urgent(s *State, t *Table, node string) bool {
	e, ok := t.nodes[node]
	if !ok {
		return false
	}
	n, known := s.Nodes[node]
	_, changes := e.report.ack(s, &n)
	return known && changes || s.news(&n, known, e.report.Sighting)
}

// sighting is what a node declares, if the log does not know that of it. What a node
// said that is silent by now brings back nobody who was removed or said to be off meanwhile.
func (t *Table) sighting(s *State, n *Node, known bool, e *entry, now time.Duration) (Sighting, bool) {
	if !t.recent(e, now) || !s.news(n, known, e.report.Sighting) {
		return Sighting{}, false
	}
	x := e.report.Sighting
	x.Granted = !n.Admitted && e.report.Highest.Seq > 0
	return x, true
}

// news reports whether a declaration is one to commit: valid, of this machine, and not what the log has.
func (s *State) news(n *Node, known bool, x Sighting) bool {
	switch {
	case x.Validate() != nil, known && n.MachineID != x.MachineID, !known && !s.knows(x.Domain):
		return false
	case known:
		x.Domain = n.Domain // a node does not move itself between domains
	}
	return !known || n.Off != "" || n.declared() != x
}

// ack is the report as a read-back of its node, and whether that changes what the node is
// charged, or what is known of its sprint. What a node held before its last lease ended is
// no news any more, see Table.gone.
func (r *Report) ack(s *State, n *Node) (Ack, bool) {
	a, known := r.readBack(s, n)
	return a, known && s.changes(n, &a)
}

// Seq is the highest sequence number of the node that the report proves; 0 for none. A number
// counts only in the incarnation that gave it, and only if it was given: another cluster's
// numbers prove nothing here.
func (r *Report) Seq(s *State, n *Node) uint64 {
	if r.Highest.Epoch.Incarnation != s.Epoch.Incarnation || r.Highest.Seq > n.Seq {
		return 0
	}
	return r.Highest.Seq
}

// readBack is the report as a read-back of the node, and false while the node does not
// know what its hardware holds.
func (r *Report) readBack(s *State, n *Node) (Ack, bool) {
	a := Ack{Node: r.Node, Process: r.Process, Number: r.Number, Seq: r.Seq(s, n), Effective: r.Effective, Stored: r.Stored}
	if n.Owes != "" {
		a.Sprinting = r.Sprint == n.Owes
		for _, e := range r.Ended {
			if e.ID == n.Owes {
				a.Ended = append(a.Ended, e)
			}
		}
	}
	return a, r.EffectiveKnown
}

// changes reports whether a read-back would change what its node is charged, or
// what is known of its sprint.
func (s *State) changes(n *Node, a *Ack) bool {
	if !n.hears(*a) {
		return false
	}
	after := n.acknowledged(*a)
	if after.Ceiling != n.Ceiling || after.Excess != n.Excess || after.Stored != n.Stored || after.Unproven != n.Unproven || after.From != n.From {
		return true
	}
	if n.Owes == "" {
		return false
	}
	share, owes := s.Sprints[n.Owes].Shares[n.Name]
	measured := slices.ContainsFunc(a.Ended, func(e SprintSpent) bool { return e.Spent != nil })
	switch {
	case !owes:
		return false
	case share.Spent == nil && measured:
		return true
	}
	ended := len(a.Ended) > 0 && share.BackSeq == 0 && share.Spent == nil // told again and again: see endings
	return a.Seq >= n.Proof && (share.back(after, *a) || ended)
}

// candidates are the nodes that may come in once their domain has room.
func (t *Table) candidates(roll []present, now time.Duration) []*Node {
	var nodes []*Node
	for i := range roll {
		n := &roll[i]
		if !n.Admitted && n.Controlled && !n.Released && n.Off == "" && t.recent(n.heard, now) {
			nodes = append(nodes, &n.Node)
		}
	}
	return nodes
}

// admissions are the candidates that come in now.
func admissions(candidates []*Node, room map[string]units.Power) []string {
	var names []string
	for _, n := range candidates {
		if room[n.Domain] >= 0 && len(names) < stagedAdmissions {
			names = append(names, n.Name)
		}
	}
	return names
}

// targets are the caps to change now: every lower that the plan wants, and as
// many raises as fit beside what is still charged.
func targets(s *State, t *Table, now time.Duration, roll []present, totals map[string]Totals) []Target {
	if len(s.Domains) == 0 {
		return nil
	}
	tree := s.planTree(totals)
	list := planned(s, t, now, roll, totals)
	plan := s.plan(tree, list, roll)
	over := short(totals)
	var out []Target
	for i := range roll {
		n, want := &roll[i].Node, plan[i]
		if want == budget.NoCap {
			continue
		}
		if s.Brake.Active() {
			want = n.Least()
		}
		if want < n.Target && (over || n.Target-want > deadband(n.Target)) {
			out = append(out, Target{Node: n.Name, Cap: want})
		}
	}
	if over || s.held() != nil || !t.settled(s, roll, now) {
		return out
	}
	t.mayRaise(roll, plan, list, now)
	return append(out, raises(roll, plan, budget.Caps(tree, list, budget.Policy(s.Policy)))...)
}

// plan returns the cap of each node of a planned list. One that holds or draws more than it
// was granted is lowered as if it obeyed, and never raised; what it is charged beyond that
// is taken from the others.
func (s *State) plan(tree *budget.Tree, list []budget.Node, roll []present) []units.Power {
	caps := budget.Caps(tree, list, budget.Policy(s.Policy))
	others, strays := slices.Clone(list), false
	for i := range roll {
		if n := &roll[i].Node; n.Excess > 0 && !list[i].Fixed {
			others[i], strays = fixed(n), true
		}
	}
	if !strays {
		return caps
	}
	for i, want := range budget.Caps(tree, others, budget.Policy(s.Policy)) {
		if i < len(roll) && others[i].Fixed && !list[i].Fixed {
			want = min(caps[i], roll[i].Target)
		}
		caps[i] = want
	}
	return caps
}

// short reports whether any domain is over its budget.
func short(totals map[string]Totals) bool {
	for _, t := range totals {
		if t.Headroom() < 0 {
			return true
		}
	}
	return false
}

// mayRaise makes of a planned list the one that fills the room which the charges of now
// leave: with the raises that the plan wants, and everybody else fixed. A node that moves,
// or is on its way back from a sprint, waits.
func (t *Table) mayRaise(roll []present, plan []units.Power, list []budget.Node, now time.Duration) {
	for i := range roll {
		n, want, p := &roll[i], plan[i], &list[i]
		*p = fixed(&n.Node)
		if want != budget.NoCap && want > n.Target && n.Owes == "" && n.From == "" && t.mayMove(n, now) {
			p.Fixed, p.Least, p.Most, p.Demand = false, p.Charge, max(want, p.Charge), want
			if most, held := t.Held(n.Name, now); held {
				p.Most = max(p.Least, min(p.Most, most))
			}
			p.Behind = t.behind[n.Name]
		}
	}
}

// raises are the raises of a plan as far as they fit beside what is charged.
func raises(roll []present, plan, fits []units.Power) []Target {
	var out []Target
	for i := range roll {
		n, fit := &roll[i].Node, fits[i]
		to := min(fit, plan[i])
		if fit != budget.NoCap && to > n.Target && to >= n.Least() && (to-n.Target > deadband(n.Target) || to >= n.Most()) {
			out = append(out, Target{Node: n.Name, Cap: to})
		}
	}
	return out
}

// deadband is how far a plan may differ from a target before the target is
// moved: caps that follow every flicker of demand would cost more than they give.
func deadband(p units.Power) units.Power { return max(units.Watt, p/100) }

// fixed is a node as a plan sees it that may not move it.
func fixed(n *Node) budget.Node {
	return budget.Node{Name: n.Name, Domain: n.Domain, Weight: n.Share(), Fixed: true, Charge: n.Charge()}
}

// planned are all nodes as the plan of this moment sees them. A node that may not
// be granted a cap, or has not been heard lately, is fixed at its charge. So is
// one that sprints, unless watts are short above it: a new target would end its sprint.
// The nodes are in the roll's order, and behind them is what moved ones are charged besides.
func planned(s *State, t *Table, now time.Duration, roll []present, totals map[string]Totals) []budget.Node {
	out := make([]budget.Node, 0, len(roll))
	for i := range roll {
		n := &roll[i]
		p := fixed(&n.Node)
		if t.mayMove(n, now) && (n.Sprint == nil || s.missing(n.Domain, totals)) {
			p.Fixed, p.Least, p.Most = false, n.Least(), n.Most()
			p.Demand = p.Most
			if demand := n.heard.report.Demand; demand != nil {
				p.Demand = *demand
			}
			if most, held := t.Held(n.Name, now); held {
				p.Most = max(p.Least, min(p.Most, most))
			}
			p.Behind = t.behind[n.Name]
			if n.Drained {
				p.Most, p.Demand = p.Least, p.Least
			}
			if n.Sprint != nil {
				p.Most, p.Demand = n.Target, min(p.Demand, n.Target)
			}
		}
		out = append(out, p)
	}
	return append(out, s.movedShadows(roll)...)
}

// mayMove reports whether a plan may count on the node to obey.
func (t *Table) mayMove(n *present, now time.Duration) bool {
	return t.recent(n.heard, now) && n.Grantable()
}

// movedShadows are what moved nodes are charged in the domains they left, and
// what is counted twice above both.
func (s *State) movedShadows(roll []present) []budget.Node {
	var out []budget.Node
	for i := range roll {
		if n := &roll[i].Node; n.From != "" {
			out = append(out,
				budget.Node{Name: n.Name + " in " + n.From, Domain: n.From, Weight: 1, Fixed: true, Charge: n.Charge()},
				budget.Node{Name: n.Name + " twice", Domain: s.meet(n.Domain, n.From), Weight: 1, Fixed: true, Charge: -n.Charge()})
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

// PlanMoves returns which caps a change from one state to another moves, by the plans of this
// moment, and how many watts are then missing in which domains.
func PlanMoves(before, after *State, t *Table, now time.Duration) ([]Move, map[string]units.Power) {
	was, _ := planCaps(before, t, now)
	is, totals := planCaps(after, t, now)
	var moves []Move
	for _, n := range before.NodesByName() {
		to, planned := is[n.Name]
		if moved := to - was[n.Name]; planned && max(moved, -moved) > deadband(to) && to != n.Target {
			moves = append(moves, Move{Node: n.Name, From: n.Target, To: to})
		}
	}
	missing := map[string]units.Power{}
	for name, sum := range totals {
		if short := -sum.Headroom(); short > 0 {
			missing[name] = short
		}
	}
	return moves, missing
}

// planCaps returns the cap of each node that the plan may move, and the totals once they hold them.
func planCaps(s *State, t *Table, now time.Duration) (map[string]units.Power, map[string]Totals) {
	if len(s.Domains) == 0 {
		return nil, nil
	}
	roll, totals, caps := t.roll(s), s.Totals(), map[string]units.Power{}
	for i, want := range s.plan(s.planTree(totals), planned(s, t, now, roll, totals), roll)[:len(roll)] {
		if want != budget.NoCap {
			n := &roll[i].Node
			caps[n.Name], n.Target, n.Ceiling, n.Pending, n.Sprint = want, want, want, nil, nil
		}
	}
	return caps, s.totalsOf(roll)
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
	next := s.draft()
	d.Budget = to
	next.Domains[domain] = d
	roll := t.roll(s)
	totals := next.totalsOf(roll)
	plan := budget.Caps(next.planTree(totals), planned(next, t, now, roll, totals), budget.Policy(next.Policy))
	over := short(totals)
	for i := range roll {
		n, want := roll[i].Node, plan[i]
		movable := want != budget.NoCap
		from := n.Target
		if n.Sprint != nil { // any new target ends its sprint
			from = max(from, n.Sprint.Cap)
		}
		if over && want <= n.Target { // it may still hold what an earlier lower or a sprint's end takes away
			from = max(from, n.Ceiling)
		}
		switch {
		case !movable && over:
			p.Stuck[n.Name] = n.Charge()
		case n.Sprint != nil && want > n.Target && !over: // no cut
		case movable && (over || p.raise(next, domain)):
			if n.Sprint != nil { // at its least above its target: the cut ends its sprint and raises nothing
				want = min(want, n.Target)
			}
			if want != from {
				p.Moves = append(p.Moves, Move{Node: n.Name, From: from, To: want})
			}
			// Also a node whose lower is on its way already: After is when all have read back.
			n.Target, n.Ceiling, n.Pending, n.Sprint = want, want, nil, nil
			roll[i].Node = n
		}
	}
	p.After = next.totalsOf(roll)
	return p, nil
}

// raise reports whether the plan sets the domain's budget above what it was.
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
