package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
)

// jobService serves the scheduler: the replicated job table and the directives.
type jobService struct{ *server }

// CommitJob implements headroomv1connect.JobServiceHandler.
func (j jobService) CommitJob(ctx context.Context, r *connect.Request[headroomv1.CommitJobRequest]) (*connect.Response[headroomv1.CommitJobResponse], error) {
	job := r.Msg.GetJob()
	c := command(ctx, r.Msg.GetChange(), "scheduler")
	c.Job = &ledger.Job{
		ID: job.GetId(), Name: job.GetName(), Class: job.GetClass(), Spec: job.GetSpec(), Submitted: job.GetSubmittedUs(), State: ledger.JobAccepted,
	}
	res, err := j.change(ctx, c)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&headroomv1.CommitJobResponse{Revision: res.Revision}), nil
}

// FinishJob implements headroomv1connect.JobServiceHandler.
func (j jobService) FinishJob(ctx context.Context, r *connect.Request[headroomv1.FinishJobRequest]) (*connect.Response[headroomv1.FinishJobResponse], error) {
	ends := map[headroomv1.JobState]ledger.JobState{
		headroomv1.JobState_JOB_STATE_DONE: ledger.JobDone, headroomv1.JobState_JOB_STATE_FAILED: ledger.JobFailed,
		headroomv1.JobState_JOB_STATE_CANCELLED: ledger.JobCancelled,
	}
	c := command(ctx, r.Msg.GetChange(), "scheduler")
	c.Finish = &ledger.FinishJob{
		ID: r.Msg.GetId(), State: ends[r.Msg.GetState()], Outcome: r.Msg.GetOutcome(), Tasks: r.Msg.GetTasks(), Done: r.Msg.GetDone(),
		Runtime: time.Duration(r.Msg.GetRuntimeS() * float64(time.Second)),
	}
	res, err := j.change(ctx, c)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&headroomv1.FinishJobResponse{Revision: res.Revision}), nil
}

// DropTasks implements headroomv1connect.JobServiceHandler.
func (j jobService) DropTasks(_ context.Context, r *connect.Request[headroomv1.DropTasksRequest]) (*connect.Response[headroomv1.DropTasksResponse], error) {
	return nil, rpc.Refuse(connect.CodeFailedPrecondition, "no-stop", cli.ExitRefused, fmt.Sprintf("job %q has no early stop in force", r.Msg.GetId()), "tasks are dropped only after the coordinators have decided it")
}

// ListJobs implements headroomv1connect.JobServiceHandler.
func (j jobService) ListJobs(ctx context.Context, r *connect.Request[headroomv1.ListJobsRequest]) (*connect.Response[headroomv1.ListJobsResponse], error) {
	out := &headroomv1.ListJobsResponse{}
	var err, refused error
	out.Meta, err = j.read(ctx, r.Msg.GetStale(), func(s *ledger.State, d *desk) { refused = jobPage(s, d, r.Msg, out) })
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// jobPageBytes is about how much a page of jobs holds: half of what a message may.
const jobPageBytes = rpc.MaxMessage / 2

// jobPage adds the jobs after the one named, as many as fit.
func jobPage(s *ledger.State, d *desk, r *headroomv1.ListJobsRequest, out *headroomv1.ListJobsResponse) error {
	jobs := s.JobsByTime()
	if after := r.GetAfter(); after != "" {
		i := slices.IndexFunc(jobs, func(j ledger.Job) bool { return j.ID == after })
		if i < 0 {
			return rpc.Refuse(connect.CodeAborted, "conflict", cli.ExitConflict, fmt.Sprintf("job %q is not there any more", after), "list the jobs again from the first one")
		}
		jobs = jobs[i+1:]
	}
	size := 0
	for _, job := range jobs {
		m := jobMessage(job, d)
		if r.GetWithoutSpecs() {
			m.Spec = nil
		}
		if size += proto.Size(m); size > jobPageBytes && len(out.GetJobs()) > 0 {
			out.More = true
			return nil
		}
		out.Jobs = append(out.Jobs, m)
	}
	return nil
}

func jobMessage(j ledger.Job, d *desk) *headroomv1.Job {
	m := &headroomv1.Job{
		Id: j.ID, Name: j.Name, Class: j.Class, Spec: j.Spec, SubmittedUs: j.Submitted, Outcome: j.Outcome, State: headroomv1.JobState_JOB_STATE_QUEUED,
	}
	switch j.State {
	case ledger.JobDone:
		m.State = headroomv1.JobState_JOB_STATE_DONE
	case ledger.JobFailed:
		m.State = headroomv1.JobState_JOB_STATE_FAILED
	case ledger.JobCancelled:
		m.State = headroomv1.JobState_JOB_STATE_CANCELLED
	case ledger.JobAccepted:
		if d == nil {
			return m
		}
		if m.Progress = d.board.of(j.ID, time.Now()); m.Progress != nil {
			m.State = m.Progress.GetState()
		}
		return m
	}
	runtime := j.Runtime.Seconds()
	m.Progress = &headroomv1.JobProgress{Id: j.ID, State: m.State, Tasks: j.Tasks, Done: j.Done, RuntimeS: &runtime}
	return m
}

type direct = connect.BidiStream[headroomv1.SchedulerMessage, headroomv1.DirectorMessage]

// Direct implements headroomv1connect.JobServiceHandler: one stream of one scheduler.
func (j jobService) Direct(ctx context.Context, x *direct) error {
	first, err := x.Receive()
	if err != nil {
		return ended(err)
	}
	hello := first.GetHello()
	if hello == nil {
		return rpc.Refuse(connect.CodeInvalidArgument, "no-hello", cli.ExitUsage, "the first message of a scheduler must be SchedulerHello",
			"use a scheduler of this version")
	}
	s := j.hub.enlist(hello.GetId())
	defer j.hub.dismiss(s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-s.box:
				if x.Send(m) != nil {
					return
				}
			}
		}
	}()
	err = j.listen(ctx, x)
	cancel()
	<-sent
	return err
}

// listen takes in progress and acknowledgements while this server leads.
func (j jobService) listen(ctx context.Context, x *direct) error {
	for {
		m, err := x.Receive()
		if err != nil {
			return ended(err)
		}
		d := j.leading.Load()
		if d == nil {
			continue
		}
		if err := d.post(ctx, func() {
			if p := m.GetProgress(); p != nil {
				d.board.report(p.GetJobs(), time.Now())
			}
			if a := m.GetAck(); a != nil {
				d.board.ack(d.epoch, a)
			}
		}); err != nil && ctx.Err() != nil {
			return ended(err)
		}
	}
}
