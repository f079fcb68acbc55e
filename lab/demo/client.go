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

// actor is who the cluster's audit log says did it.
const actor = "demo"

// How long calls may take.
const (
	// lookWait bounds one look: a row of power.csv waits for it.
	lookWait = 180 * time.Millisecond
	// changeWait bounds a change, an election or two included.
	changeWait = 15 * time.Second
)

// client talks to the coordinators and to the scheduler.
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

// leader calls f with the server that leads, waiting up to patience for there to be one.
func (c *client) leader(ctx context.Context, patience time.Duration, f func(headroomv1connect.ClusterServiceClient) error) error {
	return c.leading(ctx, patience, func(base string) error {
		return f(headroomv1connect.NewClusterServiceClient(c.via, base, rpc.ClientOptions()...))
	})
}

// leading calls f with the base address of the server that leads.
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
		} else { // perhaps the others know better
			c.addrs = append(slices.Delete(c.addrs, i, i+1), addr)
		}
	}
	return err
}

// ask sends a request to the server that leads, and returns its answer.
func ask[Q, A any](ctx context.Context, c *client, patience time.Duration, method func(headroomv1connect.ClusterServiceClient, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (answer *A, err error) {
	err = c.leader(ctx, patience, func(s headroomv1connect.ClusterServiceClient) error {
		res, err := method(s, ctx, connect.NewRequest(q))
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
func (c *client) setBudget(ctx context.Context, to units.Power, reason string) (*headroomv1.SetBudgetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	req := &headroomv1.SetBudgetRequest{Domain: site, BudgetUw: int64(to), ConfirmUw: int64(to), Change: change(reason)}
	var res *headroomv1.SetBudgetResponse
	err := persist(ctx, func() (err error) {
		res, err = ask(ctx, c, changeWait, headroomv1connect.ClusterServiceClient.SetBudget, req)
		return err
	})
	if err != nil {
		return nil, rpc.AsCLI(err, "budget set", site)
	}
	return res, nil
}

// awaitBudget is when each node that the revision lowered has read back its new cap.
func (c *client) awaitBudget(ctx context.Context, revision uint64, wait time.Duration) ([]*headroomv1.Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+time.Second)
	defer cancel()
	res, err := ask(ctx, c, 0, headroomv1connect.ClusterServiceClient.AwaitBudget, &headroomv1.AwaitBudgetRequest{Revision: revision, WaitMs: wait.Milliseconds()})
	if err != nil {
		return nil, rpc.AsCLI(err, "await the cut", site)
	}
	return res.GetConfirmations(), nil
}

// submit hands a job file to the scheduler and returns once the job is in the
// coordinators' log.
func (c *client) submit(ctx context.Context, file string, spec []byte) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	req := &headroomv1.SubmitRequest{File: file, Spec: spec, Change: change("demo load")}
	err := persist(ctx, func() error {
		_, err := c.scheduler.Submit(ctx, connect.NewRequest(req))
		return err
	})
	if err != nil {
		return rpc.AsCLI(err, "submit", "the scheduler")
	}
	return nil
}

// persist repeats a change while there is nobody to take it, or nobody says what
// became of it: its request id makes sure that it is carried out once.
func persist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if code := connect.CodeOf(err); err == nil || code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded {
			return err
		}
		if !pause.For(ctx, againAfter) {
			return err
		}
	}
}

// againAfter is the pause before something that is not there yet is asked for again.
const againAfter = 200 * time.Millisecond

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

// committed is the coordinators' list of jobs, with what is decided about each.
func (c *client) committed(ctx context.Context) (jobs []*headroomv1.Job, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = c.leading(ctx, 0, func(base string) error {
		service := headroomv1connect.NewJobServiceClient(c.via, base, rpc.ClientOptions()...)
		res, err := service.ListJobs(ctx, connect.NewRequest(&headroomv1.ListJobsRequest{WithoutSpecs: true}))
		if err == nil {
			jobs = res.Msg.GetJobs()
		}
		return err
	})
	return jobs, err
}

// moves are the decisions about a job, oldest first.
func (c *client) moves(ctx context.Context, id string) (moves []*headroomv1.JobMove, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = c.leading(ctx, 0, func(base string) error {
		service := headroomv1connect.NewJobServiceClient(c.via, base, rpc.ClientOptions()...)
		res, err := service.ExplainJob(ctx, connect.NewRequest(&headroomv1.ExplainJobRequest{Id: id}))
		if err == nil {
			moves = res.Msg.GetMoves()
		}
		return err
	})
	return moves, err
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
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	err := persist(ctx, func() error {
		_, err := ask(ctx, c, changeWait, headroomv1connect.ClusterServiceClient.Change, req)
		return err
	})
	if err != nil {
		return rpc.AsCLI(err, what, of)
	}
	return nil
}

func (c *client) cancelJob(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	_, err := c.scheduler.Cancel(ctx, connect.NewRequest(&headroomv1.CancelRequest{Id: id, Change: change("the demo's time is over")}))
	return err
}

// change is who asks for what, with a fresh key so that a repetition is carried out once.
func change(reason string) *headroomv1.Change {
	return &headroomv1.Change{Actor: actor, Reason: reason, RequestId: rand.Text()}
}
