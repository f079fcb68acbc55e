package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/lease"
)

// failoverNodes act as nodes while leaders are killed.
const failoverNodes = 4

// firsts is when each node took the first lease of each epoch.
type firsts struct {
	mu   sync.Mutex
	seen map[lease.Epoch]map[int]time.Time
}

func (f *firsts) taken(node int) func(lease.Grant, time.Time) {
	return func(g lease.Grant, at time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		of := f.seen[g.Stamp.Epoch]
		if of == nil {
			of = map[int]time.Time{}
			f.seen[g.Stamp.Epoch] = of
		}
		if _, before := of[node]; !before {
			of[node] = at
		}
	}
}

// since is when leases of an epoch above old first came after a moment: to the
// first node, and to the last; complete reports whether every node has one.
func (f *firsts) since(old lease.Epoch, from time.Time) (first, last time.Duration, complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := map[int]time.Duration{}
	for e, of := range f.seen {
		if e.Compare(old) <= 0 {
			continue
		}
		for node, t := range of {
			if d, ok := at[node]; !ok || t.Sub(from) < d {
				at[node] = t.Sub(from)
			}
		}
	}
	if len(at) < failoverNodes {
		return 0, 0, false
	}
	all := make([]time.Duration, 0, len(at))
	for _, d := range at {
		all = append(all, d)
	}
	return slices.Min(all), slices.Max(all), true
}

// newest is the highest epoch that any node has a lease of.
func (f *firsts) newest() lease.Epoch {
	f.mu.Lock()
	defer f.mu.Unlock()
	var best lease.Epoch
	for e := range f.seen {
		if e.Compare(best) > 0 {
			best = e
		}
	}
	return best
}

// failover kills the leader of three coordinators again and again.
func failover(ctx context.Context, r *run) ([]Item, error) {
	g, err := startGroup(ctx, r, r.dir, 3, failoverNodes*nodeRated)
	if err != nil {
		return nil, err
	}
	defer r.end(g.stop)
	seen := &firsts{seen: map[lease.Epoch]map[int]time.Time{}}
	inner, end := context.WithCancel(ctx)
	var nodes []*streamNode
	for i := range failoverNodes {
		nodes = append(nodes, openNode(inner, fmt.Sprintf("n%02d", i), g.addrs(), streamWatch{taken: seen.taken(i)}))
	}
	defer func() {
		end()
		for _, n := range nodes {
			n.wait()
		}
	}()
	if err := awaitCap(ctx, nodes, 30*time.Second); err != nil {
		return nil, err
	}
	return killLeaders(ctx, r, g, nodes, seen)
}

func killLeaders(ctx context.Context, r *run, g *group, nodes []*streamNode, seen *firsts) ([]Item, error) {
	kills := pick(r, 12, 3)
	enough := time.Now().Add(pick(r, 100*time.Second, 14*time.Second)) // leaves time for what comes after
	var first, last []time.Duration
	var worst error
	fellBack := 0
	for len(first) < kills && (len(first) == 0 || time.Now().Before(enough)) {
		a, b, dropped, err := killLeader(ctx, g, nodes, seen)
		if err != nil {
			worst = err
			break
		}
		first, last, fellBack = append(first, a), append(last, b), fellBack+dropped
		r.note("failover: kill %d of %d: %.2f s", len(first), kills, a.Seconds())
	}
	if len(first) == 0 {
		return nil, worst
	}
	i := newItem("failover", "leader killed with SIGKILL: until a node has a lease of the next leader", "s").spread(seconds(first)).
		aim(atMost(3, "<= 3 s")).
		say("%d of %d kills; max %.2f s; all %d nodes within %.2f s; %d nodes fell to their fail-safe cap",
			len(first), kills, slices.Max(first).Seconds(), len(nodes), slices.Max(last).Seconds(), fellBack)
	if worst != nil {
		i.Note += "; ended early: " + worst.Error()
	}
	return []Item{i}, nil
}

// killLeader kills the leader and starts it again once the next one grants. It
// answers when the first node and the last had a lease again, and how many held
// none meanwhile.
func killLeader(ctx context.Context, g *group, nodes []*streamNode, seen *firsts) (first, last time.Duration, dropped int, err error) {
	if err := g.awaitHealthy(ctx); err != nil {
		return 0, 0, 0, err
	}
	if err := awaitCap(ctx, nodes, 30*time.Second); err != nil {
		return 0, 0, 0, err
	}
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m, err := g.leader(asking, func(c headroomv1connect.ClusterServiceClient) error {
		_, err := c.ListDomains(asking, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
		return err
	})
	if err != nil {
		return 0, 0, 0, err
	}
	old, at := seen.newest(), time.Now()
	m.program.Kill()
	lost := map[int]bool{}
	err = await(ctx, 20*time.Second, "a lease of the next leader", func() bool {
		for i, n := range nodes {
			lost[i] = lost[i] || n.cap.Load() < int64(nodeMost) || !n.held.Load()
		}
		var ok bool
		first, last, ok = seen.since(old, at)
		return ok
	})
	for _, was := range lost {
		if was {
			dropped++
		}
	}
	if again := g.start(m); err == nil {
		err = again
	}
	return first, last, dropped, err
}
