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
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/leading"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/containers"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// jobService serves the scheduler: the replicated job table and the directives.
type jobService struct{ *server }

var _ headroomv1connect.JobServiceHandler = jobService{}

// CommitJob implements headroomv1connect.JobServiceHandler.
func (j jobService) CommitJob(ctx context.Context, r *connect.Request[headroomv1.CommitJobRequest]) (*connect.Response[headroomv1.CommitJobResponse], error) {
	job := r.Msg.GetJob()
	c := command(ctx, r.Msg, "scheduler")
	c.Job = &ledger.Job{
		ID: job.GetId(), Name: job.GetName(), Class: job.GetClass(), Spec: job.GetSpec(), Submitted: job.GetSubmittedUs(), State: ledger.JobAccepted,
		Engine: job.GetEngine(), Queue: job.GetQueue(), Floor: cmp.Or(job.GetFloor(), 1), Rank: job.GetRank(), Admission: admission(job.GetAdmission()),
		Scaling: scaling(job.GetScaling()),
	}
	if s := job.GetDeadlineS(); s != 0 {
		if !(s > 0 && s <= longestDeadline.Seconds()) {
			return nil, rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage,
				fmt.Sprintf("job %q: deadline %v s after submission must be above 0 s and at most %v", job.GetId(), s, longestDeadline), "omit the deadline if there is none")
		}
		c.Job.Deadline = time.Duration(s * float64(time.Second))
	}
	if err := c.Job.Admission.Check(job.GetId()); err != nil {
		return nil, rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, view.Plain(err), "omit the admission of a job that was not checked")
	}
	if err := c.Job.Scaling.Check(job.GetId()); err != nil {
		return nil, rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, view.Plain(err), "omit the scaling curve if it is unknown")
	}
	if c.Job.Engine == arbitration.EngineLocal {
		c.Job.Engine = ""
	}
	inputs := inputs(job.GetInputs())
	res, err := j.ofScheduler(ctx, r.Header(), c, func(v leader.View, c *ledger.Command) error {
		if v.State.Rules >= ledger.RulesOfRuns { // older servers could not read it
			c.Job.Inputs = inputs
		}
		return nil
	})
	return rpc.Respond(&headroomv1.CommitJobResponse{Revision: res.Revision}, err)
}

// scaling returns the job's scaling curve as the scheduler has learned it, nil if it has not. Of a curve with too many points,
// only as many are read as make its check refuse it.
func scaling(s *headroomv1.Scaling) *ledger.Scaling {
	if s == nil {
		return nil
	}
	out := &ledger.Scaling{Runs: s.GetRuns(), Type: s.GetType(), Error: s.GetError(), Exploring: s.GetExploring()}
	for _, p := range s.GetPoints()[:min(len(s.GetPoints()), containers.CurvePointsMost+1)] {
		out.Points = append(out.Points, ledger.ScalingPoint{Containers: p.GetContainers(), Speedup: p.GetSpeedup()})
	}
	return out
}

// admission converts a job's admission, nil without one.
func admission(a *headroomv1.Admission) *ledger.Admission {
	if a == nil {
		return nil
	}
	return &ledger.Admission{
		Decision: a.GetDecision(), Slots: a.GetSlots(), Need: a.GetNeed(), Free: a.GetFree(), Work: a.WorkS, Confidence: a.Confidence, Samples: a.GetSamples(),
		Until: a.GetUntilUs(), Finish: a.GetFinishUs(), Reason: a.GetReason(),
	}
}

// FinishJob implements headroomv1connect.JobServiceHandler.
func (j jobService) FinishJob(ctx context.Context, r *connect.Request[headroomv1.FinishJobRequest]) (*connect.Response[headroomv1.FinishJobResponse], error) {
	ends := map[headroomv1.JobState]ledger.JobState{
		headroomv1.JobState_JOB_STATE_DONE: ledger.JobDone, headroomv1.JobState_JOB_STATE_FAILED: ledger.JobFailed,
		headroomv1.JobState_JOB_STATE_CANCELLED: ledger.JobCancelled,
	}
	c := command(ctx, r.Msg, "scheduler")
	c.Finish = &ledger.FinishJob{
		ID: r.Msg.GetId(), State: ends[r.Msg.GetState()], Outcome: r.Msg.GetOutcome(), Tasks: r.Msg.GetTasks(), Done: r.Msg.GetDone(),
		Runtime: time.Duration(r.Msg.GetRuntimeS() * float64(time.Second)),
	}
	var before, after ledger.Job
	res, err := j.ofScheduler(ctx, r.Header(), c, func(v leader.View, c *ledger.Command) error {
		if l := j.requests.loop.Load(); l != nil {
			c.Finish.Energy = l.Known().FinalEnergy(c.Finish.ID)
		}
		if v.State.Rules >= ledger.RulesOfCourses { // older servers could not read it
			c.Finish.Course = course(r.Msg.GetEnd())
		}
		before = v.State.Jobs[c.Finish.ID]
		return nil
	})
	if err != nil {
		return nil, err
	}
	j.machine.View(func(s *ledger.State) { after = s.Jobs[c.Finish.ID] })
	if before.State == ledger.JobAccepted {
		j.counts.Judged(after.Verdict().Word)
	}
	return connect.NewResponse(&headroomv1.FinishJobResponse{Revision: res.Revision, End: view.JobEnd(after)}), nil
}

// course converts how a job went, nil for unknown.
func course(e *headroomv1.JobEnd) *ledger.JobCourse {
	if e == nil {
		return nil
	}
	return &ledger.JobCourse{
		Began: e.GetBeganUs(), Ended: e.GetEndedUs(), Wasted: inSeconds(e.GetWastedS()), Work: inSeconds(e.GetWorkS()), Slots: e.GetSlots(),
		Longest: inSeconds(e.GetLongestS()), Input: e.GetInputBytes(),
	}
}

// inSeconds converts a time; what is no time of a job is below 0, which the log refuses.
func inSeconds(s float64) time.Duration {
	if !(s >= 0 && s <= longestDeadline.Seconds()) {
		return -1
	}
	return time.Duration(s * float64(time.Second))
}

// DropTasks implements headroomv1connect.JobServiceHandler. Nothing is answered as dropped that has not committed.
func (j jobService) DropTasks(ctx context.Context, r *connect.Request[headroomv1.DropTasksRequest]) (*connect.Response[headroomv1.DropTasksResponse], error) {
	c := command(ctx, r.Msg, "scheduler")
	c.DropTasks = &ledger.DropTasks{ID: r.Msg.GetId(), Of: r.Msg.GetOf()}
	for _, x := range r.Msg.GetTasks() {
		c.DropTasks.Ranges = append(c.DropTasks.Ranges, ledger.TaskRange{First: x.GetFirst(), Last: x.GetLast()})
	}
	var before, after ledger.Job
	res, err := j.ofScheduler(ctx, r.Header(), c, func(v leader.View, c *ledger.Command) error {
		before = v.State.Jobs[c.DropTasks.ID]
		return nil
	})
	if err != nil {
		return nil, err
	}
	j.machine.View(func(s *ledger.State) { after = s.Jobs[c.DropTasks.ID] })
	j.counts.Dropped(int(after.DroppedTasks()) - int(before.DroppedTasks()))
	return connect.NewResponse(&headroomv1.DropTasksResponse{Revision: res.Revision, Dropped: view.TaskRanges(after.Dropped)}), nil
}

// longestDeadline bounds a job's deadline after submission: ten years.
const longestDeadline = 10 * 365 * 24 * time.Hour

// ListJobs implements headroomv1connect.JobServiceHandler.
func (j jobService) ListJobs(ctx context.Context, r *connect.Request[headroomv1.ListJobsRequest]) (*connect.Response[headroomv1.ListJobsResponse], error) {
	out := &headroomv1.ListJobsResponse{}
	var err, refused error
	out.Meta, err = j.requests.read(ctx, r.Msg.GetStale(), func(s *ledger.State, k *leading.Known) { refused = jobPage(s, k, r.Msg, out) })
	return rpc.Respond(out, cmp.Or(err, refused))
}

// jobPageBytes is the approximate size of a page of jobs: half of the largest message.
const jobPageBytes = rpc.MaxMessage / 2

// jobPage adds the jobs after the named one, as many as fit.
func jobPage(s *ledger.State, k *leading.Known, r *headroomv1.ListJobsRequest, out *headroomv1.ListJobsResponse) error {
	jobs := s.JobsByTime()
	if after := r.GetAfter(); after != "" {
		i := slices.IndexFunc(jobs, func(j ledger.Job) bool { return j.ID == after })
		if i < 0 {
			return rpc.Refuse(connect.CodeAborted, "conflict", cli.ExitConflict, fmt.Sprintf("job %q no longer exists", after), "list the jobs again from the first one")
		}
		jobs = jobs[i+1:]
	}
	size := 0
	for _, job := range jobs {
		m := k.Job(job)
		if r.GetWithoutSpecs() {
			m.Spec = nil
			if m.GetRun() != nil {
				m.Run.Dropped = nil
			}
		}
		if size += proto.Size(m); size > jobPageBytes && len(out.GetJobs()) > 0 {
			out.More = true
			return nil
		}
		out.Jobs = append(out.Jobs, m)
	}
	return nil
}

type direct = connect.BidiStream[headroomv1.SchedulerMessage, headroomv1.DirectorMessage]

// Direct implements headroomv1connect.JobServiceHandler: one stream of one scheduler.
func (j jobService) Direct(ctx context.Context, x *direct) error {
	first, err := x.Receive()
	if err != nil {
		return ended(err)
	}
	if hello := first.GetHello(); hello == nil {
		return rpc.Refuse(connect.CodeInvalidArgument, "no-hello", cli.ExitUsage, "the first message of a scheduler must be SchedulerHello",
			"use a scheduler of this version")
	}
	s := j.streams.Schedulers.Open()
	defer j.streams.Schedulers.Close(s)
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
			case m := <-s.Box():
				if x.Send(m) != nil {
					return
				}
			}
		}
	}()
	err = j.listen(ctx, x, rpc.SchedulerEpoch(x.RequestHeader()))
	cancel()
	<-sent
	return err
}

// listen receives progress and acknowledgements while this server leads. The stream of a scheduler in whose place
// another is active ends at its next report.
func (j jobService) listen(ctx context.Context, x *direct, epoch uint64) error {
	for {
		m, err := x.Receive()
		if err != nil {
			return ended(err)
		}
		l := j.requests.loop.Load()
		if l == nil {
			continue
		}
		if m.GetProgress() != nil {
			j.machine.View(func(s *ledger.State) { err = s.Outdated(epoch) })
			if err != nil {
				return j.requests.refuse(err)
			}
		}
		if err := l.Post(ctx, func(k *leading.Known) {
			if p := m.GetProgress(); p != nil {
				k.ReportJobs(p)
			}
			if a := m.GetAck(); a != nil {
				k.Acknowledge(a)
			}
		}); err != nil && ctx.Err() != nil {
			return ended(err)
		}
	}
}

// ExplainJob implements headroomv1connect.JobServiceHandler.
func (j jobService) ExplainJob(ctx context.Context, r *connect.Request[headroomv1.ExplainJobRequest]) (*connect.Response[headroomv1.ExplainJobResponse], error) {
	out := &headroomv1.ExplainJobResponse{}
	var err, refused error
	out.Meta, err = j.requests.read(ctx, false, func(s *ledger.State, k *leading.Known) {
		job, known := s.Jobs[r.Msg.GetId()]
		if !known {
			refused = j.requests.refuse(fmt.Errorf("job %q: %w", r.Msg.GetId(), ledger.ErrUnknownJob))
			return
		}
		out.Job, out.Moves = k.Job(job), k.JobMoves(job.ID)
	})
	return rpc.Respond(out, cmp.Or(err, refused))
}
