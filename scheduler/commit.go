package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/leader"
)

const (
	// finishWait bounds one attempt to commit the end of a job.
	finishWait = 10 * time.Second
	// commitRetry is the wait between two attempts.
	commitRetry = time.Second
	// deflateWait bounds the attempts to commit a drop ratio. A job must not wait for the coordinators for ever:
	// without a commit all of its tasks run.
	deflateWait = 30 * time.Second
	// notesMax bounds the lines for the audit log that wait for a leader.
	notesMax = 256
)

// committer commits decisions of the loop at the coordinators, one after the other: ends of jobs, drop ratios and
// admissions of queued jobs.
type committer struct {
	actor  string
	leader *leader.Client
	inbox  inbox
	logger *slog.Logger
	// ended are ends of jobs, asked drop ratios, admitted queued jobs that were admitted, all to be committed.
	ended    chan ending
	asked    chan dispatch.Deflate
	admitted chan *headroomv1.Job
	// runs are runs to be recorded, at most one for each job.
	runs chan runCommit
	// scaled are jobs with a new scaling curve.
	scaled chan *headroomv1.Job
	// noted are lines for the audit log.
	noted chan *headroomv1.RecordActionRequest
}

func newCommitter(id identity, l *leader.Client, b inbox, logger *slog.Logger) *committer {
	return &committer{
		"scheduler/" + id.ID, l, b, logger,
		make(chan ending, dispatch.EndedMax), make(chan dispatch.Deflate, jobsMax), make(chan *headroomv1.Job, jobsMax), make(chan runCommit, 4*jobsMax), make(chan *headroomv1.Job, jobsMax),
		make(chan *headroomv1.RecordActionRequest, notesMax),
	}
}

// ends commits the ends of jobs until ctx ends. An end that is not committed when the scheduler stops is found by the
// next one: the job is restored, and its outputs are complete.
func (c *committer) ends(ctx context.Context) error { return takeAll(ctx, c.ended, c.commitEnd) }

func (c *committer) commitEnd(ctx context.Context, e ending) {
	req := &headroomv1.FinishJobRequest{
		Id: e.Job, State: stateToProto(e.State), Outcome: e.Outcome, Tasks: count(e.Tasks), Done: count(e.Done), RuntimeS: e.Runtime.Seconds(), End: e.went,
		Change: &headroomv1.Change{Actor: c.actor, Reason: e.Outcome, RequestId: "finish-" + e.Job},
	}
	err := insist(ctx, func() error {
		_, err := c.commitFinish(ctx, req)
		return err
	})
	if err != nil {
		c.logger.Warn("coordinators refused the end of a job", slog.String("job", e.Job), slog.Any("error", err))
	}
}

// admissions commits admissions of queued jobs until ctx ends, so that the jobs do not wait again after a restart of
// the scheduler.
func (c *committer) admissions(ctx context.Context) error {
	return takeAll(ctx, c.admitted, c.commitAdmission)
}

func (c *committer) commitAdmission(ctx context.Context, j *headroomv1.Job) {
	req := &headroomv1.CommitJobRequest{
		Job: j, Change: &headroomv1.Change{Actor: c.actor, Reason: j.GetAdmission().GetReason(), RequestId: "admit-" + j.GetId()},
	}
	err := insist(ctx, func() error {
		_, err := askOnce(ctx, c.leader, "admit job "+j.GetId(), headroomv1connect.JobServiceClient.CommitJob, req)
		return err
	})
	if err != nil {
		c.logger.Warn("coordinators refused the admission of a job", slog.String("job", j.GetId()), slog.Any("error", err))
	}
}

// note queues a line for the audit log. Without room the scheduler's own log has it alone.
func (c *committer) note(r *headroomv1.RecordActionRequest) {
	select {
	case c.noted <- r:
	default:
		c.logger.Warn("action not recorded in the audit log", slog.String("action", r.GetAction().String()), slog.String("actor", r.GetChange().GetActor()))
	}
}

func (c *committer) noteRefused(who access.Caller, action string) {
	c.note(&headroomv1.RecordActionRequest{
		Action: headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED, Detail: action,
		Change: &headroomv1.Change{Actor: who.Name, OnBehalfOf: who.Name, Reason: "permission denied", RequestId: "refused-" + rand.Text()},
	})
}

// notes commits lines of the audit log until ctx ends.
func (c *committer) notes(ctx context.Context) error {
	return takeAll(ctx, c.noted, func(ctx context.Context, r *headroomv1.RecordActionRequest) {
		err := insist(ctx, func() error {
			_, err := askOnce(ctx, c.leader, "record an action", headroomv1connect.JobServiceClient.RecordAction, r)
			return err
		})
		if err != nil {
			c.logger.Warn("coordinators refused a line of the audit log", slog.Any("error", err))
		}
	})
}

// takeAll calls do for all that arrives, one after the other, until ctx ends.
func takeAll[T any](ctx context.Context, from <-chan T, do func(context.Context, T)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-from:
			do(ctx, x)
		}
	}
}

// insist retries a commit until it succeeds or ctx ends. An error is a refusal of the coordinators.
func insist(ctx context.Context, commit func() error) error {
	for ctx.Err() == nil {
		if err := commit(); err == nil || leader.Settled(err) {
			return err
		}
		if !pause.For(ctx, commitRetry) {
			break
		}
	}
	return nil
}

// askOnce makes one attempt to commit something.
func askOnce[Q, A any](parent context.Context, l *leader.Client, doing string, method func(headroomv1connect.JobServiceClient, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(parent, finishWait)
	defer cancel()
	return leader.Ask(ctx, l, doing, method, q)
}

// commitFinish commits an end, tells the loop the verdict on it, and returns the revision.
func (c *committer) commitFinish(ctx context.Context, req *headroomv1.FinishJobRequest) (revision uint64, err error) {
	resp, err := askOnce(ctx, c.leader, "end job "+req.GetId(), headroomv1connect.JobServiceClient.FinishJob, req)
	if err != nil {
		return 0, err
	}
	if resp.GetEnd() != nil {
		_ = c.inbox.post(ctx, judgedEvent{req.GetId(), resp.GetEnd()}) // it fails only when ctx ends
	}
	return resp.GetRevision(), nil
}

// ratios commits drop ratios until ctx ends, and reports to the loop which ones are in force.
func (c *committer) ratios(ctx context.Context) error {
	return takeAll(ctx, c.asked, func(ctx context.Context, a dispatch.Deflate) {
		theta, why := c.commitTheta(ctx, a)
		if ctx.Err() == nil {
			_ = c.inbox.post(ctx, deflatedEvent{a.Job, a.Run.Number, theta, why}) // it fails only when ctx ends
		}
	})
}

// commitTheta returns the drop ratio in force and, if it is not the requested one, the reason.
func (c *committer) commitTheta(parent context.Context, a dispatch.Deflate) (theta float64, why string) {
	ctx, cancel := context.WithTimeout(parent, deflateWait)
	defer cancel()
	req := &headroomv1.DeflateJobRequest{
		Id: a.Job, Theta: a.Run.Theta, Seed: a.Run.Seed, Reason: a.Run.Why,
		Change: &headroomv1.Change{
			Actor: c.actor, Reason: a.Run.Why, RequestId: fmt.Sprintf("deflate-%s-%d", a.Job, a.Run.Number),
		},
	}
	for {
		_, err := leader.Ask(ctx, c.leader, "deflate job "+a.Job, headroomv1connect.JobServiceClient.DeflateJob, req)
		if err == nil {
			return a.Run.Theta, ""
		}
		if leader.Settled(err) || !pause.For(ctx, commitRetry) {
			c.logger.Warn("drop ratio not committed; running all tasks", slog.String("job", a.Job), slog.Any("error", err))
			return 0, "all tasks run: " + plain(err)
		}
	}
}

// plain returns the message of an error without its hint.
func plain(err error) string {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// deflatedEvent is the answer of the coordinators about the drop ratio of a run.
type deflatedEvent struct {
	job    string
	number uint32
	theta  float64
	why    string
}

func (e deflatedEvent) apply(l *loop, now time.Time) {
	l.core.Deflated(now, e.job, e.number, e.theta, e.why)
}

const (
	// rangesAtOnce bounds the ranges of dropped tasks of one commit, as the coordinators do.
	rangesAtOnce = 4096
	// recorders is how many runs are recorded at the same time.
	recorders = 8
)

// recordRun records a run, or what it drops, however long the coordinators have no leader; the error is their refusal.
func (c *committer) recordRun(ctx context.Context, r runCommit) error {
	parts := [][]*headroomv1.TaskRange{nil}
	if len(r.drop) > 0 {
		parts = slices.Collect(slices.Chunk(r.drop, rangesAtOnce))
	}
	for _, part := range parts {
		req := &headroomv1.RecordRunRequest{Id: r.job, Run: r.run, Drop: part, Change: &headroomv1.Change{Actor: c.actor}}
		err := insist(ctx, func() error {
			_, err := askOnce(ctx, c.leader, "record a run of job "+r.job, headroomv1connect.JobServiceClient.RecordRun, req)
			if e, ok := errors.AsType[*cli.Error](err); ok && e.Code == "old-rules" {
				return context.DeadlineExceeded // the coordinators are being upgraded: ask again
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runToProto returns the latest run of a job for the coordinators' log.
func (r *record) runToProto() *headroomv1.JobRun {
	m := &headroomv1.JobRun{
		Number: r.run.Number, Theta: r.run.Theta, Seed: r.run.Seed, Decided: r.run.Decided, Why: r.run.Why, Sprint: r.run.Sprint,
		SprintAfterUs: r.run.SprintAfter.Microseconds(), Stopping: r.run.Stopping, Over: r.run.Over,
	}
	if !r.run.Began.IsZero() {
		m.BeganUs = r.run.Began.UnixMicro()
	}
	if r.started != nil {
		m.StartedUs = r.started.UnixMicro()
	}
	return m
}

// runFromProto takes over the latest run of the log.
func (r *record) runFromProto(m *headroomv1.JobRun) {
	if m == nil {
		return
	}
	r.run = dispatch.RunRecord{
		Number: m.GetNumber(), Theta: m.GetTheta(), Seed: m.GetSeed(), Decided: m.GetDecided(), Why: m.GetWhy(), Sprint: m.GetSprint(),
		SprintAfter: time.Duration(m.GetSprintAfterUs()) * time.Microsecond, Stopping: m.GetStopping(), Over: m.GetOver(),
	}
	if m.GetBeganUs() != 0 {
		r.run.Began = time.UnixMicro(m.GetBeganUs())
	}
	if m.GetStartedUs() != 0 {
		r.started = new(time.UnixMicro(m.GetStartedUs()))
	}
	for i, bits := range m.GetDropped() {
		for b := range 8 {
			if bits&(1<<b) != 0 {
				r.dropped = append(r.dropped, 8*i+b)
			}
		}
	}
	r.dir.Run = r.run.Number
}
