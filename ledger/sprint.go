package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"headroom/lease"
	"headroom/units"
)

// SprintBudget is a domain's budget of energy for sprints: joules above the
// nodes' base caps, which refill over time.
type SprintBudget struct {
	// Capacity is the most that the budget holds, all classes together.
	Capacity units.Energy `json:"capacity_uj"`
	// Refill is how fast it fills up again, uJ per second.
	Refill units.Power `json:"refill_uw"`
	// Shares are the classes' parts of capacity and refill; they sum to at most 1.
	// Without any, all classes draw from one pot, that of the class "".
	Shares map[string]float64 `json:"shares,omitempty"`
	// Balances are what each class has left; below 0 is debt.
	Balances map[string]units.Energy `json:"balances"`
}

// oneClass is the pot of a budget without shares.
const oneClass = ""

// pot is the pot that a class draws from, and false when it has none.
func (b *SprintBudget) pot(class string) (string, bool) {
	if len(b.Shares) == 0 {
		return oneClass, true
	}
	_, ok := b.Shares[class]
	return class, ok
}

// Part is a pot's part of the budget.
func (b *SprintBudget) Part(pot string) float64 {
	if len(b.Shares) == 0 {
		return 1
	}
	return b.Shares[pot]
}

// room is the most that a pot holds.
func (b *SprintBudget) room(pot string) units.Energy {
	return units.Energy(float64(b.Capacity) * b.Part(pot))
}

// Pots are the classes with a pot of their own, sorted; one without a name where there are no shares.
func (b *SprintBudget) Pots() []string {
	if len(b.Shares) == 0 {
		return []string{oneClass}
	}
	return slices.Sorted(maps.Keys(b.Shares))
}

const (
	// maxSprintEnergy bounds a sprint budget, and what one node may say to have spent: a megawatt-hour.
	maxSprintEnergy = 3_600_000_000 * units.Joule
	// maxDebt bounds what a class may owe; maxSprintNodes absurd claims reach it, and two of it do not overflow.
	maxDebt = 1000 * maxSprintEnergy
	// maxSprintNodes bounds one sprint: the nodes of a job, not a site.
	maxSprintNodes = 1000
	// maxClasses bounds the classes of one sprint budget.
	maxClasses = 32
)

func (b *SprintBudget) validate(domain string) error {
	if b == nil {
		return nil
	}
	sum := 0.0
	for _, class := range slices.Sorted(maps.Keys(b.Shares)) {
		part := b.Shares[class]
		if class == oneClass || len(class) > maxName || !(part > 0 && part <= 1) {
			return fmt.Errorf("%w: sprint share of class %q in %s is %v; it is a part above 0, at most 1", ErrDomain, class, domain, part)
		}
		sum += part
	}
	switch {
	case sum > 1+1e-12: // thirds and tenths do not sum to 1 exactly
		return fmt.Errorf("%w: the sprint shares of %s sum to %v, more than 1", ErrDomain, domain, sum)
	case b.Capacity <= 0 || b.Capacity > maxSprintEnergy || b.Refill < 0 || b.Refill > maxDomainPower:
		return fmt.Errorf("%w: the sprint budget of %s is %v refilled by %v; it holds more than 0 J, at most %v, and the refill is from 0 W to %v",
			ErrDomain, domain, b.Capacity, b.Refill, maxSprintEnergy, maxDomainPower)
	case len(b.Shares) > maxClasses:
		return fmt.Errorf("%w: %d sprint classes in %s, at most %d", ErrFull, len(b.Shares), domain, maxClasses)
	}
	for _, pot := range slices.Sorted(maps.Keys(b.Balances)) {
		if left := b.Balances[pot]; left > b.room(pot) || left < -maxDebt {
			return fmt.Errorf("%w: class %q has %v in the sprint budget of %s, which holds %v for it", ErrDomain, pot, left, domain, b.room(pot))
		}
	}
	return nil
}

// anew is the budget with what its classes had in an old one, as far as it fits;
// without an old one they have nothing.
func (b *SprintBudget) anew(old *SprintBudget) *SprintBudget {
	c := *b
	c.Shares, c.Balances = maps.Clone(b.Shares), map[string]units.Energy{}
	for _, pot := range c.Pots() {
		c.Balances[pot] = 0
		if old != nil {
			c.Balances[pot] = min(old.Balances[pot], c.room(pot))
		}
	}
	return &c
}

// with is the budget with another balance of one pot.
func (b *SprintBudget) with(pot string, balance units.Energy) *SprintBudget {
	c := *b
	c.Balances = made(maps.Clone(b.Balances))
	c.Balances[pot] = balance
	return &c
}

// emptied is the domain with nothing left to sprint with; debt stays.
func (d Domain) emptied() Domain {
	b := *d.Sprint
	b.Balances = map[string]units.Energy{}
	for _, pot := range b.Pots() {
		b.Balances[pot] = min(0, d.Sprint.Balances[pot])
	}
	d.Sprint = &b
	return d
}

// SetSprintBudget gives a domain a budget for sprints, or takes it away with
// Capacity 0. A new budget starts empty; a changed one keeps what its classes
// have, as far as it fits.
type SetSprintBudget struct {
	Domain   string             `json:"domain"`
	Capacity units.Energy       `json:"capacity_uj"`
	Refill   units.Power        `json:"refill_uw"`
	Shares   map[string]float64 `json:"shares,omitempty"`
}

func (t *tx) setSprintBudget(c Command, x *SetSprintBudget) error {
	d, ok := t.Domains[x.Domain]
	if !ok {
		return fmt.Errorf("domain %q: %w", x.Domain, ErrUnknownDomain)
	}
	if id := t.openIn(x.Domain); id != "" {
		return fmt.Errorf("the sprint budget of %s: sprint %s is open: %w", x.Domain, id, ErrSprint)
	}
	old := d.Sprint
	d.Sprint = nil
	if x.Capacity != 0 {
		b := SprintBudget{Capacity: x.Capacity, Refill: x.Refill, Shares: x.Shares}
		d.Sprint = b.anew(old)
	}
	if err := d.Validate(); err != nil {
		return err
	}
	put(t, t.Domains, d.Name, d)
	t.record(c, fmt.Sprintf("sprint budget of %s: %v, refilled by %v", d.Name, x.Capacity, x.Refill))
	return nil
}

// openIn names an open sprint paid by the domain.
func (s *State) openIn(domain string) string {
	for _, id := range slices.Sorted(maps.Keys(s.Sprints)) {
		if p := s.Sprints[id]; p.Domain == domain && p.Open() {
			return id
		}
	}
	return ""
}

// Sprint is one escrow: energy put aside before the sprint can start (promise P8).
type Sprint struct {
	ID string `json:"id"`
	// Job and Class that it is for; both may be empty.
	Job   string `json:"job,omitempty"`
	Class string `json:"class,omitempty"`
	// Domain that pays.
	Domain string `json:"domain"`
	// Duration from the first application on each node.
	Duration time.Duration `json:"duration_ns"`
	// Began in the ledger's own time.
	Began time.Duration `json:"began_ns"`
	// Passed is State.Passed when it was granted.
	Passed time.Duration `json:"passed_ns,omitempty"`
	// Ended says why no node may go on with it; empty while they may.
	Ended string `json:"ended,omitempty"`
	// Closed: every share is settled and the rest has gone back.
	Closed bool `json:"closed,omitempty"`
	// Refunded is what went back, once closed.
	Refunded units.Energy `json:"refunded_uj,omitempty"`
	// Shares by node.
	Shares map[string]SprintShare `json:"shares"`
}

// SprintShare is one node's part of a sprint.
type SprintShare struct {
	// Escrow is the energy above the base cap that the node may spend.
	Escrow units.Energy `json:"escrow_uj"`
	// BackSeq is the target that took the node back to its base; 0 while it may sprint.
	BackSeq uint64 `json:"back_seq,omitempty"`
	// Spent is what the node has measured; nil while it has not said.
	Spent *units.Energy `json:"spent_uj,omitempty"`
	// Settled: the node is back at its base, or gone; Spent or Charged is what it costs.
	Settled bool `json:"settled,omitempty"`
	// Charged is what a share costs that nobody measured: the sprint's watts above the base
	// from the grant until it was settled, at least the escrow.
	Charged units.Energy `json:"charged_uj,omitempty"`
}

// NodeSprint is the sprint as it stands beside a node's target.
type NodeSprint struct {
	ID       string        `json:"id"`
	Cap      units.Power   `json:"cap_uw"`
	Duration time.Duration `json:"duration_ns"`
	Escrow   units.Energy  `json:"escrow_uj"`
}

// Lease is the sprint as it goes out with a lease.
func (p *NodeSprint) Lease() lease.Sprint {
	if p == nil {
		return lease.Sprint{}
	}
	return lease.Sprint{ID: p.ID, Cap: p.Cap, Duration: p.Duration, Escrow: p.Escrow}
}

// Open reports whether the sprint still holds an escrow.
func (p Sprint) Open() bool { return !p.Closed }

// energy is what power spends in a time, in whole numbers: floating point may
// differ in its last digit from one processor to another. Both are bounded.
func energy(power units.Power, d time.Duration) units.Energy {
	high, low := bits.Mul64(uint64(max(0, power)), uint64(max(0, d)))
	spent, _ := bits.Div64(high, low, uint64(time.Second))
	return units.Energy(spent)
}

// Escrow is the energy put aside for all nodes together.
func (p Sprint) Escrow() units.Energy {
	sum := units.Energy(0)
	for _, x := range p.Shares {
		sum += x.Escrow
	}
	return sum
}

// Spent is the energy charged so far: measured where it was told, and the sprint's watts
// for all the time until a share was settled without.
func (p Sprint) Spent() units.Energy {
	sum := units.Energy(0)
	for _, x := range p.Shares {
		sum += x.spent()
	}
	return sum
}

func (x SprintShare) spent() units.Energy {
	switch {
	case x.Spent != nil:
		return *x.Spent
	case x.Settled:
		return max(x.Escrow, x.Charged)
	}
	return 0
}

// with is the sprint with another share of one node.
func (p Sprint) with(node string, x SprintShare) Sprint {
	p.Shares = made(maps.Clone(p.Shares))
	p.Shares[node] = x
	return p
}

// GrantSprint puts energy aside and lets the nodes sprint.
type GrantSprint struct {
	ID       string        `json:"id"`
	Job      string        `json:"job,omitempty"`
	Class    string        `json:"class,omitempty"`
	Domain   string        `json:"domain"`
	Duration time.Duration `json:"duration_ns"`
	// Caps while it lasts, above the nodes' targets. Each node may spend the
	// difference for Duration.
	Caps []Target `json:"caps"`
}

// grantSprint commits an escrow. One that does not fit the budget's watts or the
// domain's joules is refused whole.
func (t *tx) grantSprint(c Command, x *GrantSprint) error {
	if err := t.maySprint(x); err != nil {
		return err
	}
	before := t.Totals()
	p := Sprint{
		ID: x.ID, Job: x.Job, Class: x.Class, Domain: x.Domain, Duration: x.Duration, Began: t.Elapsed, Passed: t.Passed,
		Shares: make(map[string]SprintShare, len(x.Caps)),
	}
	for _, g := range x.Caps {
		n, err := t.maySprintOn(x, g, before)
		if err != nil {
			return err
		}
		share := SprintShare{Escrow: energy(g.Cap-n.Target, x.Duration)}
		if share.Escrow == 0 { // a node takes no lease with such a sprint
			return fmt.Errorf("sprint %q: node %q: %v above its cap for %v rounds to no energy: %w", x.ID, n.Name, g.Cap-n.Target, x.Duration, ErrTarget)
		}
		p.Shares[n.Name] = share
		n.Owes = x.ID
		t.putNode(n.aimSprint(n.Target, &NodeSprint{ID: x.ID, Cap: g.Cap, Duration: x.Duration, Escrow: share.Escrow}))
	}
	d := t.Domains[x.Domain]
	pot, _ := d.Sprint.pot(x.Class)
	left := d.Sprint.Balances[pot] - p.Escrow()
	if left < 0 {
		return &EscrowError{
			Domain: d.Name, Class: x.Class, Escrow: p.Escrow(), Balance: d.Sprint.Balances[pot], Room: d.Sprint.room(pot) - t.Escrowed(d.Name, pot),
			Refill: units.Power(float64(d.Sprint.Refill) * d.Sprint.Part(pot)),
		}
	}
	d.Sprint = d.Sprint.with(pot, left)
	put(t, t.Domains, d.Name, d)
	put(t, t.Sprints, p.ID, p)
	if err := t.fits(before); err != nil {
		return err
	}
	t.record(c, fmt.Sprintf("sprint %s granted: %v of %s for %d nodes, at most %v", p.ID, p.Escrow(), d.Name, len(p.Shares), p.Duration))
	return nil
}

// maySprint checks what holds for the sprint as a whole.
func (t *tx) maySprint(x *GrantSprint) error {
	d, ok := t.Domains[x.Domain]
	_, used := t.Sprints[x.ID]
	switch {
	case t.held() != nil:
		return t.held()
	case !ok:
		return fmt.Errorf("sprint %q: domain %q: %w", x.ID, x.Domain, ErrUnknownDomain)
	case x.ID == "" || used:
		return fmt.Errorf("sprint %q: its id is missing or was used before: %w", x.ID, ErrSprint)
	case len(x.ID) > maxName || len(x.Job) > maxName:
		return fmt.Errorf("sprint %.20q: its id or its job's has more than %d bytes: %w", x.ID, maxName, ErrSprint)
	case x.Duration < time.Millisecond || x.Duration > lease.MaxSprint:
		return fmt.Errorf("sprint %q: its duration is %v; it must be from 1ms to %v: %w", x.ID, x.Duration, lease.MaxSprint, ErrSprint)
	case len(x.Caps) == 0 || len(x.Caps) > maxSprintNodes:
		return fmt.Errorf("sprint %q names %d nodes; 1 to %d are allowed: %w", x.ID, len(x.Caps), maxSprintNodes, ErrSprint)
	case d.Sprint == nil:
		return fmt.Errorf("sprint %q: %s has no sprint budget: %w", x.ID, d.Name, ErrSprint)
	}
	if _, ok := d.Sprint.pot(x.Class); !ok {
		return fmt.Errorf("sprint %q: class %q has no share of the sprint budget of %s: %w", x.ID, x.Class, d.Name, ErrSprint)
	}
	for _, id := range slices.Sorted(maps.Keys(t.Sprints)) {
		if p := t.Sprints[id]; p.Domain == d.Name && p.Open() && p.Ended != "" {
			return fmt.Errorf("sprint %q: sprint %s in %s has ended but not every node is back at its base cap: %w", x.ID, id, d.Name, ErrSprint)
		}
	}
	return nil
}

// maySprintOn checks what holds for one node. Where watts are short none sprints,
// even on one that is charged as much already.
func (t *tx) maySprintOn(x *GrantSprint, g Target, totals map[string]Totals) (Node, error) {
	n, ok := t.node(g.Node)
	switch {
	case !ok:
		return n, fmt.Errorf("sprint %q: node %q: %w", x.ID, g.Node, ErrUnknownNode)
	case !n.Grantable() || n.Drained || n.From != "" || n.Unproven:
		return n, fmt.Errorf("sprint %q: node %q: %w", x.ID, g.Node, ErrNotGrantable)
	case n.Owes != "":
		return n, fmt.Errorf("sprint %q: node %q is in sprint %s: %w", x.ID, g.Node, n.Owes, ErrSprint)
	case !slices.Contains(t.above(n.Domain), x.Domain):
		return n, fmt.Errorf("sprint %q: node %q is not in %s: %w", x.ID, g.Node, x.Domain, ErrSprint)
	case n.Target >= n.Rated:
		return n, fmt.Errorf("sprint %q: the cap of node %q already equals its rated power, %v: %w", x.ID, g.Node, n.Rated, ErrAtRated)
	case g.Cap <= n.Target || g.Cap > n.Rated: // the max of a node bounds its plans: a sprint is what may go beyond
		return n, fmt.Errorf("sprint %q: node %q: %v must be above its cap %v and at most its rated power, %v: %w", x.ID, g.Node, g.Cap, n.Target, n.Rated, ErrTarget)
	}
	if err := t.shortAbove(n, totals); err != nil {
		return n, fmt.Errorf("sprint %q: node %q: %w", x.ID, g.Node, err)
	}
	return n, nil
}

// EndSprint takes every node of a sprint back to its base.
type EndSprint struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// endSprint ends a sprint once; asked again it does nothing.
func (t *tx) endSprint(c Command, x *EndSprint) error {
	p, ok := t.Sprints[x.ID]
	switch {
	case !ok:
		return fmt.Errorf("sprint %q: %w", x.ID, ErrUnknownSprint)
	case len(x.Why) > maxName:
		return fmt.Errorf("sprint %q: its end reason has %d bytes; at most %d are stored: %w", x.ID, len(x.Why), maxName, ErrSprint)
	case !p.Open() || p.Ended != "":
		return nil
	}
	p.Ended = cmp.Or(x.Why, "ended")
	put(t, t.Sprints, p.ID, p)
	for _, name := range slices.Sorted(maps.Keys(p.Shares)) {
		if n, _ := t.node(name); n.Sprint != nil && n.Sprint.ID == p.ID {
			t.putNode(t.retarget(n, n.Target))
		}
	}
	t.record(c, fmt.Sprintf("sprint %s ended: %s", p.ID, p.Ended))
	return nil
}

// endShare notes, for a node that has just been aimed or is about to leave, that
// it may sprint no longer: only a read-back of its present target settles its
// share. The node itself is the caller's to put.
func (t *tx) endShare(n Node) Node {
	n.Sprint = nil
	if n.Owes == "" {
		return n
	}
	p, ok := t.Sprints[n.Owes]
	if x := p.Shares[n.Name]; ok && x.BackSeq == 0 {
		x.BackSeq = n.Seq
		p = p.with(n.Name, x)
		if p.Ended == "" && !p.running() {
			p.Ended = "no node may go on"
		}
		put(t, t.Sprints, p.ID, p)
	}
	return n
}

// running reports whether any node may still sprint.
func (p Sprint) running() bool {
	for _, x := range p.Shares {
		if x.BackSeq == 0 {
			return true
		}
	}
	return false
}

// spent takes in what a node says it has drawn above its base. The first word counts.
func (t *tx) spent(n Node, e SprintSpent) {
	p, ok := t.Sprints[n.Owes]
	x := p.Shares[n.Name]
	if !ok || e.ID != p.ID || x.Spent != nil || e.Spent == nil {
		return
	}
	used := min(max(0, *e.Spent), maxSprintEnergy)
	x.Spent = &used
	put(t, t.Sprints, p.ID, p.with(n.Name, x))
}

// returned settles the node's share when its read-back proves that it is over:
// it names the target that took the node back, holds no more than the base, and
// has closed the sprint, so that what it has measured is told.
func (t *tx) returned(n Node, a Ack) Node {
	if x, owes := t.Sprints[n.Owes].Shares[n.Name]; owes && x.back(n, a) {
		return t.settle(n, 0)
	}
	return n
}

// back reports whether a read-back of the node proves that its share is over.
func (x SprintShare) back(n Node, a Ack) bool {
	return x.BackSeq > 0 && a.Seq >= x.BackSeq && !a.Sprinting && a.Effective <= max(n.Target, n.FailSafeCap())
}

// forfeit settles the share of a node that is gone: whatever it has told, nobody
// has seen it back at its base, so at least its whole escrow is spent.
func (t *tx) forfeit(n Node) Node {
	n = t.endShare(n)
	p, ok := t.Sprints[n.Owes]
	if x := p.Shares[n.Name]; ok && x.Spent != nil && *x.Spent < x.Escrow {
		x.Spent = nil
		put(t, t.Sprints, p.ID, p.with(n.Name, x))
	}
	return t.settle(n, untold)
}

// settle charges one share, and closes the sprint with the last one: what was
// not spent goes back, what was spent beyond the escrow becomes debt. Without a
// measured figure the node may have drawn its sprint's watts until now (P7, P8): a powerd
// that was killed in a sprint leaves the hardware at them until it is started again. later is
// how long after the newest tick that may be.
func (t *tx) settle(n Node, later time.Duration) Node {
	p, ok := t.Sprints[n.Owes]
	n.Owes = ""
	if !ok {
		return n
	}
	x := p.Shares[n.Name]
	x.Settled = true
	if x.Spent == nil {
		x.Charged = x.escrowFor(t.Passed-p.Passed+later, p.Duration)
	}
	p = p.with(n.Name, x)
	for _, other := range p.Shares {
		if !other.Settled {
			put(t, t.Sprints, p.ID, p)
			return n
		}
	}
	p.Closed, p.Ended = true, cmp.Or(p.Ended, "done")
	p.Refunded = p.Escrow() - p.Spent()
	put(t, t.Sprints, p.ID, p)
	if d := t.Domains[p.Domain]; d.Sprint != nil {
		if pot, ok := d.Sprint.pot(p.Class); ok {
			back := max(-maxDebt, min(d.Sprint.room(pot), d.Sprint.Balances[pot]+p.Refunded))
			d.Sprint = d.Sprint.with(pot, back)
			put(t, t.Domains, d.Name, d)
		}
	}
	t.forgetSprints()
	return n
}

// escrowFor is what the escrow, which is for one duration, comes to in the time passed; no
// less than the escrow.
func (x SprintShare) escrowFor(passed, duration time.Duration) units.Energy {
	high, low := bits.Mul64(uint64(max(0, x.Escrow)), uint64(max(passed, duration)))
	if high >= uint64(duration) {
		return maxSprintEnergy
	}
	drawn, _ := bits.Div64(high, low, uint64(duration))
	return max(x.Escrow, units.Energy(min(drawn, uint64(maxSprintEnergy))))
}

// forgetSprints drops the oldest closed sprints beyond keptSprints, and beyond
// MaxNodes shares in all.
func (t *tx) forgetSprints() {
	var closed []Sprint
	for _, p := range t.Sprints {
		if p.Closed {
			closed = append(closed, p)
		}
	}
	slices.SortFunc(closed, func(a, b Sprint) int { return cmp.Or(cmp.Compare(b.Began, a.Began), cmp.Compare(b.ID, a.ID)) })
	shares := 0
	for i, p := range closed {
		if shares += len(p.Shares); i >= keptSprints || shares > MaxNodes {
			drop(t, t.Sprints, p.ID)
		}
	}
}

// refill adds what a tick's time gives to every sprint budget. What is escrowed
// still counts as in the pot: it may come back.
func (t *tx) refill(elapsed time.Duration) {
	if elapsed <= 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t.Domains)) {
		d := t.Domains[name]
		if d.Sprint == nil {
			continue
		}
		filled := d
		gain := float64(energy(d.Sprint.Refill, min(elapsed, maxElapsed)))
		for _, pot := range d.Sprint.Pots() {
			room := d.Sprint.room(pot) - t.Escrowed(name, pot)
			if was := d.Sprint.Balances[pot]; was < room {
				filled.Sprint = filled.Sprint.with(pot, min(room, was+units.Energy(gain*d.Sprint.Part(pot))))
			}
		}
		if filled.Sprint != d.Sprint {
			put(t, t.Domains, name, filled)
		}
	}
}

// Escrowed is the energy that open sprints hold of a pot.
func (s *State) Escrowed(domain, pot string) units.Energy {
	sum, b := units.Energy(0), s.Domains[domain].Sprint
	for _, p := range s.Sprints {
		if p.Domain != domain || !p.Open() {
			continue
		}
		if of, ok := b.pot(p.Class); ok && of == pot {
			sum += p.Escrow()
		}
	}
	return sum
}

// SprintSpent is what a node says of a sprint that is over on it.
type SprintSpent struct {
	ID string `json:"id"`
	// Spent above the base cap; nil when it was not measured all the way.
	Spent *units.Energy `json:"spent_uj,omitempty"`
}

// SprintsByTime are the sprints, oldest first.
func (s *State) SprintsByTime() []Sprint {
	return slices.SortedFunc(maps.Values(s.Sprints), func(a, b Sprint) int {
		return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.ID, b.ID))
	})
}
