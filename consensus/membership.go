package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Every change of the group's servers is one entry of raft's own, and only one
// is under way at a time: raft takes the next when the last has committed, and
// here each is decided while no other is. Each may be asked again: what is
// already so is no error.

// AddServer takes a server into the group. It gets the log and does not vote;
// see Promote. A server that is in the group gets the new address.
func (g *Group) AddServer(ctx context.Context, s Server) error {
	return g.reconfigure(ctx, "add "+s.ID, func(all []Health) (change, error) {
		for _, h := range all {
			switch {
			case h.ID == s.ID && h.Address == s.Address:
				return nil, nil
			case h.ID == s.ID && h.Self:
				return nil, fmt.Errorf("the address of the leader cannot change: %w", ErrLeads)
			case h.ID != s.ID && h.Address == s.Address:
				return nil, fmt.Errorf("%s is the address of %s: %w", s.Address, h.ID, ErrAddressTaken)
			}
		}
		if _, known := find(all, s.ID); !known && len(all) >= maxServers {
			return nil, fmt.Errorf("the cluster has %d servers: %w", len(all), ErrTooManyServers)
		}
		return func() raft.IndexFuture {
			return g.raft.AddNonvoter(raft.ServerID(s.ID), raft.ServerAddress(s.Address), 0, enqueueTimeout)
		}, nil
	})
}

// Promote gives a server a vote. It must have been healthy for StableFor, or the
// group would wait for it at each commit.
func (g *Group) Promote(ctx context.Context, id string) error {
	return g.reconfigure(ctx, "promote "+id, func(all []Health) (change, error) {
		h, known := find(all, id)
		if known && h.Voter {
			return nil, nil
		}
		if err := mayPromote(all, id, time.Now()); err != nil {
			return nil, err
		}
		return func() raft.IndexFuture {
			return g.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(h.Address), 0, enqueueTimeout)
		}, nil
	})
}

// RemoveServer takes a server out of the group, for good: it has to come back
// empty. ErrLeads for the leader, which transfers its lead first.
func (g *Group) RemoveServer(ctx context.Context, id string) error {
	err := g.reconfigure(ctx, "remove "+id, func(all []Health) (change, error) {
		if _, known := find(all, id); !known {
			return nil, nil
		}
		if err := mayRemove(all, id); err != nil {
			return nil, err
		}
		return func() raft.IndexFuture { return g.raft.RemoveServer(raft.ServerID(id), 0, enqueueTimeout) }, nil
	})
	if err == nil {
		g.trans.forget(id)
	}
	return err
}

// MayPromote says why a server may not be given a vote now; nil when it may, or
// has one.
func (g *Group) MayPromote(id string) error {
	all, err := g.Health()
	if err != nil {
		return err
	}
	if h, known := find(all, id); known && h.Voter {
		return nil
	}
	return g.changing("promote "+id, mayPromote(all, id, time.Now()))
}

// MayRemove says why a server may not be removed now; nil when it may. That it
// leads is no reason here.
func (g *Group) MayRemove(id string) error {
	all, err := g.Health()
	if err != nil {
		return err
	}
	if err := mayRemove(all, id); !errors.Is(err, ErrLeads) {
		return g.changing("remove "+id, err)
	}
	return nil
}

// change asks raft for one change.
type change func() raft.IndexFuture

// reconfigure decides a change on the servers of now and carries it out. decide
// returns nil where nothing is to be done.
func (g *Group) reconfigure(ctx context.Context, what string, decide func([]Health) (change, error)) error {
	g.changes.Lock()
	defer g.changes.Unlock()
	r := g.leading.Load()
	if r == nil {
		return g.changing(what, ErrNotLeader)
	}
	select {
	case <-r.caughtUp: // the servers of now are known
	case <-r.over:
		return g.changing(what, ErrNotLeader)
	case <-ctx.Done():
		return g.changing(what, ctx.Err())
	}
	do, err := decide(r.health.of(g.look(r)))
	if err != nil || do == nil {
		return g.changing(what, err)
	}
	if err := g.await(ctx, func() error {
		if err := do().Error(); err != nil {
			return err
		}
		return g.mark.keep()
	}); err != nil {
		return g.changing(what, outcome(err))
	}
	return nil
}

func (g *Group) changing(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("consensus: %s: %w", what, err)
}

// mayPromote is raft-autopilot's rule, and that the group with the new voter has
// a healthy majority.
func mayPromote(all []Health, id string, now time.Time) error {
	h, known := find(all, id)
	voters, healthy := count(all, id)
	switch {
	case !known:
		return fmt.Errorf("server %s: %w", id, ErrUnknownServer)
	case !h.Healthy():
		return fmt.Errorf("server %s: %w: %w", id, ErrNotStable, h.Fault)
	case !h.stable(now):
		return fmt.Errorf("server %s has been healthy for %v of the required %v: %w", id, now.Sub(h.Since).Round(100*time.Millisecond), StableFor, ErrNotStable)
	case voters >= maxVoters:
		return fmt.Errorf("%d servers vote: %w", voters, ErrTooManyServers)
	case healthy+1 <= (voters+1)/2:
		return fmt.Errorf("%d of %d voters would be healthy: %w", healthy+1, voters+1, ErrLosesQuorum)
	}
	return nil
}

// mayRemove keeps a healthy majority among those that are left to vote.
func mayRemove(all []Health, id string) error {
	h, known := find(all, id)
	voters, healthy := count(all, id)
	switch {
	case !known:
		return fmt.Errorf("server %s: %w", id, ErrUnknownServer)
	case !h.Voter:
		return nil
	case voters == 0:
		return fmt.Errorf("server %s: %w", id, ErrLastVoter)
	case healthy <= voters/2:
		return fmt.Errorf("without %s, %d of %d voters would be healthy: %w", id, healthy, voters, ErrLosesQuorum)
	case h.Self:
		return fmt.Errorf("server %s: %w", id, ErrLeads)
	}
	return nil
}

// count are the voters and the healthy ones among them, without the one named.
func count(all []Health, without string) (voters, healthy int) {
	for _, h := range all {
		if !h.Voter || h.ID == without {
			continue
		}
		voters++
		if h.Healthy() {
			healthy++
		}
	}
	return voters, healthy
}

func find(all []Health, id string) (Health, bool) {
	for _, h := range all {
		if h.ID == id {
			return h, true
		}
	}
	return Health{}, false
}

// TransferTo hands the lead to the named follower. nil means that this server no
// longer leads; who does shows in Leader.
func (g *Group) TransferTo(ctx context.Context, id string) error {
	what := "transfer the lead to " + id
	all, err := g.Health()
	if err != nil {
		return err
	}
	h, known := find(all, id)
	switch {
	case !known:
		return g.changing(what, fmt.Errorf("server %s: %w", id, ErrUnknownServer))
	case h.Self:
		return nil
	case !h.Voter:
		return g.changing(what, fmt.Errorf("server %s: %w", id, ErrNotVoter))
	case !h.Healthy():
		return g.changing(what, fmt.Errorf("server %s: %w: %w", id, ErrNotStable, h.Fault))
	}
	if err := g.await(ctx, func() error {
		return g.raft.LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(h.Address)).Error()
	}); err != nil {
		return g.changing(what, err)
	}
	return nil
}
