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
	// listWait bounds a look at the jobs.
	listWait = 2 * time.Second
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

// ask sends a request to the leader, and returns its answer. service makes the client of the
// service whose method it is.
func ask[S, Q, A any](ctx context.Context, c *client, patience time.Duration, service func(connect.HTTPClient, string, ...connect.ClientOption) S,
	method func(S, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q,
) (answer *A, err error) {
	err = c.leading(ctx, patience, func(base string) error {
		res, err := method(service(c.via, base, rpc.ClientOptions()...), ctx, connect.NewRequest(q))
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
	res, err := ask(ctx, c, 0, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.ListDomains, &headroomv1.ListDomainsRequest{Domain: site})
	if err != nil {
		return nil, nil, err
	}
	return res.GetDomains()[0], res.GetMeta(), nil // an unknown domain is an error of the server
}

// nodes is the leader's table of nodes.
func (c *client) nodes(ctx context.Context) ([]*headroomv1.Node, *headroomv1.Meta, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	res, err := ask(ctx, c, 0, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.ListNodes, &headroomv1.ListNodesRequest{})
	return res.GetNodes(), res.GetMeta(), err
}

// setBudget changes the site's budget and returns its revision once that is committed.
func (c *client) setBudget(ctx context.Context, to units.Power, reason string) (revision uint64, err error) {
	req := &headroomv1.SetBudgetRequest{Domain: site, BudgetUw: int64(to), ConfirmUw: int64(to), Change: change(reason)}
	err = persist(ctx, "budget set", site, func(ctx context.Context) error {
		res, err := ask(ctx, c, changeWait, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.SetBudget, req)
		revision = res.GetMeta().GetRevision()
		return err
	})
	return revision, err
}

// awaitBudget returns when each node that the revision lowered has read back its new cap.
func (c *client) awaitBudget(ctx context.Context, revision uint64, wait time.Duration) ([]*headroomv1.Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+time.Second)
	defer cancel()
	req := &headroomv1.AwaitBudgetRequest{Revision: revision, WaitMs: wait.Milliseconds()}
	res, err := ask(ctx, c, 0, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.AwaitBudget, req)
	if err != nil {
		return nil, rpc.AsCLI(err, "await the cut", site)
	}
	return res.GetConfirmations(), nil
}

// setSprintBudget lets the site's nodes draw so many joules above their caps.
func (c *client) setSprintBudget(ctx context.Context, capacity units.Energy, refill units.Power) error {
	return c.apply(ctx, "sprint budget", site, &headroomv1.ChangeRequest{Change: change("the demo's sprints"), What: &headroomv1.ChangeRequest_SetSprintBudget{
		SetSprintBudget: &headroomv1.SetSprintBudget{Domain: site, CapacityUj: int64(capacity), RefillUw: int64(refill)},
	}})
}

// setMost bounds what a node is given: only a sprint takes it higher.
func (c *client) setMost(ctx context.Context, node string, most units.Power) error {
	return c.apply(ctx, "bound of a node", node, &headroomv1.ChangeRequest{Change: change("room for sprints"), What: &headroomv1.ChangeRequest_SetNode{
		SetNode: &headroomv1.SetNode{Node: node, Settings: &headroomv1.NodeSettings{MaxUw: new(int64(most))}},
	}})
}

// apply has a change committed; what and of name it where that fails.
func (c *client) apply(ctx context.Context, what, of string, req *headroomv1.ChangeRequest) error {
	return persist(ctx, what, of, func(ctx context.Context) error {
		_, err := ask(ctx, c, changeWait, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.Change, req)
		return err
	})
}

// submit gives a job file to the scheduler and returns once the job is in the
// coordinators' log.
func (c *client) submit(ctx context.Context, file string, spec []byte) error {
	req := &headroomv1.SubmitRequest{File: file, Spec: spec, Change: change("demo load")}
	return persist(ctx, "submit", "the scheduler", func(ctx context.Context) error {
		_, err := c.scheduler.Submit(ctx, connect.NewRequest(req))
		return err
	})
}

// persist repeats a change while no server is available, or its outcome is unknown: its request id
// makes sure that it is applied once. what and of name the change where it fails.
func persist(ctx context.Context, what, of string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		again := slices.Contains([]connect.Code{connect.CodeUnavailable, connect.CodeDeadlineExceeded}, connect.CodeOf(err))
		if !again || !pause.For(ctx, againAfter) {
			return rpc.AsCLI(err, what, of)
		}
	}
}

// jobs is the scheduler's list.
func (c *client) jobs(ctx context.Context) ([]*headroomv1.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	res, err := c.scheduler.List(ctx, connect.NewRequest(&headroomv1.ListRequest{}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetJobs(), nil
}

// committed is the coordinators' list of jobs, with what is decided about each.
func (c *client) committed(ctx context.Context) ([]*headroomv1.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	res, err := ask(ctx, c, 0, headroomv1connect.NewJobServiceClient, headroomv1connect.JobServiceClient.ListJobs, &headroomv1.ListJobsRequest{WithoutSpecs: true})
	return res.GetJobs(), err
}

// moves are the decisions about a job, oldest first.
func (c *client) moves(ctx context.Context, id string) ([]*headroomv1.JobMove, error) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	res, err := ask(ctx, c, 0, headroomv1connect.NewJobServiceClient, headroomv1connect.JobServiceClient.ExplainJob, &headroomv1.ExplainJobRequest{Id: id})
	return res.GetMoves(), err
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
