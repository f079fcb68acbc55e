package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"connectrpc.com/connect"

	"headroom/internal/pause"
	"headroom/units"
)

// cutTo is what a cut leaves each node, of the 200 W that is its most.
const cutTo = 150 * units.Watt

// againMost bounds the cuts that are repeated because the leader changed in them,
// as it may on a machine that is too busy for the servers' heartbeats.
const againMost = 3

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
	defer r.end(g.stop)
	inner, end := context.WithCancel(ctx)
	nodes := make([]*streamNode, n)
	for i := range nodes {
		nodes[i] = openNode(inner, fmt.Sprintf("n%05d", i), g.addrs(), streamWatch{})
	}
	defer func() {
		end()
		for _, node := range nodes {
			node.wait()
		}
	}()
	r.note("cut: %d nodes starting", n)
	if err := awaitCap(ctx, nodes, 75*time.Second); err != nil {
		return Item{}, err
	}
	var after []float64
	rounds, open, again := pick(r, 5, 2), 0, 0
	for done := 0; done < rounds; {
		more, missing, err := cutOnce(ctx, g, nodes)
		switch {
		case connect.CodeOf(err) == connect.CodeNotFound && again < againMost:
			again++ // the leader changed meanwhile, and the new one did not follow the cut
			if err := raise(ctx, g, nodes); err != nil {
				return Item{}, err
			}
			continue
		case err != nil:
			return Item{}, err
		}
		after, open, done = append(after, more...), open+missing, done+1
	}
	i := newItem(fmt.Sprintf("cut-%d", n), fmt.Sprintf("a cut for %d nodes: from its commit to each node's read-back", n), "s").spread(after)
	if n == 1000 {
		i = i.aim(atMost(2, "p99 <= 2 s"))
	}
	if len(after) == 0 {
		return i.say("timed out: no node confirmed"), nil
	}
	i = i.say("%d cuts, %d read-backs, slowest %.2f s; all nodes are in one process", rounds, len(after), slices.Max(after))
	if again > 0 {
		i.Note += fmt.Sprintf("; %d cuts more left out: the leader changed in them", again)
	}
	if open > 0 {
		no := false
		i.Met, i.Note = &no, i.Note+fmt.Sprintf("; %d NOT confirmed within 15 s", open)
	}
	return i, nil
}

// cutOnce cuts at any moment of the leader's second, and raises again.
func cutOnce(ctx context.Context, g *group, nodes []*streamNode) (after []float64, open int, err error) {
	n := units.Power(len(nodes))
	if !pause.For(ctx, time.Duration(rand.Int64N(int64(time.Second)))) {
		return nil, 0, ctx.Err()
	}
	revision, err := g.setBudget(ctx, n*cutTo)
	if err != nil {
		return nil, 0, err
	}
	if after, open, err = g.awaitBudget(ctx, revision, 15*time.Second); err != nil {
		return nil, 0, err
	}
	return after, open, raise(ctx, g, nodes)
}

// raise gives every node its most again and waits until all have it.
func raise(ctx context.Context, g *group, nodes []*streamNode) error {
	if _, err := g.setBudget(ctx, units.Power(len(nodes))*nodeRated); err != nil {
		return err
	}
	return awaitCap(ctx, nodes, 30*time.Second)
}

// awaitCap waits until every node holds a lease of its most.
func awaitCap(ctx context.Context, nodes []*streamNode, most time.Duration) error {
	return await(ctx, most, fmt.Sprintf("%d nodes at %v", len(nodes), nodeMost), func() bool {
		return !slices.ContainsFunc(nodes, func(n *streamNode) bool { return !n.held.Load() || n.cap.Load() != int64(nodeMost) })
	})
}
