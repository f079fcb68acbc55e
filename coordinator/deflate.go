package coordinator

import (
	"context"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
)

// DeflateJob implements headroomv1connect.JobServiceHandler. Nothing is answered as in force that has not committed.
func (j jobService) DeflateJob(ctx context.Context, r *connect.Request[headroomv1.DeflateJobRequest]) (*connect.Response[headroomv1.DeflateJobResponse], error) {
	c := command(ctx, r.Msg.GetChange(), "scheduler")
	if why := r.Msg.GetReason(); why != "" {
		c.Reason = why
	}
	c.DeflateJob = &ledger.DeflateJob{ID: r.Msg.GetId(), Theta: r.Msg.GetTheta(), Seed: r.Msg.GetSeed()}
	out := &headroomv1.DeflateJobResponse{}
	var err error
	if asked := j.onDesk(ctx, func(d *desk) { err = d.deflateJob(context.WithoutCancel(ctx), c, out) }); asked != nil {
		return nil, asked
	}
	if err != nil {
		return nil, j.refuse(err)
	}
	return connect.NewResponse(out), nil
}

// deflateJob commits a drop ratio and tells the one in force.
func (d *desk) deflateJob(ctx context.Context, c ledger.Command, out *headroomv1.DeflateJobResponse) error {
	res, err := d.propose(ctx, c)
	if err != nil {
		return err
	}
	out.Revision = res.Revision
	d.machine.view(func(s *ledger.State) { out.Deflation = deflationMessage(s.Jobs[c.DeflateJob.ID].Deflation) })
	return nil
}

func deflationMessage(x *ledger.Deflation) *headroomv1.Deflation {
	if x == nil {
		return nil
	}
	return &headroomv1.Deflation{Theta: x.Theta, Seed: x.Seed, Reason: x.Reason, AtUs: x.At}
}
