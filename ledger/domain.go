package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"headroom/budget"
	"headroom/units"
)

// LostCharge says what a lost node is charged once its lease must have ended.
type LostCharge string

// Choices of a domain.
const (
	// LostInherit: as the domain above; at the root it means LostKeep.
	LostInherit LostCharge = ""
	// LostKeep: what it was charged last, until there is evidence (promise P4).
	LostKeep LostCharge = "keep"
	// LostFailSafe: its fail-safe cap, once lease, drift margin and Settle are over.
	// It trusts that powerd, or its watchdog, has brought the node there.
	LostFailSafe LostCharge = "fail-safe"
)

// Domain is one place in the power tree with everything that operators say of it.
type Domain struct {
	budget.Domain
	// Rating is what the breaker or feeder carries; 0: not stated.
	Rating units.Power `json:"rating_uw,omitempty"`
	// Margin is the part of the rating that no budget may use, 0 to 0.9.
	Margin float64 `json:"margin,omitempty"`
	// BootNodes is how many nodes below may reboot at once. A reboot loses limits
	// until powerd runs, so the largest differences between rated watts and least
	// cap of that many nodes are kept free.
	BootNodes int `json:"boot_nodes,omitempty"`
	// RatedMax is the highest rating that is accepted from a node below by its own word, 0:
	// as the domain above. The nearest one counts.
	RatedMax units.Power `json:"rated_max_uw,omitempty"`
	// LostCharge of the nodes below.
	LostCharge LostCharge `json:"lost_charge,omitempty"`
	// Highest is the highest budget ever committed for the domain. A raise above it takes
	// the operator's confirmation of the value. Apply decides nothing by it.
	Highest units.Power `json:"highest_uw,omitempty"`
	// Back, when set, is the budget that returns by the clock.
	Back *Back `json:"back,omitempty"`
	// Sprint is the domain's budget of energy for sprints; nil for none.
	Sprint *SprintBudget `json:"sprint,omitempty"`
}

// PlainDomains are domains of which nothing is said but their budgets.
func PlainDomains(list []budget.Domain) []Domain {
	out := make([]Domain, len(list))
	for i, d := range list {
		out[i] = Domain{Domain: d}
	}
	return out
}

// Back is a budget that returns at a wall-clock time (budget set --until).
type Back struct {
	// At in microseconds since the Unix epoch.
	At     int64       `json:"at_us"`
	Budget units.Power `json:"budget_uw"`
}

// Usable is the most that a budget of the domain may be: the rating less its
// margin; MaxInt64 where no rating is stated.
func (d Domain) Usable() units.Power {
	if d.Rating == 0 {
		return math.MaxInt64
	}
	return units.Power(math.Round(float64(d.Rating) * (1 - d.Margin)))
}

// marked returns the domain with Highest at least its budget.
func (d Domain) marked() Domain {
	d.Highest = max(d.Highest, d.Budget)
	return d
}

// mark sets the Highest of every domain that a snapshot of an older version has without
// one, from its budget and the history. A later snapshot tells it: the history may be of
// another domain that had the name before.
func (s *State) mark() {
	for name, d := range s.Domains {
		if d.Highest > 0 {
			continue
		}
		for _, x := range s.Changes {
			if x.Domain == name {
				d.Highest = max(d.Highest, x.From, x.To)
			}
		}
		if d.Back != nil {
			d.Highest = max(d.Highest, d.Back.Budget)
		}
		s.Domains[name] = d.marked()
	}
}

// Validate reports what is wrong with the settings of one domain, seen alone.
func (d Domain) Validate() error {
	switch {
	case d.Name == "" || len(d.Name) > maxName:
		return fmt.Errorf("%w: its name has %d bytes; it needs 1 to %d", ErrDomain, len(d.Name), maxName)
	case d.Unmanaged > maxDomainPower || d.Rating < 0 || d.Rating > maxDomainPower:
		return fmt.Errorf("%w: %s has %v unmanaged and a rating of %v; both are at most %v", ErrDomain, d.Name, d.Unmanaged, d.Rating, maxDomainPower)
	case d.RatedMax < 0 || d.RatedMax > MaxPower:
		return fmt.Errorf("%w: rated-max of %s is %v; it is at most %v", ErrDomain, d.Name, d.RatedMax, MaxPower)
	case !(d.Margin >= 0 && d.Margin <= 0.9):
		return fmt.Errorf("%w: the margin of %s is %v; it is a part of the rating from 0 to 0.9", ErrDomain, d.Name, d.Margin)
	case d.Margin > 0 && d.Rating == 0:
		return fmt.Errorf("%w: %s has a margin and no rating", ErrDomain, d.Name)
	case d.Budget > d.Usable():
		return &RatingError{Domain: d.Name, Budget: d.Budget, Rating: d.Rating, Usable: d.Usable()}
	case d.Back != nil && d.Back.Budget <= 0:
		return fmt.Errorf("the budget that returns to %s: %w", d.Name, budget.ErrAmount)
	case d.Back != nil && d.Back.Budget > d.Usable():
		return fmt.Errorf("the budget that returns: %w", &RatingError{Domain: d.Name, Budget: d.Back.Budget, Rating: d.Rating, Usable: d.Usable()})
	case d.BootNodes < 0 || d.BootNodes > MaxNodes:
		return fmt.Errorf("%w: %s reserves for %d booting nodes", ErrDomain, d.Name, d.BootNodes)
	case d.LostCharge != LostInherit && d.LostCharge != LostKeep && d.LostCharge != LostFailSafe:
		return fmt.Errorf("%w: lost-charge of %s is %q; it is %q or %q", ErrDomain, d.Name, d.LostCharge, LostKeep, LostFailSafe)
	}
	return d.Sprint.validate(d.Name)
}

// newTree is the power tree of these domains.
func newTree(domains map[string]Domain) (*budget.Tree, error) {
	plain := make([]budget.Domain, 0, len(domains))
	for _, name := range slices.Sorted(maps.Keys(domains)) { // what is wrong is told alike on every server
		plain = append(plain, domains[name].Domain)
	}
	return budget.NewTree(plain)
}

// Tree is the power tree; nil while the state is empty.
func (s *State) Tree() *budget.Tree {
	if len(s.Domains) == 0 {
		return nil
	}
	t, err := newTree(s.Domains)
	if err != nil { // Apply lets no such tree in.
		panic(fmt.Sprintf("ledger: power tree: %v", err))
	}
	return t
}

// planTree is the tree with budgets as plans may use them: less what is kept for boots.
func (s *State) planTree(totals map[string]Totals) *budget.Tree {
	usable := make(map[string]Domain, len(s.Domains))
	for name, d := range s.Domains {
		d.Budget = max(1, d.Budget-totals[name].Boot)
		usable[name] = d
	}
	t, err := newTree(usable)
	if err != nil {
		panic(fmt.Sprintf("ledger: power tree: %v", err))
	}
	return t
}

// Totals are the sums over one domain and everything below it.
type Totals struct {
	// Budget and Unmanaged of the domain, Unmanaged with everything below it.
	Budget, Unmanaged units.Power
	// Boot is what is kept free for reboots.
	Boot units.Power
	// Reserved is the sum of the charges.
	Reserved units.Power
	// Floor is what the domain is charged with every node at its least, unmanaged and boot reserve included.
	Floor units.Power
	// Nodes below.
	Nodes int
}

// Headroom is budget - unmanaged - boot reserve - reserved; negative is shortfall.
func (t Totals) Headroom() units.Power { return t.Budget - t.Unmanaged - t.Boot - t.Reserved }

// Totals sums over every domain, keyed by name; nil while there is no power tree.
func (s *State) Totals() map[string]Totals {
	if len(s.Domains) == 0 {
		return nil
	}
	sum := s.sum()
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[name]
		sum.add(&n)
	}
	return sum.totals()
}

// totalsOf are the Totals with the nodes of a roll in the place of the state's.
func (s *State) totalsOf(roll []present) map[string]Totals {
	if len(s.Domains) == 0 {
		return nil
	}
	sum := s.sum()
	for i := range roll {
		sum.add(&roll[i].Node)
	}
	return sum.totals()
}

// sum adds up what nodes are charged in the domains of a state.
type sum struct {
	state   *State
	tallies map[string]*tally
	// reserving are, from where a node stands, the domains that reserve for its reboot; gains
	// are what the nodes may draw more while they boot, by those domains.
	reserving map[string][]string
	gains     map[string][]units.Power
}

// tally is what a domain is charged, without and then with what lies below it.
type tally struct {
	unmanaged, charge, least units.Power
	nodes                    int
}

func (s *State) sum() *sum {
	x := &sum{state: s, tallies: make(map[string]*tally, len(s.Domains)), reserving: map[string][]string{}, gains: map[string][]units.Power{}}
	boots := false
	for name, d := range s.Domains {
		x.tallies[name] = &tally{unmanaged: d.Unmanaged}
		boots = boots || d.BootNodes > 0
	}
	if !boots {
		return x
	}
	for name := range s.Domains {
		for _, d := range s.above(name) {
			if s.Domains[d].BootNodes > 0 {
				x.reserving[name] = append(x.reserving[name], d)
			}
		}
	}
	return x
}

func (x *sum) add(n *Node) {
	charge, least := n.Charge(), n.leastCharge()
	here := x.tallies[n.Domain]
	here.charge, here.least, here.nodes = here.charge+charge, here.least+least, here.nodes+1
	if n.From != "" { // charged in both, and once in what lies above both
		from, both := x.tallies[n.From], x.tallies[x.state.meet(n.Domain, n.From)]
		from.charge, from.least = from.charge+charge, from.least+least
		both.charge, both.least = both.charge-charge, both.least-least
	}
	if len(x.reserving) > 0 {
		x.boot(n)
	}
}

// boot notes what a reboot of the node may take.
func (x *sum) boot(n *Node) {
	gain := n.bootGain()
	if gain == 0 {
		return
	}
	for _, d := range x.reserving[n.Domain] {
		x.gains[d] = append(x.gains[d], gain)
	}
	for _, d := range x.reserving[n.From] { // one on the move may boot in either, and once above both
		if !slices.Contains(x.reserving[n.Domain], d) {
			x.gains[d] = append(x.gains[d], gain)
		}
	}
}

func (x *sum) totals() map[string]Totals {
	for _, d := range slices.Backward(x.state.Tree().Domains()[1:]) { // parents come first, the root before all
		below, up := x.tallies[d.Name], x.tallies[d.Parent]
		up.unmanaged, up.charge = up.unmanaged+below.unmanaged, up.charge+below.charge
		up.least, up.nodes = up.least+below.least, up.nodes+below.nodes
	}
	out := make(map[string]Totals, len(x.tallies))
	for name, sum := range x.tallies {
		boot := x.reserved(name)
		out[name] = Totals{
			Budget: x.state.Domains[name].Budget, Unmanaged: sum.unmanaged, Boot: boot, Reserved: sum.charge,
			Floor: sum.least + sum.unmanaged + boot, Nodes: sum.nodes,
		}
	}
	return out
}

// reserved are the watts kept free for reboots in a domain.
func (x *sum) reserved(domain string) units.Power {
	all, most := x.gains[domain], units.Power(0)
	slices.SortFunc(all, func(a, b units.Power) int { return cmp.Compare(b, a) })
	for _, gain := range all[:min(len(all), x.state.Domains[domain].BootNodes)] {
		most += gain
	}
	return most
}

// above are the names of the domain and of all domains above it, the root last.
func (s *State) above(name string) []string {
	var names []string
	for d, ok := s.Domains[name]; ok; d, ok = s.Domains[d.Parent] {
		names = append(names, d.Name)
	}
	return names
}

// meet is the lowest domain that lies above both.
func (s *State) meet(a, b string) string {
	above := s.above(a)
	for _, d := range s.above(b) {
		if slices.Contains(above, d) {
			return d
		}
	}
	return ""
}

// lostCharge is the choice in force for nodes of a domain.
func (s *State) lostCharge(domain string) LostCharge {
	for _, d := range s.above(domain) {
		if c := s.Domains[d].LostCharge; c != LostInherit {
			return c
		}
	}
	return LostKeep
}

// SetDomain adds a domain or changes what operators say of one. Its budget
// changes by SetBudget only, but for a new domain.
type SetDomain struct {
	Name string `json:"name"`
	// Parent of a new domain. An existing one stays where it is: "" or its parent.
	Parent string `json:"parent,omitempty"`
	// Budget of a new domain.
	Budget units.Power `json:"budget_uw,omitempty"`
	// The rest is changed where set.
	Unmanaged  *units.Power `json:"unmanaged_uw,omitempty"`
	Rating     *units.Power `json:"rating_uw,omitempty"`
	Margin     *float64     `json:"margin,omitempty"`
	BootNodes  *int         `json:"boot_nodes,omitempty"`
	RatedMax   *units.Power `json:"rated_max_uw,omitempty"`
	LostCharge *LostCharge  `json:"lost_charge,omitempty"`
}

// setDomain changes a domain. More unmanaged watts or a larger boot reserve are
// told as they are: what no longer fits is shortfall, and the next tick cuts.
func (t *tx) setDomain(c Command, x *SetDomain) error {
	d, known := t.Domains[x.Name]
	switch {
	case !known && len(t.Domains) >= maxDomains:
		return fmt.Errorf("domain %q: %d domains: %w", x.Name, len(t.Domains), ErrFull)
	case !known:
		d.Name, d.Parent, d.Budget = x.Name, x.Parent, x.Budget
		if !t.knows(x.Parent) {
			return fmt.Errorf("domain %q: parent %q: %w", x.Name, x.Parent, ErrUnknownDomain)
		}
	case x.Parent != "" && x.Parent != d.Parent:
		return fmt.Errorf("domain %q lies below %q: %w", x.Name, d.Parent, ErrParent)
	case x.Budget != 0 && x.Budget != d.Budget:
		return fmt.Errorf("domain %q: %w: change its budget with a budget command", x.Name, ErrDomain)
	}
	x.into(&d)
	if err := d.Validate(); err != nil {
		return err
	}
	for _, p := range t.SchedulesByName() {
		if p.Domain == d.Name && p.Budget > d.Usable() {
			return fmt.Errorf("schedule %s: %w", p.Name, &RatingError{Domain: d.Name, Budget: p.Budget, Rating: d.Rating, Usable: d.Usable()})
		}
	}
	put(t, t.Domains, d.Name, d.marked())
	if _, err := newTree(t.Domains); err != nil {
		return fmt.Errorf("domain %q: %w", x.Name, err)
	}
	if x.RatedMax != nil {
		t.rerate(d.Name)
	}
	t.recordPower(c, "domain "+d.Name+" "+d.words())
	if !known {
		t.changed(c, BudgetChange{Domain: d.Name, To: d.Budget})
	}
	return nil
}

func (x *SetDomain) into(d *Domain) {
	if x.Unmanaged != nil {
		d.Unmanaged = *x.Unmanaged
	}
	if x.Rating != nil {
		d.Rating = *x.Rating
	}
	if x.Margin != nil {
		d.Margin = *x.Margin
	}
	if x.BootNodes != nil {
		d.BootNodes = *x.BootNodes
	}
	if x.RatedMax != nil {
		d.RatedMax = *x.RatedMax
	}
	if x.LostCharge != nil {
		d.LostCharge = *x.LostCharge
	}
}

// words is the domain for the audit log.
func (d Domain) words() string {
	text := fmt.Sprintf("budget %v, unmanaged %v", d.Budget, d.Unmanaged)
	if d.Rating > 0 {
		text += fmt.Sprintf(", rating %v less %.0f %%", d.Rating, 100*d.Margin)
	}
	if d.BootNodes > 0 {
		text += fmt.Sprintf(", boot reserve for %d nodes", d.BootNodes)
	}
	if d.RatedMax > 0 {
		text += fmt.Sprintf(", nodes rated at most %v", d.RatedMax)
	}
	if d.LostCharge != LostInherit {
		text += ", lost-charge " + string(d.LostCharge)
	}
	return text
}

// removeDomain takes away a domain with nothing below it.
func (t *tx) removeDomain(c Command, name string) error {
	d, ok := t.Domains[name]
	switch {
	case !ok:
		return fmt.Errorf("domain %q: %w", name, ErrUnknownDomain)
	case d.Parent == "":
		return fmt.Errorf("domain %q is the root: %w", name, ErrInUse)
	}
	for _, below := range slices.Sorted(maps.Keys(t.Domains)) {
		if t.Domains[below].Parent == name {
			return fmt.Errorf("domain %q has %s below it: %w", name, below, ErrInUse)
		}
	}
	for _, n := range t.NodesByName() {
		if n.Domain == name || n.From == name {
			return fmt.Errorf("domain %q has node %s in it: %w", name, n.Name, ErrInUse)
		}
	}
	if id := t.openIn(name); id != "" {
		return fmt.Errorf("domain %q has sprint %s open: %w", name, id, ErrInUse)
	}
	drop(t, t.Domains, name)
	for id, p := range t.Sprints {
		if p.Domain == name {
			drop(t, t.Sprints, id)
		}
	}
	for id, x := range t.Schedules {
		if x.Domain == name {
			drop(t, t.Schedules, id)
		}
	}
	t.recordPower(c, "domain "+name+" removed")
	t.changed(c, BudgetChange{Domain: name, From: d.Budget})
	return nil
}
