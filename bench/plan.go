package bench

import (
	"context"
	"fmt"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// planGoal is the most that a plan for 10,000 nodes may take.
const planGoal = 10 * time.Millisecond

// site is a power tree of four levels (site > feeder > row > rack) with forty
// nodes in a rack, four racks in a row and four rows on a feeder; at every level
// some domains are tight and some are not.
func site(nodes int) ([]budget.Domain, []budget.Node) {
	const inRack, inRow, inFeeder = 40, 4, 4
	domains := []budget.Domain{{Name: "site/s", Budget: units.Power(nodes) * 170 * units.Watt, Unmanaged: 100 * units.Watt}}
	var list []budget.Node
	for i := range nodes {
		rack := i / inRack
		row, feeder := rack/inRow, rack/inRow/inFeeder
		if i%(inRack*inRow*inFeeder) == 0 {
			domains = append(domains, budget.Domain{
				Name: fmt.Sprintf("feeder/f%d", feeder), Parent: "site/s", Budget: units.Power(150+10*(feeder%4)) * inRack * inRow * inFeeder * units.Watt,
			})
		}
		if i%(inRack*inRow) == 0 {
			domains = append(domains, budget.Domain{
				Name: fmt.Sprintf("row/w%d", row), Parent: fmt.Sprintf("feeder/f%d", feeder), Budget: units.Power(140+15*(row%5)) * inRack * inRow * units.Watt,
			})
		}
		if i%inRack == 0 {
			domains = append(domains, budget.Domain{
				Name: fmt.Sprintf("rack/r%d", rack), Parent: fmt.Sprintf("row/w%d", row), Budget: units.Power(130+17*(rack%6)) * inRack * units.Watt,
			})
		}
		list = append(list, budget.Node{
			Name: fmt.Sprintf("n%05d", i), Domain: fmt.Sprintf("rack/r%d", rack), Least: 95 * units.Watt, Most: 240 * units.Watt,
			Demand: units.Power(100+(i*37)%140) * units.Watt, Weight: 1 + float64(i%3),
		})
	}
	return domains, list
}

// cluster is the site as the leader sees it: every node admitted, heard and
// holding a cap that is not the plan's any more.
func cluster(domains []budget.Domain, nodes []budget.Node) (*ledger.State, *ledger.Table) {
	s := ledger.New()
	s.Epoch = lease.Epoch{Incarnation: 1, Term: 1}
	for _, d := range domains {
		s.Domains[d.Name] = d
	}
	t := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i, n := range nodes {
		x := ledger.Sighting{
			Node: n.Name, MachineID: "m-" + n.Name, Process: 7, Domain: n.Domain, Rated: 250 * units.Watt, Floor: 70 * units.Watt,
			Max: n.Most, FailSafe: n.Least, Weight: n.Weight, Controlled: true,
		}
		target := n.Least + units.Power(i%8)*units.Watt
		s.Nodes[n.Name] = ledger.Node{
			Name: n.Name, MachineID: x.MachineID, Process: x.Process, Domain: n.Domain, Rated: x.Rated, Floor: x.Floor, Max: x.Max, Weight: x.Weight,
			FailSafe: x.FailSafe, Stored: x.FailSafe, Controlled: true, Admitted: true, Target: target, Seq: 1, Ceiling: target,
			Pending: []ledger.Pending{{Seq: 1, Cap: target}},
		}
		demand := n.Demand
		t.Heard(ledger.Report{
			Sighting: x, Number: 1, Highest: lease.Stamp{Epoch: s.Epoch, Seq: 1}, Effective: target, EffectiveKnown: true, Stored: x.FailSafe, Demand: &demand,
		}, time.Second)
	}
	return s, t
}

// bisect is the naive plan: every domain by itself searches its water level,
// from the leaves up, by halving; twice, for demands and for what is left.
func bisect(parents map[string]string, order []budget.Domain, nodes []budget.Node) map[string]units.Power {
	const halvings = 60
	caps := make(map[string]float64, len(nodes))
	for _, n := range nodes {
		caps[n.Name] = float64(n.Least)
	}
	under := func(n budget.Node, domain string) bool {
		for d := n.Domain; d != ""; d = parents[d] {
			if d == domain {
				return true
			}
		}
		return false
	}
	for _, want := range []func(budget.Node) float64{
		func(n budget.Node) float64 { return float64(n.Demand) }, func(n budget.Node) float64 { return float64(n.Most) },
	} {
		top := make(map[string]float64, len(nodes))
		for _, n := range nodes {
			top[n.Name] = max(caps[n.Name], want(n))
		}
		for i := len(order) - 1; i >= 0; i-- {
			var inside []budget.Node
			for _, n := range nodes {
				if under(n, order[i].Name) {
					inside = append(inside, n)
				}
			}
			room := float64(order[i].Budget - order[i].Unmanaged)
			at := func(n budget.Node, level float64) float64 { return min(max(n.Weight*level, caps[n.Name]), top[n.Name]) }
			low, high := 0.0, 1e12
			for range halvings {
				mid, sum := (low+high)/2, 0.0
				for _, n := range inside {
					sum += at(n, mid)
				}
				if sum > room {
					high = mid
				} else {
					low = mid
				}
			}
			for _, n := range inside {
				top[n.Name] = at(n, low)
			}
		}
		caps = top
	}
	out := make(map[string]units.Power, len(caps))
	for name, c := range caps {
		out[name] = units.Power(c) / budget.Quantum * budget.Quantum
	}
	return out
}

// repeated is the spread of the times of n calls.
func repeated(ctx context.Context, n int, f func()) spread[time.Duration] {
	var times []time.Duration
	for range n {
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		f()
		times = append(times, time.Since(began))
	}
	return spreadOf(times)
}

func measurePlan(ctx context.Context, l *lab) ([]Row, error) {
	var rows []Row
	for _, size := range []int{10, 100, 1000, 10_000} {
		l.notef("%d nodes", size)
		r, err := planRows(ctx, l, size)
		if err != nil {
			return rows, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

func planRows(ctx context.Context, l *lab, size int) ([]Row, error) {
	domains, nodes := site(size)
	tree, err := budget.NewTree(domains)
	if err != nil {
		return nil, err
	}
	parents := map[string]string{}
	for _, d := range domains {
		parents[d.Name] = d.Parent
	}
	repeat := max(l.pick(50, 10), l.pick(20_000, 2000)/size)
	var plan budget.Plan
	divide := repeated(ctx, repeat, func() { plan = budget.Divide(tree, nodes) })
	var naive map[string]units.Power
	peer := repeated(ctx, l.pick(3, 1), func() { naive = bisect(parents, tree.Domains(), nodes) })
	worst := 0.0
	for name, c := range plan.Caps {
		worst = max(worst, (max(c, naive[name]) - min(c, naive[name])).Watts())
	}
	state, table := cluster(domains, nodes)
	var tick ledger.Tick
	decide := repeated(ctx, repeat, func() { tick = ledger.Decide(state, table, time.Second) })
	row := Row{
		Figure: "plan", What: fmt.Sprintf("plan for %d nodes in a tree of 4 levels", size),
		Measured: fmt.Sprintf("p50 %s, p99 %s", shown(divide.median()), shown(divide.p99())),
		Peer:     fmt.Sprintf("naive bisection: %s (caps differ by at most %.2f W)", shown(peer.median()), worst),
		Ratio:    ratio(divide.median().Seconds(), peer.median().Seconds()), Verdict: noGoal,
		Values: map[string]float64{
			"nodes": float64(size), "p50_s": divide.median().Seconds(), "p99_s": divide.p99().Seconds(), "peer_s": peer.median().Seconds(), "differ_w": worst,
		},
	}
	whole := Row{
		Figure: "plan", What: fmt.Sprintf("the leader's whole tick for %d nodes, %d targets moved", size, len(tick.Targets)),
		Measured: fmt.Sprintf("p50 %s, p99 %s", shown(decide.median()), shown(decide.p99())), Verdict: noGoal,
		Values: map[string]float64{"nodes": float64(size), "p50_s": decide.median().Seconds(), "p99_s": decide.p99().Seconds(), "targets": float64(len(tick.Targets))},
	}
	if size == 10_000 {
		row.Goal, row.Verdict = "<= 10 ms", verdict(divide.median() <= planGoal)
	}
	return []Row{row, whole}, ctx.Err()
}
