package ledger

import (
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
	// LostCharge of the nodes below.
	LostCharge LostCharge `json:"lost_charge,omitempty"`
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
	return units.FromWatts(d.Rating.Watts() * (1 - d.Margin))
}

func (d Domain) validate() error {
	switch {
	case d.Rating < 0 || d.Rating > MaxNodes*MaxPower:
		return fmt.Errorf("%w: the rating of %s is %v", ErrDomain, d.Name, d.Rating)
	case !(d.Margin >= 0 && d.Margin <= 0.9):
		return fmt.Errorf("%w: the margin of %s is %v; it is a part of the rating from 0 to 0.9", ErrDomain, d.Name, d.Margin)
	case d.Margin > 0 && d.Rating == 0:
		return fmt.Errorf("%w: %s has a margin and no rating", ErrDomain, d.Name)
	case d.Budget > d.Usable():
		return &RatingError{Domain: d.Name, Budget: d.Budget, Rating: d.Rating, Usable: d.Usable()}
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
	for _, d := range domains {
		plain = append(plain, d.Domain)
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
func (s *State) planTree() *budget.Tree {
	boot := s.bootReserves(s.Tree())
	usable := make(map[string]Domain, len(s.Domains))
	for name, d := range s.Domains {
		d.Budget = max(1, d.Budget-boot[name])
		usable[name] = d
	}
	t, err := newTree(usable)
	if err != nil {
		panic(fmt.Sprintf("ledger: power tree: %v", err))
	}
	return t
}

// bootReserves are the watts kept free for reboots, by domain.
func (s *State) bootReserves(t *budget.Tree) map[string]units.Power {
	out := map[string]units.Power{}
	gains := map[string][]units.Power{}
	for _, n := range s.Nodes {
		if gain := n.bootGain(); gain > 0 {
			for _, d := range t.Above(n.Domain) {
				if s.Domains[d].BootNodes > 0 {
					gains[d] = append(gains[d], gain)
				}
			}
		}
	}
	for name, all := range gains {
		slices.SortFunc(all, func(a, b units.Power) int { return int(min(1, max(-1, b-a))) })
		for _, gain := range all[:min(len(all), s.Domains[name].BootNodes)] {
			out[name] += gain
		}
	}
	return out
}

// Totals are the sums over one domain and everything below it.
type Totals struct {
	// Budget and Unmanaged of the domain, Unmanaged with everything below it.
	Budget, Unmanaged units.Power
	// Boot is what is kept free for reboots.
	Boot units.Power
	// Reserved is the sum of the charges.
	Reserved units.Power
	// Floor is what the domain is charged with every node at its least, unmanaged included.
	Floor units.Power
	// Nodes below.
	Nodes int
}

// Headroom is budget - unmanaged - boot reserve - reserved; negative is shortfall.
func (t Totals) Headroom() units.Power { return t.Budget - t.Unmanaged - t.Boot - t.Reserved }

// Totals sums over every domain, keyed by name.
func (s *State) Totals() map[string]Totals {
	t := s.Tree()
	if t == nil {
		return nil
	}
	charge, least, count := map[string]units.Power{}, map[string]units.Power{}, map[string]units.Power{}
	for _, n := range s.Nodes {
		charge[n.Domain] += n.Charge()
		least[n.Domain] += n.leastCharge()
		count[n.Domain]++
		if n.From != "" { // charged in both, and once in what lies above both
			common := meet(t, n.Domain, n.From)
			charge[n.From] += n.Charge()
			charge[common] -= n.Charge()
			least[n.From] += n.leastCharge()
			least[common] -= n.leastCharge()
		}
	}
	charge, least, count = t.Totals(charge), t.Totals(least), t.Totals(count)
	unmanaged, boot := t.Unmanaged(), s.bootReserves(t)
	out := make(map[string]Totals, len(s.Domains))
	for name, d := range s.Domains {
		out[name] = Totals{
			Budget: d.Budget, Unmanaged: unmanaged[name], Boot: boot[name], Reserved: charge[name],
			Floor: least[name] + unmanaged[name] + boot[name], Nodes: int(count[name]),
		}
	}
	return out
}

// meet is the lowest domain that lies above both.
func meet(t *budget.Tree, a, b string) string {
	above := t.Above(a)
	for _, d := range t.Above(b) {
		if slices.Contains(above, d) {
			return d
		}
	}
	return t.Root().Name
}

// lostCharge is the choice in force for nodes of a domain.
func (s *State) lostCharge(domain string) LostCharge {
	for _, d := range s.Tree().Above(domain) {
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
	LostCharge *LostCharge  `json:"lost_charge,omitempty"`
}

// setDomain changes a domain. More unmanaged watts or a larger boot reserve are
// told as they are: what no longer fits is shortfall, and the next tick cuts.
func (t *tx) setDomain(c Command, x *SetDomain) error {
	d, known := t.Domains[x.Name]
	switch {
	case !known && len(t.Domains) >= maxNamed:
		return fmt.Errorf("domain %q: %d domains: %w", x.Name, len(t.Domains), ErrFull)
	case !known:
		d.Name, d.Parent, d.Budget = x.Name, x.Parent, x.Budget
		if !t.knows(x.Parent) {
			return fmt.Errorf("domain %q: parent %q: %w", x.Name, x.Parent, ErrUnknownDomain)
		}
	case x.Parent != "" && x.Parent != d.Parent:
		return fmt.Errorf("domain %q lies below %q: %w", x.Name, d.Parent, ErrParent)
	case x.Budget != 0 && x.Budget != d.Budget:
		return fmt.Errorf("domain %q: %w: its budget changes by a budget command", x.Name, ErrDomain)
	}
	x.into(&d)
	if err := d.validate(); err != nil {
		return err
	}
	put(t, t.Domains, d.Name, d)
	if _, err := newTree(t.Domains); err != nil {
		return fmt.Errorf("domain %q: %w", x.Name, err)
	}
	t.recordPower(c, "domain "+d.Name+" "+d.words())
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
	for _, p := range t.Sprints {
		if p.Domain == name && p.Open() {
			return fmt.Errorf("domain %q has sprint %s open: %w", name, p.ID, ErrInUse)
		}
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
	return nil
}
