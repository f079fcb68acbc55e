package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"headroom/units"
)

// RatingRise is how far a node may raise its rating by its own word, and how far its
// reports about itself count: up to this multiple of the rating that it began with, or
// that an operator has pinned. It is enough for a machine that got another processor,
// and bounds what one node can take from the others by lying.
const RatingRise = 2

// Declaration is what a node declares of its watts, where that is not what is in force.
type Declaration struct {
	Rated    units.Power `json:"rated_uw"`
	Floor    units.Power `json:"floor_uw"`
	Max      units.Power `json:"max_uw"`
	FailSafe units.Power `json:"fail_safe_uw"`
}

// rated is the node with the declaration in force as far as it is accepted.
//
// A rating decides what the node is charged while nothing holds it, so both
// directions are dangerous. One that is too high takes the others' watts: it counts
// up to what an operator pinned, else up to what its domain allows (RatedMax), else up
// to RatingRise of the first one. The multiple is of the first one and not of the
// last, or a node could climb in steps. One that is too low lets an uncontrolled node
// draw watts that nobody is charged for: a node's own word never lowers its rating.
func (t *tx) rated(n Node, x Declaration) Node {
	was := n.Full()
	switch most, bounded := t.ratedMost(n); {
	case n.Settings.Rated != nil:
		n.Rated = *n.Settings.Rated
	case bounded:
		n.Rated = max(n.Rated, min(x.Rated, most))
	default:
		n.Rated = max(n.Rated, x.Rated)
	}
	n.FirstRated = cmp.Or(n.FirstRated, n.Rated)
	n.Floor, n.Max, n.FailSafe = min(x.Floor, n.Rated), min(x.Max, n.Rated), min(x.FailSafe, n.Rated)
	n.Declared = nil
	if now := (Declaration{Rated: n.Rated, Floor: n.Floor, Max: n.Max, FailSafe: n.FailSafe}); now != x {
		n.Declared = &x
	}
	return n.unheard(was)
}

// unheard is the node after what it may draw at most has risen from was: as long as
// it has not shown what it holds, it is charged all of that.
func (n Node) unheard(was units.Power) Node {
	if n.Full() > was && (n.Unproven || n.Heard == 0) {
		n.Ceiling = max(n.Ceiling, n.Full())
	}
	return n
}

// ratedMost is the highest rating that is accepted from the node's own word; false
// where nothing bounds it, as for the first one of a node in a domain without RatedMax.
func (s *State) ratedMost(n Node) (units.Power, bool) {
	for _, d := range s.above(n.Domain) {
		if most := s.Domains[d].RatedMax; most > 0 {
			return most, true
		}
	}
	return RatingRise * n.FirstRated, n.FirstRated > 0
}

// saysOfWatts is the newest declaration, accepted or not.
func (n Node) saysOfWatts() Declaration {
	if n.Declared != nil {
		return *n.Declared
	}
	return Declaration{Rated: n.Rated, Floor: n.Floor, Max: n.Max, FailSafe: n.FailSafe}
}

// Claimed is a rating that the node declares above the accepted one and that waits for
// an operator; 0 for none.
func (n Node) Claimed() units.Power {
	if says := n.saysOfWatts().Rated; says > n.Rated {
		return says
	}
	return 0
}

// Full is the most that the node can draw, as far as anybody knows: its rating, or what
// it was measured at above that.
func (n Node) Full() units.Power { return max(n.Rated, n.Drawn) }

// believed is a power that the node reports of itself, as far as it counts.
func (n Node) believed(p units.Power) units.Power {
	return min(p, max(n.Rated, RatingRise*n.FirstRated), MaxPower)
}

// Draw tells that a node was measured above what it can draw as far as was known.
type Draw struct {
	Node  string      `json:"node"`
	Power units.Power `json:"uw"`
}

// draw takes in such a measurement.
func (t *tx) draw(c Command, x Draw) error {
	n, ok := t.node(x.Node)
	switch {
	case !ok:
		return fmt.Errorf("draw of %q: %w", x.Node, ErrUnknownNode)
	case n.believed(x.Power) <= n.Full():
		return nil
	}
	was := n.Full()
	n.Drawn = n.believed(x.Power)
	t.putNode(n.unheard(was))
	t.record(c, fmt.Sprintf("node %s drew %v, it is rated %v", n.Name, n.Drawn, n.Rated))
	return nil
}

// draw is a measured power of the node above what it can draw as far as is known.
func (r *Report) draw(n *Node) (Draw, bool) {
	if r.Power == nil || r.MachineID != n.MachineID || n.Off != "" {
		return Draw{}, false
	}
	p := n.believed(*r.Power)
	return Draw{Node: n.Name, Power: p}, p > n.Full()+deadband(n.Full())
}

// rerate accepts what waits below a domain whose bound was changed.
func (t *tx) rerate(domain string) {
	for _, n := range t.NodesByName() {
		if n.Claimed() > 0 && slices.Contains(t.above(n.Domain), domain) {
			t.putNode(t.rated(n, n.saysOfWatts()))
		}
	}
}
