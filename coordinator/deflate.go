package coordinator

import (
	"context"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/view"
	"headroom/ledger"
)

// DeflateJob implements headroomv1connect.JobServiceHandler. Nothing is answered as in force that has not committed.
func (j jobService) DeflateJob(ctx context.Context, r *connect.Request[headroomv1.DeflateJobRequest]) (*connect.Response[headroomv1.DeflateJobResponse], error) {
	c := command(ctx, r.Msg, "scheduler")
	if why := r.Msg.GetReason(); why != "" {
		c.Reason = why
	}
	c.DeflateJob = &ledger.DeflateJob{ID: r.Msg.GetId(), Theta: r.Msg.GetTheta(), Seed: r.Msg.GetSeed()}
	res, err := j.ofScheduler(ctx, r.Header(), c, nil)
	if err != nil {
		return nil, err
	}
	out := &headroomv1.DeflateJobResponse{Revision: res.Revision}
	j.machine.View(func(s *ledger.State) { out.Deflation = view.Deflation(s.Jobs[c.DeflateJob.ID].Deflation) })
	return connect.NewResponse(out), nil
}
