// Package budget divides watts: it defines a power tree with a budget for every
// domain, and a plan with a cap for every node.
//
// The one idea is water-filling. Every node states its demand. The plan raises
// one water level for all nodes; a node's cap is weight x level, bounded by its
// lowest cap and its demand. When a domain has no headroom left, its nodes keep
// their caps and the others continue to rise. If all demands are met, the rest
// is divided in the same way up to each node's maximum, so that no watt stays
// unused that a node could take.
// (Weighted max-min fairness; Bertsekas and Gallager, "Data Networks", 6.5.2,
// with nested constraints.)
//
// Guarantees: the caps of one plan never exceed any domain's budget less its
// unmanaged watts and the nodes whose caps cannot change, unless the lowest caps
// alone exceed it. That is reported as shortfall, and every node then gets its
// lowest cap.
// Caps are whole eighths of a watt (what a RAPL register holds). The order of
// the nodes does not matter.
//
// The package is pure. It does not decide when a cap may be raised (package
// ledger does) and does not deal with leases.
//
//headroom:apply
package budget

import (
	"cmp"
	"math"
	"slices"

	"headroom/units"
)

// Quantum is the step of a cap: RAPL limits are held in eighths of a watt
// (Intel SDM vol. 3B, 15.10.1, power units).
const Quantum = units.Watt / 8

// leastWeight is the least that a weight counts: levels are watts / weight, and
// must stay numbers.
const leastWeight = 1e-6

// Node is one node as the plan sees it.
type Node struct {
	// Name of the node, unique.
	Name string
	// Domain that the node draws from.
	Domain string
	// Least cap that the node is held at: its fail-safe cap, or what it really can hold if that is more.
	Least units.Power
	// Most the node may be granted. Below Least it counts as Least.
	Most units.Power
	// Demand is what the node can use now; it is met before anything is given beyond demands.
	Demand units.Power
	// Weight of the node against others; counts as at least leastWeight and at most 1 / leastWeight.
	Weight float64
	// Behind: jobs of the node are behind schedule (policy Progress).
	Behind bool
	// Fixed: the node cannot be moved now (lost, uncontrolled); it draws Charge.
	Fixed bool
	// Charge of a Fixed node.
	Charge units.Power
}

// Plan is who gets which watts.
type Plan struct {
	// Policy that it was made by.
	Policy Policy
	// Caps by node name; Fixed nodes have none.
	Caps map[string]units.Power
	// Short tells, for each domain whose least caps do not fit, how many watts are missing.
	Short map[string]units.Power
}

// Divide plans the caps of nodes in the tree. Nodes in unknown domains get no cap.
func Divide(t *Tree, nodes []Node, by Policy) Plan {
	f := newFiller(t, nodes)
	plan := Plan{Policy: by, Caps: make(map[string]units.Power, len(f.ids)), Short: f.shortfalls()}
	f.run(by)
	for i, id := range f.ids {
		plan.Caps[nodes[id].Name] = f.caps[i]
	}
	return plan
}

// NoCap stands in the list of Caps for a node that gets none: it is Fixed, or its domain is unknown.
const NoCap = units.Power(math.MinInt64)

// Caps are the caps that Divide plans, each at the place of its node in nodes.
func Caps(t *Tree, nodes []Node, by Policy) []units.Power {
	f := newFiller(t, nodes)
	f.run(by)
	caps := make([]units.Power, len(nodes))
	for i := range caps {
		caps[i] = NoCap
	}
	for i, id := range f.ids {
		caps[id] = f.caps[i]
	}
	return caps
}

// filler holds one run of Divide. Slices named by domain are in the tree's order.
type filler struct {
	tree  *Tree
	nodes []Node        // as given
	ids   []int         // places in nodes of the movable ones, sorted by name
	level []float64     // what each movable node has been given so far, uW
	room  []units.Power // what the movable nodes of each domain may draw in all
	below [][]int       // places in ids of the movable nodes in and below each domain
	caps  []units.Power

	spans []span // of fill
	bends []bend // of cut
}

func newFiller(t *Tree, nodes []Node) *filler {
	f := &filler{tree: t, nodes: nodes, ids: make([]int, 0, len(nodes))}
	fixed := make([]units.Power, len(t.order))
	homes := make([]int, len(nodes)) // place of each movable node's domain in the tree
	at, ok, last := 0, false, ""
	for i := range nodes {
		n := &nodes[i]
		if n.Domain != last || i == 0 { // neighbours mostly stand in one domain
			last = n.Domain
			at, ok = t.at[last]
		}
		switch {
		case !ok:
		case n.Fixed:
			fixed[at] += n.Charge
		default:
			f.ids, homes[i] = append(f.ids, i), at
		}
	}
	slices.SortFunc(f.ids, func(a, b int) int { return cmp.Compare(nodes[a].Name, nodes[b].Name) })
	f.level = make([]float64, len(f.ids))
	count := make([]int, len(t.order))
	for i, id := range f.ids {
		f.level[i] = float64(nodes[id].Least)
		for d := homes[id]; d >= 0; d = t.up[d] {
			count[d]++
		}
	}
	f.below = make([][]int, len(t.order))
	for d, c := range count {
		f.below[d] = make([]int, 0, c)
	}
	for i, id := range f.ids {
		for d := homes[id]; d >= 0; d = t.up[d] {
			f.below[d] = append(f.below[d], i)
		}
	}
	f.room = f.rooms(fixed)
	return f
}

// run fills every stage of the policy and rounds the levels to caps.
func (f *filler) run(by Policy) {
	f.spans, f.bends = make([]span, len(f.ids)), make([]bend, 0, 2*len(f.ids))
	for i, id := range f.ids {
		f.spans[i].weight = by.weight(&f.nodes[id])
	}
	for _, want := range by.stages() {
		f.fill(want)
	}
	f.trim()
}

func (f *filler) rooms(fixed []units.Power) []units.Power {
	own := make([]units.Power, len(f.tree.order))
	for i, d := range f.tree.order {
		own[i] = d.Unmanaged + fixed[i]
	}
	taken := f.tree.rollUp(own)
	room := make([]units.Power, len(taken))
	for i, d := range f.tree.order {
		room[i] = d.Budget - taken[i]
	}
	return room
}

func (f *filler) shortfalls() map[string]units.Power {
	short := map[string]units.Power{}
	for d, ids := range f.below {
		least := units.Power(0)
		for _, i := range ids {
			least += f.nodes[f.ids[i]].Least
		}
		if least > f.room[d] {
			short[f.tree.order[d].Name] = least - f.room[d]
		}
	}
	return short
}

// fill raises every node from its level towards want(node), as high as the
// domains allow. Domains are solved from the leaves up, so that a rack that is
// full stops rising before the site shares out what it could not take.
func (f *filler) fill(want func(*Node) units.Power) {
	for i, id := range f.ids {
		f.spans[i].from, f.spans[i].to = f.level[i], max(f.level[i], float64(want(&f.nodes[id])))
	}
	for d, ids := range slices.Backward(f.below) {
		f.cut(ids, float64(f.room[d]))
	}
	for i := range f.spans {
		f.level[i] = f.spans[i].to
	}
}

// span is how far one node may rise: its cap is weight x level, kept between from and to.
type span struct {
	weight   float64
	from, to float64
}

func (s span) at(level float64) float64 { return min(max(s.weight*level, s.from), s.to) }

// cut lowers the tops of the spans with the given ids so that together they
// stay within room: it finds the one level at which they just fill it.
func (f *filler) cut(ids []int, room float64) {
	top := 0.0
	for _, i := range ids {
		top += f.spans[i].to
	}
	if top <= room {
		return
	}
	level := f.fullAt(ids, room)
	for _, i := range ids {
		f.spans[i].to = f.spans[i].at(level)
	}
}

// fullAt is the highest level at which the spans fit into room; 0 when not even
// their lower ends do. The sum over the level is piecewise linear and rises, so
// the answer lies between two neighbouring bends of it. They are found as a median
// is: split the bends at one of them, keep the side with the answer, and fold what
// lies below into a line. That takes time in proportion to the number of spans,
// and a fixed choice of pivots makes it the same on every run.
func (f *filler) fullAt(ids []int, room float64) float64 {
	bends, line := f.bendsOf(ids)
	low, high, state := 0.0, math.Inf(1), uint64(1)
	for len(bends) > 0 {
		state = state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX generator
		pivot := bends[(state>>33)%uint64(len(bends))].level
		below, above := split(bends, pivot)
		at := line.plus(bends[:below]) // bends at the pivot add nothing there
		if at.sum+at.slope*pivot >= room {
			bends, high = bends[:below], pivot
			continue
		}
		line, low = at.plus(bends[below:above]), pivot
		bends = bends[above:]
	}
	if line.slope <= 1e-12 {
		return low
	}
	return min(max(low, (room-line.sum)/line.slope), high)
}

// bend is a level at which the slope of the sum changes: a span begins to rise, or stops.
type bend struct{ level, slope float64 }

// line is the sum over the level between two bends: sum + slope x level.
type line struct{ sum, slope float64 }

// plus is the line once these bends lie below the level.
func (l line) plus(bends []bend) line {
	for _, b := range bends {
		l.sum -= b.slope * b.level
		l.slope += b.slope
	}
	return l
}

// bendsOf are the bends of the spans with these ids, and the line below all of them.
// They are valid until the next call.
func (f *filler) bendsOf(ids []int) ([]bend, line) {
	bends := f.bends[:0]
	var l line
	for _, i := range ids {
		s := &f.spans[i]
		l.sum += s.from
		if s.to > s.from {
			bends = append(bends, bend{s.from / s.weight, s.weight}, bend{s.to / s.weight, -s.weight})
		}
	}
	return bends, l
}

// split orders bends into those below the level, at it, and above it, and answers
// where the second and the third part begin.
func split(bends []bend, level float64) (at, above int) {
	above = len(bends)
	for i := 0; i < above; {
		switch b := bends[i]; {
		case b.level < level:
			bends[i], bends[at] = bends[at], b
			at, i = at+1, i+1
		case b.level > level:
			above--
			bends[i], bends[above] = bends[above], b
		default:
			i++
		}
	}
	return at, above
}

// trim turns levels into caps of whole quanta, and takes back a quantum here
// and there should floating point have overfilled a domain.
func (f *filler) trim() {
	f.caps = make([]units.Power, len(f.ids))
	for i, id := range f.ids {
		f.caps[i] = max(f.nodes[id].Least, units.Power(f.level[i]+0.5)/Quantum*Quantum)
	}
	for d := range slices.Backward(f.below) {
		ids := f.below[d]
		over := -f.room[d]
		for _, i := range ids {
			over += f.caps[i]
		}
		for k := 0; over > 0 && k < len(ids); k++ {
			i := ids[k]
			back := min(f.caps[i]-f.nodes[f.ids[i]].Least, (over+Quantum-1)/Quantum*Quantum)
			back = min(back, Quantum)
			f.caps[i] -= back
			over -= back
		}
	}
}
