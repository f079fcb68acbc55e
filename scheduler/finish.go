package scheduler

import (
	"context"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/pause"
	"headroom/jobs/dispatch"
	"headroom/scheduler/leader"
)

const (
	// finishWait bounds one effort to commit the end of a job.
	finishWait = 10 * time.Second
	// finishRetry is the wait between two efforts.
	finishRetry = time.Second
)

// finish commits the ends of jobs, one after the other, until ctx ends. An end
// that is not committed when the scheduler stops is found again by the next one:
// the job comes back, and its outputs are all there.
func (s *Server) finish(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.ended:
			s.commitEnd(ctx, e)
		}
	}
}

func (s *Server) commitEnd(ctx context.Context, e dispatch.EndJob) {
	req := &headroomv1.FinishJobRequest{
		Id: e.Job, State: stateToProto(e.State), Outcome: e.Outcome, Tasks: count(e.Tasks), Done: count(e.Done), RuntimeS: e.Runtime.Seconds(),
		Change: &headroomv1.Change{Actor: "scheduler/" + s.id.ID, Reason: e.Outcome, RequestId: "finish-" + e.Job},
	}
	for ctx.Err() == nil {
		_, err := s.commitFinish(ctx, req)
		if err == nil {
			return
		}
		if leader.Settled(err) {
			s.logger.Warn("end of job refused by the coordinators", slog.String("job", e.Job), slog.Any("error", err))
			return
		}
		if !pause.For(ctx, finishRetry) {
			return
		}
	}
}

// commitFinish commits an end and returns the revision.
func (s *Server) commitFinish(parent context.Context, req *headroomv1.FinishJobRequest) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(parent, finishWait)
	defer cancel()
	resp, err := leader.Ask(ctx, s.leader, "end job "+req.GetId(), headroomv1connect.JobServiceClient.FinishJob, req)
	return resp.GetRevision(), err
}
