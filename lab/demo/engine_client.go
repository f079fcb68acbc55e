package demo

import (
	"context"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/units"
)

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
	err := persist(ctx, func(ctx context.Context) error {
		_, err := ask(ctx, c, changeWait, headroomv1connect.ClusterServiceClient.Change, req)
		return err
	})
	if err != nil {
		return rpc.AsCLI(err, what, of)
	}
	return nil
}
