package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
	"headroom/units"
)

// Domains of the benched clusters: the budget of site is what changes.
const (
	siteName = "site/bench"
	rackName = "rack/r1"
)

// member is one coordinator and its process.
type member struct {
	cluster.Member

	program *program
}

// group is a group of coordinators as real processes.
type group struct {
	servers *cluster.Servers
	dir     string
	members []*member
	via     connect.HTTPClient
}

// startGroup starts servers coordinators over an empty cluster with this budget.
func startGroup(ctx context.Context, r *run, dir string, servers int, budget units.Power) (*group, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("bench: folder of the group: %w", err)
	}
	all, err := cluster.NewServers(dir, servers, 0)
	if err == nil {
		err = all.Configure(siteName, rackName, budget)
	}
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	g := &group{servers: all, dir: dir, via: rpc.NewClient()}
	for _, m := range all.Members {
		p, err := launch(dir, m.ID, filepath.Join(r.Bin, "coordinator"), "run", "--config", all.Config(m))
		if err != nil {
			g.stop()
			return nil, err
		}
		g.members = append(g.members, &member{m, p})
	}
	if err := g.awaitHealthy(ctx); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

func (g *group) addrs() []string { return g.servers.Addresses() }

// stop ends every coordinator that was started.
func (g *group) stop() {
	var all []*program
	for _, m := range g.members {
		all = append(all, m.program)
	}
	stopAll(all)
}

// leader calls f with a client of the server that leads, and returns that server.
func (g *group) leader(ctx context.Context, f func(headroomv1connect.ClusterServiceClient) error) (*member, error) {
	addr, err := rpc.ToLeader(ctx, g.addrs(), 10*time.Second, func(addr string) error {
		base := rpc.BaseURL(addr)
		return f(headroomv1connect.NewClusterServiceClient(g.via, base, rpc.ClientOptions()...))
	})
	if err != nil {
		return nil, fmt.Errorf("bench: ask the leader: %w", err)
	}
	for _, m := range g.members {
		if m.RPC == addr {
			return m, nil
		}
	}
	return nil, fmt.Errorf("bench: ask the leader: %s: %w", addr, rpc.ErrNoAddress)
}

// caughtUpWithin is how many entries a follower may be behind and still count as caught up.
const caughtUpWithin = 3

// awaitHealthy waits for a leader and for every server to be at the end of the log.
func (g *group) awaitHealthy(ctx context.Context) error {
	return await(ctx, 25*time.Second, "every coordinator caught up", func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		for _, addr := range g.addrs() {
			c := headroomv1connect.NewClusterServiceClient(g.via, rpc.BaseURL(addr), rpc.ClientOptions()...)
			res, err := c.ListMembers(ctx, connect.NewRequest(&headroomv1.ListMembersRequest{}))
			if err == nil {
				return caughtUp(res.Msg.GetMembers())
			}
		}
		return false
	})
}

func caughtUp(members []*headroomv1.Member) bool {
	leads, newest := false, uint64(0)
	for _, m := range members {
		leads = leads || m.GetRole() == "leader"
		newest = max(newest, m.GetCommit())
	}
	for _, m := range members {
		if m.Commit == nil || m.GetCommit()+caughtUpWithin < newest {
			return false
		}
	}
	return leads
}

// setBudget changes the site's budget and returns the revision that it made.
func (g *group) setBudget(ctx context.Context, to units.Power) (uint64, error) {
	req := &headroomv1.SetBudgetRequest{
		Domain: siteName, BudgetUw: int64(to), Change: &headroomv1.Change{Actor: "bench", Reason: "bench", RequestId: rand.Text()},
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var revision uint64
	_, err := g.leader(ctx, func(c headroomv1connect.ClusterServiceClient) error {
		res, err := c.SetBudget(ctx, connect.NewRequest(req))
		if err == nil {
			revision = res.Msg.GetMeta().GetRevision()
		}
		return err
	})
	return revision, err
}

// awaitBudget is when each node that the revision lowered had read back its cap,
// after the commit, in s; open counts those that had not within wait.
func (g *group) awaitBudget(ctx context.Context, revision uint64, wait time.Duration) (after []float64, open int, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait+5*time.Second)
	defer cancel()
	var res *connect.Response[headroomv1.AwaitBudgetResponse]
	_, err = g.leader(ctx, func(c headroomv1connect.ClusterServiceClient) (err error) {
		res, err = c.AwaitBudget(ctx, connect.NewRequest(&headroomv1.AwaitBudgetRequest{Revision: revision, WaitMs: wait.Milliseconds()}))
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for _, c := range res.Msg.GetConfirmations() {
		if c.AfterMs == nil {
			open++
			continue
		}
		after = append(after, c.GetAfterMs()/1000)
	}
	return after, open, nil
}
