package demo

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/units"
)

const (
	// actor is the name in the cluster's audit log.
	actor = "demo"
	// lookWait bounds one look: a row of power.csv waits for it.
	lookWait = 180 * time.Millisecond
	// changeWait bounds a change, an election or two included.
	changeWait = 15 * time.Second
	// againAfter is the pause before a retry.
	againAfter = 200 * time.Millisecond
)

// client calls the coordinators and the scheduler.
type client struct {
	via       connect.HTTPClient
	scheduler headroomv1connect.SchedulerServiceClient

	mu    sync.Mutex
	addrs []string // the one that answered last comes first
}

func newClient(coordinators []string, scheduler string) *client {
	via := rpc.NewClient()
	return &client{
		via: via, addrs: slices.Clone(coordinators),
		scheduler: headroomv1connect.NewSchedulerServiceClient(via, rpc.BaseURL(scheduler), rpc.ClientOptions()...),
	}
}

// leading calls f with the base address of the leader, waiting up to patience for there to be one.
func (c *client) leading(ctx context.Context, patience time.Duration, f func(base string) error) error {
	c.mu.Lock()
	addrs := slices.Clone(c.addrs)
	c.mu.Unlock()
	addr, err := rpc.ToLeader(ctx, addrs, patience, func(addr string) error { return f(rpc.BaseURL(addr)) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.addrs, addr); i >= 0 {
		if err == nil {
			c.addrs[0], c.addrs[i] = c.addrs[i], c.addrs[0]
		} else { // try the others first
			c.addrs = append(slices.Delete(c.addrs, i, i+1), addr)
		}
	}
	return err
}

// ask sends a request to the leader, and returns its answer.
func ask[Q, A any](ctx context.Context, c *client, patience time.Duration, method func(headroomv1connect.ClusterServiceClient, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (answer *A, err error) {
	err = c.leading(ctx, patience, func(base string) error {
		res, err := method(headroomv1connect.NewClusterServiceClient(c.via, base, rpc.ClientOptions()...), ctx, connect.NewRequest(q))
		if err == nil {
			answer = res.Msg
		}
		return err
	})
	return answer, err
}

// site is the domain whose budget the demo changes, as the leader has it now.
func (c *client) site(ctx context.Context) (*headroomv1.Domain, *headroomv1.Meta, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	res, err := ask(ctx, c, 0, headroomv1connect.ClusterServiceClient.ListDomains, &headroomv1.ListDomainsRequest{Domain: site})
	if err != nil {
		return nil, nil, err
	}
	return res.GetDomains()[0], res.GetMeta(), nil // an unknown domain is an error of the server
}

// nodes is the leader's table of nodes.
func (c *client) nodes(ctx context.Context) ([]*headroomv1.Node, *headroomv1.Meta, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	res, err := ask(ctx, c, 0, headroomv1connect.ClusterServiceClient.ListNodes, &headroomv1.ListNodesRequest{})
	return res.GetNodes(), res.GetMeta(), err
}

// setBudget changes the site's budget and returns once that is committed.
func (c *client) setBudget(ctx context.Context, to units.Power, reason string) (res *headroomv1.SetBudgetResponse, err error) {
	req := &headroomv1.SetBudgetRequest{Domain: site, BudgetUw: int64(to), ConfirmUw: int64(to), Change: change(reason)}
	err = persist(ctx, func(ctx context.Context) (err error) {
		res, err = ask(ctx, c, changeWait, headroomv1connect.ClusterServiceClient.SetBudget, req)
		return err
	})
	if err != nil {
		return nil, rpc.AsCLI(err, "budget set", site)
	}
	return res, nil
}

// awaitBudget returns when each node that the revision lowered has read back its new cap.
func (c *client) awaitBudget(ctx context.Context, revision uint64, wait time.Duration) ([]*headroomv1.Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+time.Second)
	defer cancel()
	res, err := ask(ctx, c, 0, headroomv1connect.ClusterServiceClient.AwaitBudget, &headroomv1.AwaitBudgetRequest{Revision: revision, WaitMs: wait.Milliseconds()})
	if err != nil {
		return nil, rpc.AsCLI(err, "await the cut", site)
	}
	return res.GetConfirmations(), nil
}

// submit gives a job file to the scheduler and returns once the job is in the
// coordinators' log.
func (c *client) submit(ctx context.Context, file string, spec []byte) error {
	req := &headroomv1.SubmitRequest{File: file, Spec: spec, Change: change("demo load")}
	err := persist(ctx, func(ctx context.Context) error {
		_, err := c.scheduler.Submit(ctx, connect.NewRequest(req))
		return err
	})
	if err != nil {
		return rpc.AsCLI(err, "submit", "the scheduler")
	}
	return nil
}

// persist repeats a change while no server is available, or its outcome is unknown: its request id
// makes sure that it is applied once.
func persist(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	for {
		err := f(ctx)
		if code := connect.CodeOf(err); err == nil || code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded {
			return err
		}
		if !pause.For(ctx, againAfter) {
			return err
		}
	}
}

// jobs is the scheduler's list.
func (c *client) jobs(ctx context.Context) ([]*headroomv1.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	res, err := c.scheduler.List(ctx, connect.NewRequest(&headroomv1.ListRequest{}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetJobs(), nil
}

func (c *client) cancelJob(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	_, err := c.scheduler.Cancel(ctx, connect.NewRequest(&headroomv1.CancelRequest{Id: id, Change: change("the demo's time is over")}))
	return err
}

// change carries a fresh request id so that a repetition is applied once.
func change(reason string) *headroomv1.Change {
	return &headroomv1.Change{Actor: actor, Reason: reason, RequestId: rand.Text()}
}
