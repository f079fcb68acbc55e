package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// Powers of the nodes that the bench makes up.
const (
	nodeLeast = 80 * units.Watt
	nodeMost  = 200 * units.Watt
	nodeRated = 250 * units.Watt
	nodeFloor = 60 * units.Watt
)

// forest is a tree with room for n nodes, site > feeder > row > rack, and nodes in the racks with random demands and
// weights. Each level has a little less than what is below it could take, so that every level binds somewhere.
func forest(n int) (*budget.Tree, []budget.Node, error) {
	share := func(nodes int, part float64) units.Power {
		return units.FromWatts(nodeMost.Watts() * float64(nodes) * part)
	}
	rng := rand.New(rand.NewPCG(uint64(n), 11))
	domains := []budget.Domain{{Name: "site", Budget: share(n, 0.85)}}
	nodes := make([]budget.Node, n)
	for i := range nodes {
		parent := "site"
		for _, level := range []struct {
			name  string
			nodes int
			part  float64
		}{{"feeder", 2000, 0.90}, {"row", 400, 0.93}, {"rack", 40, 0.95}} {
			name := fmt.Sprintf("%s/%d", level.name, i/level.nodes)
			if i%level.nodes == 0 {
				domains = append(domains, budget.Domain{Name: name, Parent: parent, Budget: share(min(n-i, level.nodes), level.part)})
			}
			parent = name
		}
		nodes[i] = budget.Node{Name: fmt.Sprintf("n%05d", i), Domain: parent, Least: nodeLeast, Most: nodeMost, Demand: drawDemand(rng), Weight: 0.5 + rng.Float64()}
	}
	tree, err := budget.NewTree(domains)
	return tree, nodes, err
}

func drawDemand(rng *rand.Rand) units.Power {
	return nodeLeast + units.Power(rng.Int64N(int64(nodeMost-nodeLeast)))
}

// plan measures dividing the budget by number of nodes, and a whole tick with the largest one. The peer of a plan is
// bisection on the same tree.
func plan(ctx context.Context, r *run) error {
	limit := func(full, quick time.Duration) time.Duration { return min(r.cluster.duration, pick(r, full, quick)) }
	for _, n := range []int{100, 1000, 10_000} {
		tree, nodes, err := forest(n)
		if err != nil {
			return err
		}
		var ours, peer []float64 // ms
		apart := 0.0             // largest difference between the caps of both, W
		err = repeat(ctx, pick(r, 200, 20), limit(4*time.Second, 500*time.Millisecond), func(int) error {
			began := time.Now()
			p := budget.Divide(tree, nodes, budget.Weighted)
			middle := time.Now()
			q := bisect(tree, nodes)
			ours, peer = append(ours, 1000*middle.Sub(began).Seconds()), append(peer, 1000*time.Since(middle).Seconds())
			for name, cap := range p.Caps {
				apart = max(apart, math.Abs((cap - q[name]).Watts()))
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.put(fmt.Sprintf("plan-%d", n), ours, peer, "%d plans, the fastest %.2f ms; peer: bisection on each level, caps differ by at most %.2f W", len(ours), slices.Min(ours), apart)
		if n < 10_000 {
			continue
		}
		ticks, err := tickOften(ctx, tree, nodes, pick(r, 60, 5), limit(10*time.Second, time.Second))
		if err != nil {
			return err
		}
		r.put("tick-10000", ticks, nil, "%d ticks, each with every demand new, the fastest %.2f ms", len(ticks), slices.Min(ticks))
	}
	return nil
}

// bisect is the peer: the same filling of the same tree, with the level of each
// domain found by halving an interval until it is as fine as a cap's step.
func bisect(t *budget.Tree, nodes []budget.Node) map[string]units.Power {
	domains := t.Domains()
	below := make(map[string][]int, len(domains))
	for i, n := range nodes {
		for _, d := range t.Above(n.Domain) {
			below[d] = append(below[d], i)
		}
	}
	from, to := make([]float64, len(nodes)), make([]float64, len(nodes))
	for i, n := range nodes {
		from[i] = float64(n.Least)
	}
	for _, most := range []bool{false, true} {
		for i, n := range nodes {
			to[i] = max(from[i], float64(n.Demand))
			if most {
				to[i] = max(from[i], float64(n.Most))
			}
		}
		for _, d := range slices.Backward(domains) {
			halve(nodes, below[d.Name], from, to, float64(d.Budget-d.Unmanaged))
		}
		copy(from, to)
	}
	caps := make(map[string]units.Power, len(nodes))
	for i, n := range nodes {
		caps[n.Name] = max(n.Least, units.Power(from[i])/budget.Quantum*budget.Quantum)
	}
	return caps
}

// halve lowers the tops of the nodes with these ids until they fit into room.
func halve(nodes []budget.Node, ids []int, from, to []float64, room float64) {
	at := func(i int, level float64) float64 { return min(max(nodes[i].Weight*level, from[i]), to[i]) }
	fits := func(level float64) bool {
		s := 0.0
		for _, i := range ids {
			s += at(i, level)
		}
		return s <= room
	}
	low, high := 0.0, 0.0
	for _, i := range ids {
		high = max(high, to[i]/nodes[i].Weight)
	}
	if fits(high) {
		return
	}
	for high-low > float64(budget.Quantum)/4 {
		if mid := (low + high) / 2; fits(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	for _, i := range ids {
		to[i] = at(i, low)
	}
}

// tickOften times whole ticks, in ms, over a committed state with every node heard and every demand
// changed since the previous tick: decided, encoded, decoded as every server does, applied, and the
// leases made that answer the nodes. Only the log and the wire are left out.
//
// Every node is admitted at its least cap at the beginning. That state is built directly: admitting
// the nodes one after another would take minutes.
func tickOften(ctx context.Context, tree *budget.Tree, nodes []budget.Node, runs int, limit time.Duration) (took []float64, err error) {
	s, table := ledger.New(), ledger.NewTable(ledger.DefaultTiming(), 0)
	s.Epoch = lease.Epoch{Incarnation: 1, Term: 1}
	s.Domains, s.Nodes = map[string]ledger.Domain{}, make(map[string]ledger.Node, len(nodes))
	for _, d := range tree.Domains() {
		s.Domains[d.Name] = ledger.Domain{Domain: d}
	}
	for _, n := range nodes {
		s.Nodes[n.Name] = ledger.Node{
			Name: n.Name, MachineID: "machine-" + n.Name, Process: 1, Heard: 1, Domain: n.Domain, Rated: nodeRated, Floor: nodeFloor, Max: n.Most,
			Weight: n.Weight, FailSafe: n.Least, Stored: n.Least, Controlled: true, Admitted: true, Target: n.Least, Seq: 1, Ceiling: n.Least,
		}
		table.Heard(reportFor(s, n, 1, n.Demand), time.Second)
	}
	rng := rand.New(rand.NewPCG(uint64(len(nodes)), 13))
	err = repeat(ctx, runs, limit, func(i int) error {
		now := time.Duration(i+2) * time.Second
		for _, n := range nodes {
			table.Heard(reportFor(s, n, uint64(i+2), drawDemand(rng)), now)
		}
		began := time.Now()
		table.Mark()
		tick := ledger.Decide(s, table, now)
		tick.Elapsed = time.Second
		data, err := ledger.Command{Rules: ledger.Rules, Epoch: s.Epoch, Actor: "bench", At: int64(now), Tick: &tick}.Encode()
		if err != nil {
			return err
		}
		c, err := ledger.Decode(data)
		if err == nil {
			_, err = s.Apply(c)
		}
		grants := table.Grants(s, now)
		took = append(took, 1000*time.Since(began).Seconds())
		if err == nil && len(grants) != len(nodes) {
			err = fmt.Errorf("bench: %d leases for %d nodes", len(grants), len(nodes))
		}
		return err
	})
	return took, err
}

// reportFor is a heartbeat of a node that carries out its newest target.
func reportFor(s *ledger.State, n budget.Node, number uint64, demand units.Power) ledger.Report {
	x := s.Nodes[n.Name]
	return ledger.Report{
		Sighting: ledger.Sighting{
			Node: n.Name, MachineID: x.MachineID, Process: x.Process, Domain: n.Domain,
			Rated: x.Rated, Floor: x.Floor, Max: x.Max, FailSafe: x.FailSafe, Weight: x.Weight, Controlled: true,
		},
		Number: number, Highest: s.Stamp(x), Effective: max(x.Target, n.Least), EffectiveKnown: true, Stored: n.Least, Power: &demand, Demand: &demand,
	}
}
