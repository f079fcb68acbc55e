package coordinator

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// inputs converts a job's map tasks, nil without.
func inputs(x *headroomv1.JobInputs) *ledger.JobInputs {
	if x == nil {
		return nil
	}
	return &ledger.JobInputs{Tasks: x.GetTasks(), Digest: x.GetDigest()}
}

// RecordRun implements headroomv1connect.JobServiceHandler.
func (j jobService) RecordRun(ctx context.Context, r *connect.Request[headroomv1.RecordRunRequest]) (*connect.Response[headroomv1.RecordRunResponse], error) {
	c, run := command(ctx, r.Msg, "scheduler"), r.Msg.GetRun()
	c.RunJob = &ledger.RunJob{ID: r.Msg.GetId(), Run: ledger.JobRun{
		Number: run.GetNumber(), Began: run.GetBeganUs(), Started: run.GetStartedUs(), Theta: run.GetTheta(), Seed: run.GetSeed(), Decided: run.GetDecided(),
		Why: run.GetWhy(), Sprint: run.GetSprint(), SprintAfter: time.Duration(run.GetSprintAfterUs()) * time.Microsecond, Stopping: run.GetStopping(), Over: run.GetOver(),
	}}
	for _, x := range r.Msg.GetDrop()[:min(len(r.Msg.GetDrop()), ledger.MaxDrops+1)] { // one too many is refused
		c.RunJob.Drop = append(c.RunJob.Drop, ledger.TaskRange{First: x.GetFirst(), Last: x.GetLast()})
	}
	res, err := j.ofScheduler(ctx, r.Header(), c, func(v leader.View, _ *ledger.Command) error {
		if v.State.Rules < ledger.RulesOfRuns { // older servers could not read it
			return fmt.Errorf("rules %d are in force: %w", v.State.Rules, ledger.ErrRules)
		}
		return nil
	})
	return rpc.Respond(&headroomv1.RecordRunResponse{Revision: res.Revision}, err)
}
