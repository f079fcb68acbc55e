package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
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

	program *cluster.Program
}

// group is a cluster of coordinators as real processes.
type group struct {
	servers  *cluster.Servers
	dir, bin string
	programs *cluster.Group
	members  []*member
	via      connect.HTTPClient
}

// startGroup starts coordinators without nodes and with this budget.
func startGroup(ctx context.Context, r *run, dir string, servers int, budget units.Power) (g *group, err error) {
	g = &group{dir: dir, bin: r.bin, via: rpc.NewClient()}
	if err = os.MkdirAll(dir, 0o700); err == nil {
		g.servers, err = cluster.NewServers(dir, servers, 0)
	}
	if err == nil {
		err = g.servers.Configure(siteName, budget, rackName)
	}
	if err == nil {
		g.programs, err = cluster.NewGroup(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	for _, m := range g.servers.Members {
		x := &member{Member: m}
		g.members = append(g.members, x)
		err = errors.Join(err, g.start(x))
	}
	if err == nil {
		err = g.awaitHealthy(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, g.stop())
	}
	return g, nil
}

// start starts a coordinator, again where it was killed.
func (g *group) start(m *member) error {
	p, err := g.programs.Start(m.ID, nil, filepath.Join(g.bin, "coordinator"), "run", "--config", g.servers.Config(m.Member))
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	m.program = p
	return nil
}

func (g *group) addrs() []string { return g.servers.Addresses() }

// stopGrace is how long a program may take to end before it is killed.
const stopGrace = 8 * time.Second

// stop ends every coordinator, all at the same time.
func (g *group) stop() error {
	var all sync.WaitGroup
	for _, m := range g.members {
		if m.program != nil {
			all.Go(func() { m.program.Stop(stopGrace) })
		}
	}
	all.Wait()
	return g.programs.Close()
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

// awaitHealthy waits for a leader and for every server to be within three entries of the end of the log.
func (g *group) awaitHealthy(ctx context.Context) error {
	return await(ctx, 25*time.Second, "every coordinator caught up", func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		for _, addr := range g.addrs() {
			c := headroomv1connect.NewClusterServiceClient(g.via, rpc.BaseURL(addr), rpc.ClientOptions()...)
			res, err := c.ListMembers(ctx, connect.NewRequest(&headroomv1.ListMembersRequest{}))
			if err != nil {
				continue
			}
			leads, newest := false, uint64(0)
			for _, m := range res.Msg.GetMembers() {
				leads, newest = leads || m.GetRole() == "leader", max(newest, m.GetCommit())
			}
			return leads && !slices.ContainsFunc(res.Msg.GetMembers(), func(m *headroomv1.Member) bool { return m.Commit == nil || m.GetCommit()+3 < newest })
		}
		return false
	})
}

// setBudget changes the site's budget and returns the revision that it made.
func (g *group) setBudget(ctx context.Context, to units.Power) (uint64, error) {
	req := &headroomv1.SetBudgetRequest{
		Domain: siteName, BudgetUw: int64(to), ConfirmUw: int64(to), Change: &headroomv1.Change{Actor: "bench", Reason: "bench", RequestId: rand.Text()},
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

// awaitBudget waits until each node that the revision lowered has read back its cap; open counts
// those that had not within wait.
func (g *group) awaitBudget(ctx context.Context, revision uint64, wait time.Duration) (open int, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait+5*time.Second)
	defer cancel()
	var all []*headroomv1.Confirmation
	_, err = g.leader(ctx, func(c headroomv1connect.ClusterServiceClient) error {
		res, err := c.AwaitBudget(ctx, connect.NewRequest(&headroomv1.AwaitBudgetRequest{Revision: revision, WaitMs: wait.Milliseconds()}))
		if err == nil {
			all = res.Msg.GetConfirmations()
		}
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("bench: a cut that lowered no node: %w", errNotSo)
	}
	for _, c := range all {
		if c.AfterMs == nil {
			open++
		}
	}
	return open, err
}
