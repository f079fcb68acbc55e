package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/jobs/dispatch"
	"headroom/scheduler/leader"
)

// deflateWait bounds the efforts to commit a drop ratio. A job must not wait for
// coordinators for ever: without their word it runs on all of its tasks.
const deflateWait = 30 * time.Second

// deflate commits drop ratios, one after the other, until ctx ends, and tells the
// loop what is in force.
func (s *Server) deflate(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-s.asked:
			theta, why := s.commitTheta(ctx, a)
			if ctx.Err() != nil || s.post(ctx, deflatedEvent{a.Job, a.Run.Number, theta, why}) != nil {
				return nil
			}
		}
	}
}

// commitTheta is the drop ratio in force and, where it is not the one asked for, why.
func (s *Server) commitTheta(parent context.Context, a dispatch.Deflate) (theta float64, why string) {
	ctx, cancel := context.WithTimeout(parent, deflateWait)
	defer cancel()
	req := &headroomv1.DeflateJobRequest{
		Id: a.Job, Theta: a.Run.Theta, Seed: a.Run.Seed, Reason: a.Run.Why,
		Change: &headroomv1.Change{
			Actor: "scheduler/" + s.id.ID, Reason: a.Run.Why, RequestId: fmt.Sprintf("deflate-%s-%d", a.Job, a.Run.Number),
		},
	}
	for {
		_, err := leader.Ask(ctx, s.leader, "deflate job "+a.Job, headroomv1connect.JobServiceClient.DeflateJob, req)
		if err == nil {
			return a.Run.Theta, ""
		}
		if leader.Settled(err) || !pause.For(ctx, finishRetry) {
			s.logger.Warn("job runs on all of its tasks", slog.String("job", a.Job), slog.Any("error", err))
			return 0, "all tasks run: " + plain(err)
		}
	}
}

// plain is an error's message without its hint.
func plain(err error) string {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// deflatedEvent is the coordinators' word on the drop ratio of a run.
type deflatedEvent struct {
	job    string
	number uint32
	theta  float64
	why    string
}

func (e deflatedEvent) apply(l *loop, now time.Time) {
	l.core.Deflated(now, e.job, e.number, e.theta, e.why)
}
