package budget

import (
	"fmt"
	"math"
	"slices"

	"headroom/units"
)

// Policy says who gets watts first.
type Policy string

// Policies by name.
const (
	// Weighted meets demands by weight: the default.
	Weighted Policy = "weighted"
	// Equal looks at neither demand nor weight: every node rises alike, up to its most.
	Equal Policy = "equal"
	// Demand meets demands and leaves weights aside.
	Demand Policy = "demand"
	// Progress meets first the demands of nodes whose jobs are behind schedule, by
	// weight, then the others'.
	Progress Policy = "progress"
)

// Policies are all policies, the default first.
func Policies() []Policy { return []Policy{Weighted, Equal, Demand, Progress} }

// ParsePolicy reads a policy's name; empty is the default.
func ParsePolicy(name string) (Policy, error) {
	if name == "" {
		return Weighted, nil
	}
	if p := Policy(name); slices.Contains(Policies(), p) {
		return p, nil
	}
	return "", fmt.Errorf("%w: %q is not one of %v", ErrPolicy, name, Policies())
}

// Sentence says what the policy does.
func (p Policy) Sentence() string {
	switch p {
	case Equal:
		return "every node rises alike, up to its most"
	case Demand:
		return "demands are met alike, then what is left goes to all"
	case Progress:
		return "nodes whose jobs are behind schedule are met first, then the others"
	case Weighted:
	}
	return "demands are met by weight, then what is left goes to all by weight"
}

// weight is the node's weight as it counts for the policy.
func (p Policy) weight(n *Node) float64 {
	switch {
	case p == Equal || p == Demand:
		return 1
	case !(n.Weight >= leastWeight): // not a number, too
		return leastWeight
	}
	return min(n.Weight, 1/leastWeight)
}

// demand is what the policy takes for the node's demand, within what it may be granted.
func (p Policy) demand(n *Node) units.Power {
	if p == Equal {
		return n.Most
	}
	return min(max(n.Demand, n.Least), n.Most)
}

// stages are what a plan tries to meet, one after the other.
func (p Policy) stages() []func(*Node) units.Power {
	most := func(n *Node) units.Power { return max(n.Most, n.Least) }
	behind := func(n *Node) units.Power {
		if n.Behind {
			return p.demand(n)
		}
		return n.Least
	}
	if p == Progress {
		return []func(*Node) units.Power{behind, p.demand, most}
	}
	return []func(*Node) units.Power{p.demand, most}
}

// Bound is what keeps a node's cap where a plan has put it.
type Bound struct {
	// By says what: one of the words below.
	By string
	// Domain that is full, when By is ByDomain.
	Domain string
	// Spare is, for each domain above the node, what the plan leaves free there.
	Spare map[string]units.Power
}

// What can keep a cap where it is.
const (
	// ByMost: the node has the most that it may be granted.
	ByMost = "most"
	// ByLeast: it asks for no more than the least that it is held at.
	ByLeast = "least"
	// ByDemand: it has what it asks for, and there is nothing left beyond demands.
	ByDemand = "demand"
	// ByDomain: it could use more, but the nearest full domain above it has no more.
	ByDomain = "domain"
	// ByFixed: no plan moves the node now.
	ByFixed = "fixed"
)

// Explain says what bounds a node in a plan that Divide made of these very nodes;
// false when there is no such node.
func Explain(t *Tree, nodes []Node, plan Plan, name string) (Bound, bool) {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 || !t.Has(nodes[i].Domain) {
		return Bound{}, false
	}
	n := nodes[i]
	wants := plan.Policy.demand(&n)
	spare, movable := spare(t, nodes, plan, n.Domain)
	b := Bound{By: ByDomain, Spare: spare}
	planned, ok := plan.Caps[name]
	switch {
	case !ok:
		b.By = ByFixed
	case planned+Quantum > n.Most: // caps are whole quanta, the most need not be
		b.By = ByMost
	case planned > wants, planned < wants-2*Quantum: // caps are rounded down, and may be corrected by one more
		b.Domain = fullest(t.Above(n.Domain), spare, movable)
	case wants >= n.Most:
		b.By = ByMost
	case planned <= n.Least:
		b.By = ByLeast
	default:
		b.By = ByDemand
	}
	return b, true
}

// fullest is the first of the domains, from the node up, that is full: Divide
// hands out all that it may, but for two quanta a node.
func fullest(above []string, spare map[string]units.Power, movable map[string]int) string {
	tightest, least := "", math.Inf(1)
	for _, d := range above {
		free := float64(spare[d]) / float64(2*Quantum*units.Power(movable[d]+1))
		if free < 1 {
			return d
		}
		if free < least {
			tightest, least = d, free
		}
	}
	return tightest
}

// spare is what the plan leaves free in a domain and in those above it, and how
// many nodes it gives caps there.
func spare(t *Tree, nodes []Node, plan Plan, domain string) (free map[string]units.Power, movable map[string]int) {
	own, count := map[string]units.Power{}, map[string]units.Power{}
	for _, n := range nodes {
		if planned, ok := plan.Caps[n.Name]; ok {
			own[n.Domain] += planned
			count[n.Domain]++
		} else {
			own[n.Domain] += n.Charge
		}
	}
	taken, unmanaged := t.Totals(own), t.Unmanaged()
	count = t.Totals(count)
	free, movable = map[string]units.Power{}, map[string]int{}
	for _, d := range t.Above(domain) {
		free[d] = t.order[t.at[d]].Budget - unmanaged[d] - taken[d]
		movable[d] = int(count[d])
	}
	return free, movable
}
