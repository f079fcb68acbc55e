package budget_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"headroom/budget"
	"headroom/units"
)

const watt = units.Watt

func tree(tb testing.TB, domains ...budget.Domain) *budget.Tree {
	tb.Helper()
	tr, err := budget.NewTree(domains)
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

func node(name, domain string, least, most, demand units.Power) budget.Node {
	return budget.Node{Name: name, Domain: domain, Least: least * watt, Most: most * watt, Demand: demand * watt, Weight: 1}
}

// Demands are met first, from the smallest up; who asks for more than the
// level shares the rest equally; what nobody asks for is still handed out.
func TestDivide(t *testing.T) {
	t.Parallel()
	site := budget.Domain{Name: "site/lab", Budget: 700 * watt, Unmanaged: 100 * watt}
	for name, c := range map[string]struct {
		domains []budget.Domain
		nodes   []budget.Node
		want    map[string]float64
		short   float64
	}{
		"equal hunger": {
			nodes: []budget.Node{node("a", "site/lab", 90, 400, 400), node("b", "site/lab", 90, 400, 400)},
			want:  map[string]float64{"a": 300, "b": 300},
		},
		"a small demand leaves room": {
			nodes: []budget.Node{node("a", "site/lab", 90, 200, 120), node("b", "site/lab", 90, 500, 500)},
			want:  map[string]float64{"a": 120, "b": 480},
		},
		"beyond demand up to the most": {
			nodes: []budget.Node{node("a", "site/lab", 90, 200, 120), node("b", "site/lab", 90, 220, 150)},
			want:  map[string]float64{"a": 200, "b": 220},
		},
		"a lost node keeps its charge": {
			nodes: []budget.Node{
				node("a", "site/lab", 90, 400, 400), node("b", "site/lab", 90, 400, 400),
				{Name: "lost", Domain: "site/lab", Fixed: true, Charge: 200 * watt},
			},
			want: map[string]float64{"a": 200, "b": 200},
		},
		"a full rack stops, the other rises": {
			domains: []budget.Domain{{Name: "rack/r1", Parent: "site/lab", Budget: 150 * watt}, {Name: "rack/r2", Parent: "site/lab", Budget: 600 * watt}},
			nodes:   []budget.Node{node("a", "rack/r1", 50, 400, 400), node("b", "rack/r1", 50, 400, 400), node("c", "rack/r2", 50, 400, 400)},
			want:    map[string]float64{"a": 75, "b": 75, "c": 400},
		},
		"the least does not fit": {
			nodes: []budget.Node{node("a", "site/lab", 350, 400, 400), node("b", "site/lab", 350, 400, 400)},
			want:  map[string]float64{"a": 350, "b": 350}, short: 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := budget.Divide(tree(t, append(c.domains, site)...), c.nodes, budget.Weighted)
			for n, w := range c.want {
				if got := plan.Caps[n].Watts(); got != w {
					t.Errorf("%s: %v W, want %v W", n, got, w)
				}
			}
			if got := plan.Short["site/lab"].Watts(); got != c.short {
				t.Errorf("short of %v W, want %v W", got, c.short)
			}
		})
	}
}

// A heavier node gets more, in proportion to its weight.
func TestWeight(t *testing.T) {
	t.Parallel()
	heavy := node("heavy", "site", 10, 900, 900)
	heavy.Weight = 3
	plan := budget.Divide(tree(t, budget.Domain{Name: "site", Budget: 400 * watt}), []budget.Node{heavy, node("light", "site", 10, 900, 900)}, budget.Weighted)
	if plan.Caps["heavy"] != 300*watt || plan.Caps["light"] != 100*watt {
		t.Errorf("%v", plan.Caps)
	}
}

// A tree with two roots, none, a cycle, an unknown parent or a senseless amount is refused with its reason.
func TestNewTreeRefuses(t *testing.T) {
	t.Parallel()
	d := func(name, parent string) budget.Domain {
		return budget.Domain{Name: name, Parent: parent, Budget: watt}
	}
	for name, c := range map[string]struct {
		domains []budget.Domain
		want    error
	}{
		"none":     {nil, budget.ErrNoRoot},
		"two":      {[]budget.Domain{d("a", ""), d("b", "")}, budget.ErrManyRoots},
		"cycle":    {[]budget.Domain{d("r", ""), d("a", "b"), d("b", "a")}, budget.ErrCycle},
		"unknown":  {[]budget.Domain{d("r", ""), d("a", "x")}, budget.ErrUnknownParent},
		"twice":    {[]budget.Domain{d("r", ""), d("r", "")}, budget.ErrDuplicate},
		"negative": {[]budget.Domain{{Name: "r", Budget: -1}}, budget.ErrAmount},
	} {
		if _, err := budget.NewTree(c.domains); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

type world struct {
	tree  *budget.Tree
	nodes []budget.Node
}

func drawWorld(t *rapid.T) world {
	domains := []budget.Domain{{Name: "site", Budget: units.Power(rapid.IntRange(200, 9000).Draw(t, "site")) * watt}}
	for r := range rapid.IntRange(0, 4).Draw(t, "racks") {
		domains = append(domains, budget.Domain{
			Name: fmt.Sprintf("rack/%d", r), Parent: "site",
			Budget:    units.Power(rapid.IntRange(100, 3000).Draw(t, "rack")) * watt,
			Unmanaged: units.Power(rapid.IntRange(0, 100).Draw(t, "unmanaged")) * watt,
		})
	}
	tr, err := budget.NewTree(domains)
	if err != nil {
		t.Fatal(err)
	}
	w := world{tree: tr}
	for i := range rapid.IntRange(1, 30).Draw(t, "nodes") {
		least := units.Power(rapid.IntRange(10, 120).Draw(t, "least")) * watt
		w.nodes = append(w.nodes, budget.Node{
			Name: fmt.Sprintf("n%02d", i), Domain: domains[rapid.IntRange(0, len(domains)-1).Draw(t, "domain")].Name, Least: least,
			Most:   least + units.Power(rapid.IntRange(0, 300).Draw(t, "most"))*watt,
			Demand: units.Power(rapid.IntRange(0, 500).Draw(t, "demand")) * watt,
			Weight: rapid.Float64Range(0.1, 10).Draw(t, "weight"),
			Fixed:  rapid.IntRange(0, 9).Draw(t, "fixed") == 0, Charge: 150 * watt,
		})
	}
	return w
}

// In no domain do the caps exceed the budget, unless the least caps alone do; no cap leaves its range.
func TestPlanFitsEveryDomain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		plan := budget.Divide(w.tree, w.nodes, budget.Weighted)
		own := map[string]units.Power{}
		for _, n := range w.nodes {
			if n.Fixed {
				own[n.Domain] += n.Charge
				continue
			}
			c := plan.Caps[n.Name]
			if c < n.Least || c > max(n.Least, n.Most) {
				t.Fatalf("%s: %v outside %v to %v", n.Name, c, n.Least, n.Most)
			}
			own[n.Domain] += c
		}
		totals, unmanaged := w.tree.Totals(own), w.tree.Unmanaged()
		for _, d := range w.tree.Domains() {
			if _, short := plan.Short[d.Name]; !short && totals[d.Name]+unmanaged[d.Name] > d.Budget && !shortBelow(w.tree, plan, d.Name) {
				t.Fatalf("%s: %v + %v over %v", d.Name, totals[d.Name], unmanaged[d.Name], d.Budget)
			}
		}
	})
}

// shortBelow reports whether a domain below name cannot meet its own budget: then name may not either.
func shortBelow(tr *budget.Tree, plan budget.Plan, name string) bool {
	for s := range plan.Short {
		if slices.Contains(tr.Above(s), name) {
			return true
		}
	}
	return false
}

// The order of the nodes does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		want := budget.Divide(w.tree, w.nodes, budget.Weighted)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(w.nodes), func(i, j int) { w.nodes[i], w.nodes[j] = w.nodes[j], w.nodes[i] })
		for name, c := range budget.Divide(w.tree, w.nodes, budget.Weighted).Caps {
			if c != want.Caps[name] {
				t.Fatalf("%s: %v and %v", name, c, want.Caps[name])
			}
		}
	})
}

// Caps is Divide in the order of the nodes; whoever gets no cap there gets none here.
func TestCapsAreThoseOfDivide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := rapid.SampledFrom(budget.Policies()).Draw(t, "policy")
		if rapid.Bool().Draw(t, "stranger") {
			w.nodes = append(w.nodes, node("stranger", "elsewhere", 10, 20, 30))
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(w.nodes), func(i, j int) { w.nodes[i], w.nodes[j] = w.nodes[j], w.nodes[i] })
		plan, caps := budget.Divide(w.tree, w.nodes, p), budget.Caps(w.tree, w.nodes, p)
		for i, n := range w.nodes {
			if want, ok := plan.Caps[n.Name]; ok != (caps[i] != budget.NoCap) || ok && caps[i] != want {
				t.Fatalf("%s: %v, and %v of Divide (%v)", n.Name, caps[i], want, ok)
			}
		}
	})
}

// No watt is kept from a node that could take it: in the end each node is at
// its most, or a domain above it has less than one quantum a node left.
func TestNothingIsKeptBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		plan := budget.Divide(w.tree, w.nodes, budget.Weighted)
		own := map[string]units.Power{}
		for _, n := range w.nodes {
			if n.Fixed {
				own[n.Domain] += n.Charge
			} else {
				own[n.Domain] += plan.Caps[n.Name]
			}
		}
		totals, unmanaged := w.tree.Totals(own), w.tree.Unmanaged()
		slack := map[string]units.Power{}
		for _, d := range w.tree.Domains() {
			slack[d.Name] = d.Budget - totals[d.Name] - unmanaged[d.Name]
		}
		for _, n := range w.nodes {
			if n.Fixed || plan.Caps[n.Name]+budget.Quantum > n.Most {
				continue
			}
			tight := false
			for _, up := range w.tree.Above(n.Domain) {
				tight = tight || slack[up] < units.Power(len(w.nodes)+1)*2*budget.Quantum
			}
			if !tight {
				t.Fatalf("%s could take more than %v: slack %v", n.Name, plan.Caps[n.Name], slack)
			}
		}
	})
}

// BenchmarkDivide10000 plans 10,000 nodes in a tree of four levels, every level binding.
func BenchmarkDivide10000(b *testing.B) {
	tr, nodes := big(b, 10_000)
	for b.Loop() {
		budget.Divide(tr, nodes, budget.Weighted)
	}
}

func big(tb testing.TB, n int) (*budget.Tree, []budget.Node) {
	tb.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	domains := []budget.Domain{{Name: "site", Budget: units.Power(n) * 150 * watt}}
	var nodes []budget.Node
	for f := range 10 {
		feeder := fmt.Sprintf("feeder/%d", f)
		domains = append(domains, budget.Domain{Name: feeder, Parent: "site", Budget: units.Power(n/10) * 160 * watt})
		for k := range 25 {
			rack := fmt.Sprintf("rack/%d-%d", f, k)
			domains = append(domains, budget.Domain{Name: rack, Parent: feeder, Budget: units.Power(n/250) * 170 * watt})
			for i := range n / 250 {
				nodes = append(nodes, node(fmt.Sprintf("n%d-%d-%d", f, k, i), rack, 95, 250, units.Power(100+r.IntN(150))))
			}
		}
	}
	return tree(tb, domains...), nodes
}
