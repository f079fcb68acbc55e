package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"headroom/units"
)

// Node is one node as the log has it.
type Node struct {
	// Name in the cluster.
	Name string `json:"name"`
	// MachineID is the node's identity.
	MachineID string `json:"machine_id"`
	// Process is the id of the powerd process last seen.
	Process uint64 `json:"process"`
	// Heard is the number of that process's newest heartbeat whose read-back counted; older ones count no more.
	Heard uint64 `json:"heard,omitempty"`
	// Proof is the sequence number that this process was the first to be given: a
	// read-back that names an older one may come from before the process, from one
	// that was replaced, and lowers nothing.
	Proof uint64 `json:"proof,omitempty"`
	// Domain it draws from.
	Domain string `json:"domain"`
	// From is the domain that it was moved from and is charged in as well, until it
	// acknowledges FromSeq; empty when there is none.
	From    string `json:"from,omitempty"`
	FromSeq uint64 `json:"from_seq,omitempty"`
	// Rated, Floor, Max, FailSafe and Weight as the node declared them (see Sighting),
	// as far as that is accepted (see Declared).
	Rated    units.Power `json:"rated_uw"`
	Floor    units.Power `json:"floor_uw"`
	Max      units.Power `json:"max_uw"`
	Weight   float64     `json:"weight"`
	FailSafe units.Power `json:"fail_safe_uw"`
	// Declared is what the node declares of its watts where that differs from what is in
	// force: a rating above what is accepted waits for an operator, a lower one too.
	Declared *Declaration `json:"declared,omitempty"`
	// FirstRated is the rating that the node began with, or that an operator pinned; it
	// bounds what the node's own word is worth.
	FirstRated units.Power `json:"first_rated_uw,omitempty"`
	// Drawn is a measured power above the rating; 0 without one.
	Drawn units.Power `json:"drawn_uw,omitempty"`
	// Settings are what operators say instead of the declaration.
	Settings Settings `json:"settings,omitzero"`
	// Stored is the fail-safe cap that the node has said it stores.
	Stored units.Power `json:"stored_uw"`
	// Controlled: powerd holds caps there. Otherwise it is charged its rated watts.
	Controlled bool `json:"controlled"`
	// Admitted: it may be given leases while it is controlled and not released.
	Admitted bool `json:"admitted"`
	// Released: it may have put its original controls back; charged its rated watts.
	Released bool `json:"released"`
	// Drained: it is walked to its least cap and then granted nothing more.
	Drained bool `json:"drained,omitempty"`
	// Off says who asserts that the machine is off ("bmc", an operator); empty: nobody.
	Off string `json:"off,omitempty"`
	// Unproven: it has not shown what it holds since this incarnation began.
	Unproven bool `json:"unproven,omitempty"`
	// Target is the cap that the plan wants.
	Target units.Power `json:"target_uw"`
	// Sprint is the sprint that stands beside Target; nil for none.
	Sprint *NodeSprint `json:"sprint,omitempty"`
	// Owes is the id of the sprint whose share of this node is not settled yet; empty for none.
	Owes string `json:"owes,omitempty"`
	// Seq numbers the targets of this node; it only grows.
	Seq uint64 `json:"seq"`
	// Ceiling is the highest cap that the node may still be holding.
	// Invariant: Ceiling >= Target and >= every pending target.
	Ceiling units.Power `json:"ceiling_uw"`
	// Pending are the committed targets that may still reach the node, oldest first; the last is Target.
	Pending []Pending `json:"pending,omitempty"`
	// Excess is an effective cap above the ceiling that the node reported; 0 without one.
	Excess units.Power `json:"excess_uw,omitempty"`
}

// Pending is a committed target that may still reach its node; a sprint beside
// it counts with its own cap.
type Pending struct {
	Seq uint64      `json:"seq"`
	Cap units.Power `json:"cap_uw"`
}

// Settings are what operators say of a node; what is not set is as the node declares.
type Settings struct {
	// Min and Max bound the caps that plans give the node.
	Min *units.Power `json:"min_uw,omitempty"`
	Max *units.Power `json:"max_uw,omitempty"`
	// FailSafe is the fail-safe cap that the node is to store.
	FailSafe *units.Power `json:"fail_safe_uw,omitempty"`
	// Rated is the rating that counts, whatever the node declares.
	Rated *units.Power `json:"rated_uw,omitempty"`
	// Weight against other nodes.
	Weight *float64 `json:"weight,omitempty"`
	// BMC is host:port of the node's BMC on the network, asked when the node is lost.
	BMC string `json:"bmc,omitempty"`
	// Labels choose nodes in lists.
	Labels map[string]string `json:"labels,omitempty"`
}

// maxLabels bounds the labels of a node, and labelBytes each of them. A weight
// outside of minWeight to maxWeight is a mistake, not a preference.
const (
	maxLabels            = 32
	labelBytes           = 64
	minWeight, maxWeight = 0.001, 1000.0
)

// validate checks settings on their own: they may outlive the declaration that they were made for.
func (x Settings) validate(node string) error {
	for _, p := range []*units.Power{x.Min, x.Max, x.FailSafe, x.Rated} {
		if p != nil && (*p <= 0 || *p > MaxPower) {
			return fmt.Errorf("%w: %v for %s; it must be above 0 W and at most %v", ErrSettings, *p, node, MaxPower)
		}
	}
	switch {
	case x.Weight != nil && !(*x.Weight >= minWeight && *x.Weight <= maxWeight):
		return fmt.Errorf("%w: the weight of %s is %v; it must be from %v to %v", ErrSettings, node, *x.Weight, minWeight, maxWeight)
	case len(x.BMC) > maxName:
		return fmt.Errorf("%w: the BMC address of %s has %d bytes, at most %d are kept", ErrSettings, node, len(x.BMC), maxName)
	case len(x.Labels) > maxLabels:
		return fmt.Errorf("%w: %s has %d labels, at most %d are kept", ErrSettings, node, len(x.Labels), maxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(x.Labels)) {
		v := x.Labels[k]
		if k == "" || len(k) > labelBytes || len(v) > labelBytes || strings.ContainsAny(k, "=, ") || strings.ContainsAny(v, ", ") {
			return fmt.Errorf("%w: label %q=%q of %s; both have at most %d bytes, no comma and no space", ErrSettings, k, v, node, labelBytes)
		}
	}
	return nil
}

// suit checks settings against what the node is.
func (x Settings) suit(n Node) error {
	n.Settings = x
	switch {
	case x.Rated != nil && *x.Rated < n.saysOfWatts().Floor:
		return fmt.Errorf("%w: the rating of %s is %v; it must be at least its floor %v", ErrSettings, n.Name, *x.Rated, n.saysOfWatts().Floor)
	case x.FailSafe != nil && (*x.FailSafe < n.Floor || *x.FailSafe > n.Rated):
		return fmt.Errorf("%w: the fail-safe cap of %s is %v; it must be from its floor %v to its rated %v",
			ErrSettings, n.Name, *x.FailSafe, n.Floor, n.Rated)
	case x.Min != nil && *x.Min > n.Rated:
		return fmt.Errorf("%w: min of %s is %v; it must be at most its rated %v", ErrSettings, n.Name, *x.Min, n.Rated)
	case x.Max != nil && (*x.Max < n.Least() || *x.Max > n.Rated):
		return fmt.Errorf("%w: max of %s is %v; it must be from its least cap %v to its rated %v", ErrSettings, n.Name, *x.Max, n.Least(), n.Rated)
	}
	return nil
}

// FailSafeCap is the fail-safe cap that the node is to store.
func (n Node) FailSafeCap() units.Power {
	if n.Settings.FailSafe != nil {
		return min(max(*n.Settings.FailSafe, n.Floor), n.Rated)
	}
	return n.FailSafe
}

// lowest is the cap that the node can be driven to when nothing else counts.
func (n Node) lowest() units.Power { return max(n.FailSafeCap(), n.Floor) }

// Least is the lowest cap that a plan may give the node.
func (n Node) Least() units.Power {
	if n.Settings.Min != nil {
		return max(n.lowest(), min(*n.Settings.Min, n.Rated))
	}
	return n.lowest()
}

// Most is the highest cap that a plan may give the node.
func (n Node) Most() units.Power {
	if n.Settings.Max != nil {
		return max(min(*n.Settings.Max, n.Rated), n.Least())
	}
	return max(n.Max, n.Least())
}

// Share is the node's weight against others.
func (n Node) Share() float64 {
	if n.Settings.Weight != nil {
		return *n.Settings.Weight
	}
	return n.Weight
}

// Charge is what the coordinator must assume that the node draws (promise P4).
func (n Node) Charge() units.Power {
	switch {
	case n.Off != "":
		return 0
	case !n.Controlled || n.Released:
		return max(n.Full(), n.Excess)
	}
	return max(n.Ceiling, n.FailSafeCap(), n.Stored, n.Floor, n.Excess)
}

// leastCharge is what the node is charged when driven as low as it goes.
func (n Node) leastCharge() units.Power {
	if n.Off != "" || !n.Controlled || n.Released {
		return n.Charge()
	}
	return max(n.Least(), n.Stored)
}

// bootGain is by how much the node may exceed its charge while it boots.
func (n Node) bootGain() units.Power {
	if n.Off != "" || !n.Controlled || n.Released {
		return 0
	}
	return max(0, n.Full()-n.lowest())
}

// Grantable reports whether the node may be given leases.
func (n Node) Grantable() bool { return n.Admitted && n.Controlled && !n.Released && n.Off == "" }

// declared is the node's declaration as the log has it.
func (n Node) declared() Sighting {
	says := n.saysOfWatts()
	return Sighting{
		Node: n.Name, MachineID: n.MachineID, Process: n.Process, Domain: n.Domain,
		Rated: says.Rated, Floor: says.Floor, Max: says.Max, FailSafe: says.FailSafe, Weight: n.Weight, Controlled: n.Controlled,
	}
}

// watts is the part of a declaration that a rating bounds.
func (s Sighting) watts() Declaration {
	return Declaration{Rated: s.Rated, Floor: s.Floor, Max: s.Max, FailSafe: s.FailSafe}
}

// aim is the node with a new target under the next sequence number. A sprint
// that stood beside the old one is superseded.
func (n Node) aim(p units.Power) Node { return n.aimSprint(p, nil) }

func (n Node) aimSprint(p units.Power, sprint *NodeSprint) Node {
	n.Seq++
	n.Target, n.Sprint = p, sprint
	top := p
	if sprint != nil {
		top = max(p, sprint.Cap)
	}
	n.Pending = append(slices.Clip(n.Pending), Pending{Seq: n.Seq, Cap: top}) // a new list: other states have the old one
	if len(n.Pending) > maxPending {
		folded := n.Pending[1]
		folded.Cap = max(folded.Cap, n.Pending[0].Cap)
		n.Pending = append([]Pending{folded}, n.Pending[2:]...)
	}
	n.Ceiling = max(n.Ceiling, top)
	return n
}

// setNode changes what operators say of a node. It raises no cap: up to a new
// min the next ticks bring it, as there is room.
func (t *tx) setNode(c Command, x *SetNode) error {
	n, ok := t.node(x.Node)
	if !ok {
		return fmt.Errorf("node %q: %w", x.Node, ErrUnknownNode)
	}
	next := x.Settings
	next.Labels = maps.Clone(next.Labels)
	was, rated := n.FailSafeCap(), n.Settings.Rated
	if err := next.validate(n.Name); err != nil {
		return err
	}
	if !samePower(rated, next.Rated) {
		n = t.pin(n, next.Rated)
	}
	if err := next.suit(n); err != nil {
		return err
	}
	t.putNode(n)
	before := t.Totals() // a rating is told as it is: what no longer fits is shortfall, and the next tick cuts
	n.Settings = next
	switch to := min(n.Target, n.Most()); {
	case n.FailSafeCap() != was:
		n.Stored = max(n.Stored, was) // it may have stored that without having told
		if n.Admitted {
			n = t.renumber(n, to)
		}
	case n.Grantable() && to < n.Target:
		n = t.retarget(n, to)
	}
	t.putNode(n)
	if err := t.fits(before); err != nil {
		return err
	}
	what := fmt.Sprintf("node %s set: min %v, max %v, fail-safe %v, weight %g", n.Name, n.Least(), n.Most(), n.FailSafeCap(), n.Share())
	if next.Rated != nil {
		what += fmt.Sprintf(", rated %v", n.Rated)
	}
	t.recordPower(c, what)
	return nil
}

// pin is the node with a rating that an operator has named, or with the node's own
// again. A named one makes what was measured before, and where its rises began, void.
func (t *tx) pin(n Node, to *units.Power) Node {
	n.Settings.Rated = to
	if to == nil { // as when it was first heard
		n.Rated, n.FirstRated = 0, 0
		return t.rated(n, n.saysOfWatts())
	}
	n.FirstRated, n.Drawn = *to, 0
	n = t.rated(n, n.saysOfWatts())
	n.Ceiling, n.Excess = min(n.Ceiling, *to), n.believed(n.Excess)
	for _, p := range n.Pending {
		n.Ceiling = max(n.Ceiling, p.Cap)
	}
	n.Ceiling = max(n.Ceiling, n.Target)
	return n
}

func samePower(a, b *units.Power) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// SetNode replaces the settings of a node.
type SetNode struct {
	Node     string   `json:"node"`
	Settings Settings `json:"settings"`
}

// MoveNode charges a node in another domain. In the old one it is charged as
// well until it has acknowledged.
type MoveNode struct {
	Node string `json:"node"`
	To   string `json:"to"`
}

func (t *tx) moveNode(c Command, x *MoveNode) error {
	n, ok := t.node(x.Node)
	switch {
	case !ok:
		return fmt.Errorf("node %q: %w", x.Node, ErrUnknownNode)
	case !t.knows(x.To):
		return fmt.Errorf("domain %q: %w", x.To, ErrUnknownDomain)
	case n.Domain == x.To:
		return nil
	case n.From != "":
		return fmt.Errorf("node %q has not acknowledged its move from %s yet: %w", n.Name, n.From, ErrMoving)
	case n.Owes != "":
		return fmt.Errorf("node %q is in sprint %s: %w", n.Name, n.Owes, ErrSprint)
	}
	before := t.Totals()
	was := n.Domain
	n.Domain = x.To
	if n.Grantable() {
		n = t.retarget(n, n.Target)
		n.From, n.FromSeq = was, n.Seq
	}
	t.putNode(n)
	if err := t.fits(before); err != nil {
		return err
	}
	t.recordPower(c, fmt.Sprintf("node %s moved from %s to %s, charged %v", n.Name, was, x.To, n.Charge()))
	return nil
}

// DrainNode walks a node to its least cap and stops granting, or takes that back.
type DrainNode struct {
	Node string `json:"node"`
	// Resume takes a drain back.
	Resume bool `json:"resume,omitempty"`
}

func (t *tx) drainNode(c Command, x *DrainNode) error {
	n, ok := t.node(x.Node)
	if !ok {
		return fmt.Errorf("node %q: %w", x.Node, ErrUnknownNode)
	}
	if n.Drained == !x.Resume {
		return nil
	}
	n.Drained = !x.Resume
	if n.Drained && n.Grantable() && n.Target > n.Least() {
		n = t.retarget(n, n.Least())
	}
	t.putNode(n)
	what := "resumed"
	if n.Drained {
		what = "drained"
	}
	t.recordPower(c, "node "+n.Name+" "+what)
	return nil
}

// RemoveNode forgets a node. Unless it is said to be off, its charge becomes
// unmanaged watts of its domain: it may draw them for ever.
type RemoveNode struct {
	Node       string `json:"node"`
	PoweredOff bool   `json:"powered_off,omitempty"`
}

func (t *tx) removeNode(c Command, x *RemoveNode) error {
	n, ok := t.node(x.Node)
	if !ok {
		return fmt.Errorf("node %q: %w", x.Node, ErrUnknownNode)
	}
	what := fmt.Sprintf("node %s removed, powered off: %v freed", n.Name, n.Charge())
	if charge := n.Charge(); !x.PoweredOff && charge > 0 {
		homes := t.homes(n)
		for _, name := range homes {
			d := t.Domains[name]
			d.Unmanaged += charge
			if err := d.Validate(); err != nil {
				return err
			}
			put(t, t.Domains, name, d)
		}
		what = fmt.Sprintf("node %s removed, its %v are unmanaged watts of %s now", n.Name, charge, strings.Join(homes, " and "))
	}
	t.forfeit(n)
	t.dropNode(n.Name)
	t.SeqFloor = max(t.SeqFloor, n.Seq)
	t.recordPower(c, what)
	return nil
}

// homes are the domains that a node may draw in: one, or two while it moves
// between domains of which neither lies above the other.
func (s *State) homes(n Node) []string {
	switch {
	case n.From == "" || slices.Contains(s.above(n.Domain), n.From):
		return []string{n.Domain}
	case slices.Contains(s.above(n.From), n.Domain):
		return []string{n.From}
	}
	return []string{n.Domain, n.From}
}

// PowerOff tells that a node's machine is off: it is charged nothing until it is heard again.
type PowerOff struct {
	Node string `json:"node"`
	// By says whose word it is: "bmc" or an operator.
	By string `json:"by"`
}

func (t *tx) powerOff(c Command, x *PowerOff) error {
	n, ok := t.node(x.Node)
	switch {
	case !ok:
		return fmt.Errorf("node %q: %w", x.Node, ErrUnknownNode)
	case x.By == "" || len(x.By) > maxName:
		return fmt.Errorf("node %q: %w: the source of the report that it is off is needed, at most %d bytes", x.Node, ErrDeclaration, maxName)
	case n.Off != "":
		return nil
	}
	freed := n.Charge()
	n = t.forfeit(n)
	n.Off, n.Excess, n.Unproven, n.From = x.By, 0, false, ""
	t.putNode(n)
	t.recordPower(c, fmt.Sprintf("node %s is off (%s), %v freed", n.Name, x.By, freed))
	return nil
}
