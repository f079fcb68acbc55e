package ledger

import (
	"fmt"
	"maps"
	"slices"

	"headroom/units"
)

// SprintOffer is what a sprint of some nodes could take now. It promises nothing: Apply
// decides when the sprint is asked for.
type SprintOffer struct {
	// Domain pays, the lowest above all of the nodes that has a sprint budget with a pot for
	// the class; Pot is that pot, and Balance what it holds.
	Domain, Pot string
	Balance     units.Energy
	// Capacity is the most that the pot holds.
	Capacity units.Energy
	// Open is a sprint of the domain that holds an escrow still; empty for none.
	Open string
	// Caps are the nodes that can sprint with how high each may go by its rating and the
	// watts of every domain above, Rise is what that is above their targets, together.
	Caps []Target
	Rise units.Power
	// Why says why there is nothing to offer, in words; empty where there is.
	Why string
}

// riseSteps is into how many parts the watts between targets and ratings are cut.
const riseSteps = 8

// OfferSprint looks for what a sprint of a class on these nodes could take.
func OfferSprint(s *State, nodes []string, class string) SprintOffer {
	var o SprintOffer
	if err := s.held(); err != nil {
		o.Why = err.Error()
		return o
	}
	could, why := s.couldSprint(nodes)
	for _, d := range s.above(s.lowestAbove(nodes)) {
		b := s.Domains[d].Sprint
		if b == nil {
			continue
		}
		if pot, ok := b.pot(class); ok {
			o.Domain, o.Pot, o.Balance, o.Capacity, o.Open = d, pot, b.Balances[pot], b.room(pot), s.openIn(d)
			break
		}
	}
	switch {
	case len(nodes) == 0:
		o.Why = "the job's nodes are unknown"
	case o.Domain == "":
		o.Why = fmt.Sprintf("no domain that contains all of the job's nodes has a sprint budget for class %q; set one with coordinator sprint budget", class)
	case len(could) == 0:
		o.Why = why
	default:
		o.raise(s, could)
	}
	return o
}

// couldSprint are those of the nodes that may be granted a sprint, and why the others are not.
func (s *State) couldSprint(names []string) (could []Node, why string) {
	for _, name := range slices.Sorted(slices.Values(names)) {
		switch n, known := s.Nodes[name]; {
		case !known:
			why = "node " + name + " is unknown"
		case !n.Grantable() || n.Drained || n.From != "" || n.Unproven:
			why = "node " + name + " cannot be granted a cap now"
		case n.Owes != "":
			why = "node " + name + " is in sprint " + n.Owes
		case n.Rated <= n.Target:
			why = "the cap of node " + name + " already equals its rated power"
		default:
			could = append(could, n)
		}
	}
	return could, why
}

// lowestAbove is the lowest domain above all of the nodes that are known.
func (s *State) lowestAbove(nodes []string) (name string) {
	for _, n := range nodes {
		switch d := s.Nodes[n].Domain; {
		case d == "":
		case name == "":
			name = d
		default:
			name = s.meet(name, d)
		}
	}
	return name
}

// raise finds how high the nodes may go together: the same part of the way for each.
func (o *SprintOffer) raise(s *State, nodes []Node) {
	totals := s.Totals()
	for part := units.Power(riseSteps); part > 0; part-- {
		more := map[string]units.Power{}
		var caps []Target
		var rise units.Power
		for _, n := range nodes {
			up := (n.Rated - n.Target) / riseSteps * part
			if part == riseSteps {
				up = n.Rated - n.Target
			}
			if up <= 0 {
				continue
			}
			caps, rise = append(caps, Target{Node: n.Name, Cap: n.Target + up}), rise+up
			for _, d := range s.above(n.Domain) {
				more[d] += max(0, n.Target+up-n.Charge())
			}
		}
		over := ""
		for _, d := range slices.Sorted(maps.Keys(more)) {
			if room := totals[d].Headroom(); over == "" && (room < 0 || more[d] > room) {
				over = fmt.Sprintf("%s has %v of headroom, %v needed", d, max(0, room), more[d])
			}
		}
		if over == "" && len(caps) > 0 {
			o.Caps, o.Rise, o.Why = caps, rise, ""
			return
		}
		o.Why = over
	}
}
