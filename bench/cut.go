package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/units"
)

// A cut is from every node at its most to three quarters of that.
const (
	cutFrom = nodeMost
	cutTo   = 150 * units.Watt
)

// cut measures cuts of the budget by number of nodes.
func cut(ctx context.Context, r *run) ([]Item, error) {
	var items []Item
	sizes := pick(r, []int{4, 100, 1000}, []int{4, 50})
	for _, n := range sizes {
		i, err := cutFor(ctx, r, n)
		if err != nil {
			return items, err
		}
		items = append(items, i)
	}
	return items, nil
}

// cutFor is a cluster of its own: three coordinators and n nodes.
func cutFor(ctx context.Context, r *run, n int) (Item, error) {
	g, err := startGroup(ctx, r, fmt.Sprintf("%s/%d", r.dir, n), 3, units.Power(n)*nodeRated)
	if err != nil {
		return Item{}, err
	}
	defer g.stop()
	inner, end := context.WithCancel(ctx)
	nodes := make([]*streamNode, n)
	for i := range nodes {
		nodes[i] = openNode(inner, fmt.Sprintf("n%05d", i), g.addrs(), nil)
	}
	defer func() {
		end()
		for _, node := range nodes {
			node.wait()
		}
	}()
	r.note("cut: %d nodes come up", n)
	if err := awaitCap(ctx, nodes, cutFrom, 75*time.Second); err != nil {
		return Item{}, err
	}
	var after []float64
	rounds, open := pick(r, 5, 2), 0
	for range rounds {
		more, missing, err := cutOnce(ctx, g, nodes)
		if err != nil {
			return Item{}, err
		}
		after, open = append(after, more...), open+missing
	}
	i := newItem(fmt.Sprintf("cut-%d", n), fmt.Sprintf("a cut for %d nodes: from its commit to each node's read-back", n), "s").spread(after)
	if n == 1000 {
		i = i.aim(atMost(2, "p99 <= 2 s"))
	}
	if len(after) == 0 {
		return i.say("no node confirmed in time"), nil
	}
	i = i.say("%d cuts, %d read-backs, the slowest %.2f s; nodes are streams of one process", rounds, len(after), slices.Max(after))
	if open > 0 {
		no := false
		i.Met, i.Note = &no, i.Note+fmt.Sprintf("; %d NOT confirmed within 15 s", open)
	}
	return i, nil
}

// cutOnce cuts at any moment of the leader's second, and raises again.
func cutOnce(ctx context.Context, g *group, nodes []*streamNode) (after []float64, open int, err error) {
	n := units.Power(len(nodes))
	if !pause(ctx, time.Duration(rand.Int64N(int64(time.Second)))) { //nolint:gosec // any moment
		return nil, 0, ctx.Err()
	}
	revision, err := g.setBudget(ctx, n*cutTo)
	if err != nil {
		return nil, 0, err
	}
	if after, open, err = g.awaitBudget(ctx, revision, 15*time.Second); err != nil {
		return nil, 0, err
	}
	if _, err := g.setBudget(ctx, n*nodeRated); err != nil {
		return nil, 0, err
	}
	return after, open, awaitCap(ctx, nodes, cutFrom, 30*time.Second)
}

// awaitCap waits until every node holds a lease of this cap.
func awaitCap(ctx context.Context, nodes []*streamNode, p units.Power, most time.Duration) error {
	return await(ctx, most, fmt.Sprintf("%d nodes at %v", len(nodes), p), func() bool {
		return !slices.ContainsFunc(nodes, func(n *streamNode) bool { return !n.held.Load() || n.cap.Load() != int64(p) })
	})
}
