// Claim: each policy is what its name says, none of them overfills a domain or
// keeps a watt from a node that could take it, whatever the order of the nodes,
// and what is said to bind a cap is what binds it.
package budget_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"headroom/budget"
	"headroom/units"
)

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for _, p := range budget.Policies() {
		if got, err := budget.ParsePolicy(string(p)); err != nil || got != p || p.Sentence() == "" {
			t.Errorf("%s: %v, %v", p, got, err)
		}
	}
	if got, err := budget.ParsePolicy(""); err != nil || got != budget.Weighted || budget.Policies()[0] != got {
		t.Errorf("the default: %v, %v", got, err)
	}
	for _, name := range []string{"Equal", "fair", " equal"} {
		if _, err := budget.ParsePolicy(name); !errors.Is(err, budget.ErrPolicy) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The policies side by side on 600 W: a and b ask for 100 W and 400 W, b weighs
// three times as much, c asks for 300 W and is behind schedule.
func TestPoliciesSideBySide(t *testing.T) {
	t.Parallel()
	a, b, c := node("a", "site", 60, 400, 100), node("b", "site", 60, 400, 400), node("c", "site", 60, 400, 300)
	b.Weight, c.Behind = 3, true
	for p, want := range map[budget.Policy][3]float64{
		budget.Equal:    {200, 200, 200},
		budget.Demand:   {100, 250, 250},
		budget.Weighted: {100, 375, 125},
		budget.Progress: {75, 225, 300}, // c first; a and b share the rest, 1 to 3
	} {
		plan := budget.Divide(tree(t, budget.Domain{Name: "site", Budget: 600 * watt}), []budget.Node{a, b, c}, p)
		for i, name := range []string{"a", "b", "c"} {
			if got := plan.Caps[name].Watts(); got != want[i] {
				t.Errorf("%s: %s gets %v W, want %v W", p, name, got, want[i])
			}
		}
	}
}

// pairs are all nodes that a plan moves, two by two, that stand in one domain:
// what keeps one of them down keeps the other.
func pairs(w world, plan budget.Plan, check func(a, b budget.Node, capA, capB units.Power)) {
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a.Name != b.Name && a.Domain == b.Domain && !a.Fixed && !b.Fixed {
				check(a, b, plan.Caps[a.Name], plan.Caps[b.Name])
			}
		}
	}
}

// rounding is by how much two caps may miss what they should be: one quantum, and one of correction.
const rounding = 2 * budget.Quantum

// Equal: of two nodes in one domain the lower one has its most, or the higher one
// its least; and neither demand nor weight changes anything.
func TestEqualIsEqual(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		plan := budget.Divide(w.tree, w.nodes, budget.Equal)
		pairs(w, plan, func(a, b budget.Node, capA, capB units.Power) {
			if capA+rounding < capB && capA+rounding < a.Most && capB > b.Least+rounding {
				t.Fatalf("%s has %v of at most %v, %s has %v of at least %v", a.Name, capA, a.Most, b.Name, capB, b.Least)
			}
		})
		for i := range w.nodes {
			w.nodes[i].Demand, w.nodes[i].Weight = drawDemand(t), rapid.Float64Range(0.1, 10).Draw(t, "weight")
		}
		same(t, plan, budget.Divide(w.tree, w.nodes, budget.Equal))
	})
}

func drawDemand(t *rapid.T) units.Power {
	return units.Power(rapid.IntRange(0, 500).Draw(t, "demand")) * watt
}

func same(t *rapid.T, one, two budget.Plan) {
	for name, p := range one.Caps {
		if two.Caps[name] != p {
			t.Fatalf("%s: %v and %v", name, p, two.Caps[name])
		}
	}
}

// Demand: nobody is given more than it asks for while another in its domain has
// less than it asks for and less than the first; weights change nothing.
func TestDemandMeetsDemands(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		plan := budget.Divide(w.tree, w.nodes, budget.Demand)
		pairs(w, plan, func(a, b budget.Node, capA, capB units.Power) {
			wantA, wantB := min(max(a.Demand, a.Least), max(a.Most, a.Least)), min(max(b.Demand, b.Least), max(b.Most, b.Least))
			if capA+rounding < wantA && capB > wantB+rounding {
				t.Fatalf("%s has %v and needs %v, %s has %v and needs %v", a.Name, capA, wantA, b.Name, capB, wantB)
			}
			if capA+rounding < wantA && capA+rounding < capB && capB > b.Least+rounding {
				t.Fatalf("%s has %v and needs %v, %s has %v", a.Name, capA, wantA, b.Name, capB)
			}
		})
		for i := range w.nodes {
			w.nodes[i].Weight = rapid.Float64Range(0.1, 10).Draw(t, "weight")
		}
		same(t, plan, budget.Divide(w.tree, w.nodes, budget.Demand))
	})
}

// Weighted: two nodes in one domain whose demands are not met have caps in
// proportion to their weights, unless one is at its least.
func TestWeightedIsInProportion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		plan := budget.Divide(w.tree, w.nodes, budget.Weighted)
		pairs(w, plan, func(a, b budget.Node, capA, capB units.Power) {
			wantA := min(max(a.Demand, a.Least), max(a.Most, a.Least))
			levelA, levelB := float64(capA+rounding)/a.Weight, float64(capB-rounding)/b.Weight
			if capA+rounding < wantA && levelA < levelB && capB > b.Least+rounding {
				t.Fatalf("%s: %v by weight %v and not met; %s: %v by weight %v", a.Name, capA, a.Weight, b.Name, capB, b.Weight)
			}
		})
	})
}

// Progress: a node that is behind has its demand met before one in its domain that
// is not has more than its least; with nobody behind it is Weighted.
func TestProgressPutsTheLateFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		same(t, budget.Divide(w.tree, w.nodes, budget.Weighted), budget.Divide(w.tree, w.nodes, budget.Progress))
		for i := range w.nodes {
			w.nodes[i].Behind = rapid.Bool().Draw(t, "behind")
		}
		plan := budget.Divide(w.tree, w.nodes, budget.Progress)
		pairs(w, plan, func(a, b budget.Node, capA, capB units.Power) {
			wantA := min(max(a.Demand, a.Least), max(a.Most, a.Least))
			if a.Behind && !b.Behind && capA+rounding < wantA && capB > b.Least+rounding {
				t.Fatalf("%s is behind with %v of %v, %s has %v", a.Name, capA, wantA, b.Name, capB)
			}
		})
	})
}

// No policy overfills a domain, leaves a node outside of its range, keeps back
// watts, or cares for the order of the nodes.
func TestEveryPolicyKeepsTheBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for i := range w.nodes {
			w.nodes[i].Behind = rapid.Bool().Draw(t, "behind")
		}
		p := rapid.SampledFrom(budget.Policies()).Draw(t, "policy")
		plan := budget.Divide(w.tree, w.nodes, p)
		own := map[string]units.Power{}
		for _, n := range w.nodes {
			c := plan.Caps[n.Name]
			if !n.Fixed && (c < n.Least || c > max(n.Least, n.Most)) {
				t.Fatalf("%s: %v outside %v to %v", n.Name, c, n.Least, n.Most)
			}
			if n.Fixed {
				c = n.Charge
			}
			own[n.Domain] += c
		}
		totals, unmanaged := w.tree.Totals(own), w.tree.Unmanaged()
		for _, d := range w.tree.Domains() {
			if _, short := plan.Short[d.Name]; !short && totals[d.Name]+unmanaged[d.Name] > d.Budget && !shortBelow(w.tree, plan, d.Name) {
				t.Fatalf("%s, %s: %v + %v over %v", p, d.Name, totals[d.Name], unmanaged[d.Name], d.Budget)
			}
		}
		nodes := slices.Clone(w.nodes)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		same(t, plan, budget.Divide(w.tree, nodes, p))
	})
}

// A weight that no level can be divided by does not overfill a domain.
func TestAbsurdWeights(t *testing.T) {
	t.Parallel()
	for _, weight := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 5e-324, 1e-300, math.MaxFloat64} {
		odd := node("odd", "site", 90, 400, 400)
		odd.Weight = weight
		plan := budget.Divide(tree(t, budget.Domain{Name: "site", Budget: 500 * watt}), []budget.Node{odd, node("even", "site", 90, 400, 400)}, budget.Weighted)
		if a, b := plan.Caps["odd"], plan.Caps["even"]; a+b > 500*watt || a+b < 499*watt || a < 90*watt || b < 90*watt {
			t.Errorf("weight %v: %v and %v", weight, a, b)
		}
	}
}

// What binds: the node's own most, or the nearest full domain; each with what is left above it.
func TestExplain(t *testing.T) {
	t.Parallel()
	tr := tree(t,
		budget.Domain{Name: "site", Budget: 1000 * watt, Unmanaged: 100 * watt},
		budget.Domain{Name: "r1", Parent: "site", Budget: 300 * watt},
		budget.Domain{Name: "r2", Parent: "site", Budget: 900 * watt, Unmanaged: 50 * watt},
	)
	nodes := []budget.Node{
		node("a", "r1", 50, 400, 100), node("b", "r1", 50, 400, 400), node("c", "r2", 50, 100, 500), node("d", "r2", 50, 900, 900),
		node("e", "r2", 50, 900, 10),
		{Name: "lost", Domain: "r2", Fixed: true, Charge: 30 * watt},
	}
	plan := budget.Divide(tr, nodes, budget.Weighted)
	for name, want := range map[string]budget.Bound{
		"a":    {By: budget.ByDemand, Spare: map[string]units.Power{"r1": 0, "site": 0}},
		"b":    {By: budget.ByDomain, Domain: "r1", Spare: map[string]units.Power{"r1": 0, "site": 0}},
		"c":    {By: budget.ByMost, Spare: map[string]units.Power{"r2": 300 * watt, "site": 0}},
		"e":    {By: budget.ByLeast, Spare: map[string]units.Power{"r2": 300 * watt, "site": 0}},
		"d":    {By: budget.ByDomain, Domain: "site", Spare: map[string]units.Power{"r2": 300 * watt, "site": 0}},
		"lost": {By: budget.ByFixed, Spare: map[string]units.Power{"r2": 300 * watt, "site": 0}},
	} {
		got, ok := budget.Explain(tr, nodes, plan, name)
		if !ok || got.By != want.By || got.Domain != want.Domain {
			t.Errorf("%s: %+v, want %+v; caps %v", name, got, want, plan.Caps)
		}
		for d, free := range want.Spare {
			if got.Spare[d] != free || len(got.Spare) != 2 {
				t.Errorf("%s: %v spare, want %v", name, got.Spare, want.Spare)
			}
		}
	}
	// Where demands do not count, they bind nobody.
	plan = budget.Divide(tr, nodes, budget.Equal)
	if got, _ := budget.Explain(tr, nodes, plan, "a"); got.By != budget.ByDomain || got.Domain != "r1" {
		t.Errorf("equal: %+v", got)
	}
	if _, ok := budget.Explain(tr, nodes, plan, "nobody"); ok {
		t.Error("nobody is bound")
	}
	if _, ok := budget.Explain(tr, []budget.Node{node("x", "r9", 1, 2, 3)}, plan, "x"); ok {
		t.Error("a node of nowhere is bound")
	}
}

// In a large domain that has room a node is never said to be bound by it, and in
// every plan what is named does bind: a watt more for it is a watt more for the node.
func TestExplainNamesWhatBinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := rapid.SampledFrom(budget.Policies()).Draw(t, "policy")
		plan := budget.Divide(w.tree, w.nodes, p)
		if len(plan.Short) > 0 {
			return // then every node is at its least, and no one domain is to blame
		}
		for _, n := range w.nodes {
			b, ok := budget.Explain(w.tree, w.nodes, plan, n.Name)
			switch planned := plan.Caps[n.Name]; {
			case !ok:
				t.Fatalf("%s: nothing said", n.Name)
			case n.Fixed != (b.By == budget.ByFixed):
				t.Fatalf("%s: %+v", n.Name, b)
			case b.By == budget.ByMost && planned < n.Most-rounding:
				t.Fatalf("%s: has %v of %v, bound by %+v", n.Name, planned, n.Most, b)
			case b.By == budget.ByLeast && (planned > n.Least || n.Demand > n.Least+rounding && p != budget.Equal):
				t.Fatalf("%s: has %v and asks for %v, bound by %+v", n.Name, planned, n.Demand, b)
			case b.By == budget.ByDemand && (planned < n.Demand-rounding || planned > n.Demand+rounding || p == budget.Equal):
				t.Fatalf("%s: has %v and asks for %v, bound by %+v", n.Name, planned, n.Demand, b)
			case b.By == budget.ByDomain && b.Spare[b.Domain] > 2*budget.Quantum*units.Power(len(w.nodes)+1):
				t.Fatalf("%s is bound by %s, which has %v left", n.Name, b.Domain, b.Spare[b.Domain])
			case b.By == budget.ByDomain && !slices.Contains(w.tree.Above(n.Domain), b.Domain):
				t.Fatalf("%s is bound by %s, which is not above it", n.Name, b.Domain)
			}
		}
	})
	domains := []budget.Domain{{Name: "site", Budget: 3000 * watt}, {Name: "rack", Parent: "site", Budget: 700 * watt}}
	nodes := []budget.Node{node("x", "rack", 100, 900, 900)}
	for i := range 2900 { // 29 W each: the site is full to the watt
		nodes = append(nodes, budget.Node{Name: "n" + string(rune(i)), Domain: "site", Least: watt, Most: 2 * watt, Demand: watt, Weight: 1})
	}
	tr := tree(t, domains...)
	plan := budget.Divide(tr, nodes, budget.Weighted)
	if b, _ := budget.Explain(tr, nodes, plan, "x"); b.By != budget.ByDomain || b.Domain != "site" || b.Spare["rack"] < 500*watt {
		t.Errorf("%v: %+v; the rack is nearly empty", plan.Caps["x"], b)
	}
}
