package budget

import (
	"fmt"
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
	return "", fmt.Errorf("%w: %q is none of %v", ErrPolicy, name, Policies())
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

// prepared are the nodes as the policy sees them.
func (p Policy) prepared(nodes []Node) []Node {
	if p != Equal && p != Demand {
		return nodes
	}
	out := slices.Clone(nodes)
	for i := range out {
		out[i].Weight = 1
		if p == Equal {
			out[i].Demand = out[i].Most
		}
	}
	return out
}

// stages are what a plan tries to meet, one after the other.
func (p Policy) stages() []func(Node) units.Power {
	demand := func(n Node) units.Power { return min(max(n.Demand, n.Least), n.Most) }
	most := func(n Node) units.Power { return max(n.Most, n.Least) }
	behind := func(n Node) units.Power {
		if n.Behind {
			return demand(n)
		}
		return n.Least
	}
	if p == Progress {
		return []func(Node) units.Power{behind, demand, most}
	}
	return []func(Node) units.Power{demand, most}
}

// Bound is what keeps a node's cap where a plan has put it.
type Bound struct {
	// By is "most", "least", "demand", "domain" or "fixed".
	By string
	// Domain that is full, when By is "domain".
	Domain string
	// Spare is, for each domain above the node, what the plan leaves free there.
	Spare map[string]units.Power
}

// Explain says what bounds a node in a plan that Divide made of these very nodes;
// false when there is no such node.
func Explain(t *Tree, nodes []Node, plan Plan, name string) (Bound, bool) {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 || !t.Has(nodes[i].Domain) {
		return Bound{}, false
	}
	n := nodes[i]
	b := Bound{By: "fixed", Spare: spare(t, nodes, plan, n.Domain)}
	planned, ok := plan.Caps[name]
	if !ok {
		return b, true
	}
	switch {
	case planned >= n.Most:
		b.By = "most"
		return b, true
	case planned <= n.Least:
		b.By = "least"
	default:
		b.By = "demand"
	}
	for _, d := range t.Above(n.Domain) { // the nearest full domain is the one that binds
		if b.Spare[d] < units.Power(1+len(nodes))*Quantum {
			b.By, b.Domain = "domain", d
			break
		}
	}
	return b, true
}

// spare is what the plan leaves free in a domain and in those above it.
func spare(t *Tree, nodes []Node, plan Plan, domain string) map[string]units.Power {
	own := map[string]units.Power{}
	for _, n := range nodes {
		if planned, ok := plan.Caps[n.Name]; ok {
			own[n.Domain] += planned
		} else {
			own[n.Domain] += n.Charge
		}
	}
	taken, unmanaged := t.Totals(own), t.Unmanaged()
	out := map[string]units.Power{}
	for _, d := range t.Domains() {
		if slices.Contains(t.Above(domain), d.Name) {
			out[d.Name] = d.Budget - unmanaged[d.Name] - taken[d.Name]
		}
	}
	return out
}
