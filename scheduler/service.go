package scheduler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/secure"
	"headroom/jobs/admission"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/leader"
	"headroom/scheduler/lookup"
)

// submitWait bounds a submission, because an election takes up to 3 s.
const submitWait = 8 * time.Second

// service serves SchedulerService.
type service struct{ *Server }

// Submit checks a job file, commits the job and then runs it. A repeated request id returns the job of the first
// request.
func (s *service) Submit(ctx context.Context, req *connect.Request[headroomv1.SubmitRequest]) (*connect.Response[headroomv1.SubmitResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, submitWait)
	defer cancel()
	access.CallerOf(ctx).Sign(req.Msg.GetChange())
	resp, err := s.submit(ctx, req.Msg)
	if err != nil {
		return nil, refusal(err, "submit")
	}
	return connect.NewResponse(resp), nil
}

func (s *service) submit(ctx context.Context, m *headroomv1.SubmitRequest) (*headroomv1.SubmitResponse, error) {
	who := access.CallerOf(ctx)
	leave, err := s.requests.enter(ctx, m.GetChange())
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := s.prepare(m, who)
	if err != nil {
		return nil, err
	}
	others, submitted := s.submitting.Begin(who.Name)
	defer submitted()
	v, err := s.look(ctx, "")
	if err != nil {
		return nil, err
	}
	id := r.dir.ID
	for _, j := range v.jobs {
		if j.ID == id {
			return again(jobToProto(j), r)
		}
	}
	for _, j := range v.waiting {
		if j.GetId() == id && j.GetAdmission() != nil {
			return again(j, r)
		}
	}
	if live := liveJobs(v); live >= jobsMax {
		return nil, &cli.Error{
			Code: "full", Exit: cli.ExitRefused,
			Message: fmt.Sprintf("%d jobs are queued or running, which is the maximum", live), Hint: "wait until some have ended, or cancel some",
		}
	}
	if err := s.checkQuota(who, v, others); err != nil {
		return nil, err
	}
	if err := s.find(ctx, r); err != nil {
		return nil, err
	}
	if err := s.checkTasks(r, v); err != nil {
		return nil, err
	}
	job := &headroomv1.Job{
		Submitter: who.Name, Id: id, Name: r.file.Name, Class: r.file.Class, State: headroomv1.JobState_JOB_STATE_QUEUED,
		Spec: r.spec, SubmittedUs: r.submitted.UnixMicro(), Floor: r.floor.Fraction, Progress: &headroomv1.JobProgress{
			Id:    id,
			State: headroomv1.JobState_JOB_STATE_QUEUED, Tasks: count(len(r.inputs.Names)),
		},
		Engine: r.file.Engine(), Rank: count(slices.Index(s.cfg.names(), r.file.Class)),
	}
	if r.deadline > 0 {
		job.DeadlineS = new(r.deadline.Seconds())
	}
	if job.Admission, err = s.judge(ctx, id, r, m); err != nil {
		return nil, err
	}
	r.admission = job.GetAdmission()
	if m.GetDryRun() {
		return &headroomv1.SubmitResponse{Job: job}, nil
	}
	if err := Refused(r.file.Name, job.GetAdmission(), m.GetQueue()); err != nil {
		return nil, err
	}
	r.scaling = s.advise(r)
	job.Scaling = proto.CloneOf(r.scaling)
	revision, err := s.accept(ctx, job, r, m.GetChange())
	if err != nil {
		return nil, err
	}
	return &headroomv1.SubmitResponse{Job: job, Revision: revision}, nil
}

// requests are those in progress, by caller and id. A repeated one waits for the first one, because it would otherwise take its
// folder and its slots away.
type requests struct {
	mu    sync.Mutex
	under map[requestKey]chan struct{}
}

type requestKey struct{ caller, id string }

// enter waits until no other request of this caller and id is in progress. Call leave once it is over.
func (q *requests) enter(ctx context.Context, c *headroomv1.Change) (leave func(), err error) {
	id := requestKey{c.GetOnBehalfOf(), c.GetRequestId()}
	for {
		q.mu.Lock()
		other := q.under[id]
		if other == nil {
			break
		}
		q.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer q.mu.Unlock()
	if q.under == nil {
		q.under = make(map[requestKey]chan struct{})
	}
	over := make(chan struct{})
	q.under[id] = over
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.under, id)
		close(over)
	}, nil
}

// judge decides about the deadline of a job; nil without a deadline or with admission off.
func (s *service) judge(ctx context.Context, id string, r *record, m *headroomv1.SubmitRequest) (*headroomv1.Admission, error) {
	if _, named := r.file.Due(); !named || s.cfg.Admission.Policy == admissionOff {
		return nil, nil
	}
	reply := make(chan *headroomv1.Admission, 1)
	a, err := ask(ctx, s.inbox, judgeEvent{id: id, record: r, queue: m.GetQueue(), dry: m.GetDryRun(), reply: reply}, reply)
	return proto.CloneOf(a), err
}

// OutcomeRefused begins the outcome of a job that waited for slots until its deadline could no longer be met.
const OutcomeRefused = "refused by admission: "

// Refused returns the refusal of a job whose deadline cannot be met, or not without waiting, which queue allows; nil
// for an admitted job.
func Refused(name string, a *headroomv1.Admission, queue bool) error {
	e := &cli.Error{Code: "admission", Exit: cli.ExitRefused}
	switch {
	case a.GetDecision() == admission.Refused.String():
		e.Message = fmt.Sprintf("job %s refused: its deadline cannot be met: %s", name, a.GetReason())
		e.Hint = "set a later deadline, or remove it to run without a promise"
		if a.NearestS != nil {
			e.Hint = fmt.Sprintf("use deadline: %s, or remove it to run without a promise", nearest(a))
		}
	case a.GetDecision() == admission.Queued.String() && !queue:
		e.Message = fmt.Sprintf("job %s refused: it would have to wait: %s", name, a.GetReason())
		e.Hint = "use --queue to let it wait while its deadline is feasible, or set a later deadline or none"
	default:
		return nil
	}
	return e
}

// nearest returns the shortest feasible deadline, in whole seconds.
func nearest(a *headroomv1.Admission) time.Duration {
	return time.Duration(math.Ceil(a.GetNearestS())) * time.Second
}

// prepare checks a job file without changing anything, or looking at a file that it names.
func (s *service) prepare(m *headroomv1.SubmitRequest, who access.Caller) (*record, error) {
	if m.GetChange().GetRequestId() == "" || !filepath.IsAbs(m.GetFile()) {
		return nil, cli.Usage("a submission needs a request id and the absolute path of the job file")
	}
	file, err := jobfile.Parse(m.GetFile(), m.GetSpec(), s.cfg.names())
	if err != nil {
		return nil, err
	}
	if file.Submitter != "" {
		return nil, file.ErrorAt("submitter", "a job file must not name its submitter").WithHint("remove it; the scheduler takes the submitter from your certificate")
	}
	file.Submitter = who.Name
	if file.Spark != nil && s.engines.spark == nil {
		return nil, noSpark(file)
	}
	if file.Dispatch == jobfile.Pigeon && s.engines.masters == nil {
		return nil, noMasters(file)
	}
	r := &record{
		file: file, dir: s.folders.of(file, jobID(file.Name, m.GetChange())),
		submitted: time.UnixMicro(time.Now().UnixMicro()),
	}
	r.deadline = s.cfg.deadlineFor(file)
	if r.programs, err = file.Programs(s.restorer.programs); err != nil {
		return nil, err
	}
	r.floor = file.Floor(s.profiles)
	r.spec, err = file.Specification(r.floor)
	return r, err
}

// find looks at the files that the job names, once the submitter's quota allows the job.
func (s *service) find(ctx context.Context, r *record) error {
	if err := r.find(ctx, s.restorer.find); err != nil {
		return err
	}
	return s.checkOutput(ctx, r)
}

// checkPlace refuses outputs inside a folder of one of our programs, also by a link.
func (s *service) checkPlace(f *jobfile.File) error {
	if f.Spark != nil {
		return nil // it has no output folder of its own
	}
	for _, own := range append(ownFolders(), s.cfg.Dir) { // links are followed: it may hang
		if within(f.Output, own) || within(resolved(f.Output), resolved(own)) {
			return f.ErrorAt("output", "output %s is inside %s, which belongs to Headroom", f.Output, own).
				WithHint("use a folder for outputs of jobs, such as one below /srv/headroom or /var/lib/headroom-jobs")
		}
	}
	return nil
}

// ownFolders are the folders of all packaged programs.
func ownFolders() []string {
	return []string{
		"/etc/headroom", "/var/lib/headroom", "/var/lib/headroom-driver", "/run/headroom-task", "/run/headroom-scheduler", "/run/headroom-powerd",
	}
}

// within reports whether a path is a folder or inside it.
func within(path, folder string) bool {
	rest, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rest)
}

// resolved returns a path without links, as far as it exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}

// find finds the inputs of a job. A job without any is not refused where nobody can look at its programs: its tasks say
// what is wrong with them.
func (r *record) find(ctx context.Context, find finder) error {
	found, err := find(ctx, r.file)
	if r.file.Map.Input == "" && errors.Is(err, lookup.ErrNoUser) {
		found, err = r.file.Nameless()
	}
	r.inputs = jobdir.Inputs{Names: found.Inputs, Sizes: found.Sizes}
	if len(r.inputs.Sizes) != len(r.inputs.Names) { // unknown
		r.inputs.Sizes = make([]int64, len(r.inputs.Names))
	}
	return err
}

// finder looks at the files of a job, as lookup.Finder does.
type finder func(ctx context.Context, file *jobfile.File) (jobfile.Found, error)

// checkOutput checks that the job's folder can be created, and leaves no trace.
func (s *service) checkOutput(ctx context.Context, r *record) error {
	if r.file.Spark != nil {
		return nil // it is in the scheduler's own folder
	}
	err := s.operations.do(ctx, r.owner(), func() error {
		if err := s.checkPlace(r.file); err != nil {
			return err
		}
		d, err := jobdir.Make(r.dir)
		if err == nil {
			err = errors.Join(d.TakeBack(), d.Close())
		}
		return err
	})
	if err != nil {
		return outputError(r.file, err)
	}
	return nil
}

func outputError(f *jobfile.File, err error) *cli.Error {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e
	}
	if f.Spark != nil {
		return &cli.Error{Code: "config", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("cannot create the job's folder: %v", err), Hint: "the scheduler must be able to write to dir of scheduler.yaml"}
	}
	return f.ErrorAt("output", "cannot create the output folder: %v", err).
		WithHint("the scheduler and the workers must be able to write to the output folder")
}

// noSpark refuses a job of an engine that is not configured.
func noSpark(file *jobfile.File) error {
	e := file.ErrorAt("spark", "Spark is not configured on this scheduler")
	e.Err = errNoEngine
	return e.WithHint("configure the section spark of scheduler.yaml, or give the job map and output")
}

// jobID returns the id of the job of a request: the same for a repeated request, different for another one and for
// another caller's.
func jobID(name string, c *headroomv1.Change) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", c.GetOnBehalfOf(), c.GetRequestId()))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// again answers a request that was carried out before.
func again(j *headroomv1.Job, r *record) (*headroomv1.SubmitResponse, error) {
	if !bytes.Equal(jobfile.WithoutReason(j.GetSpec()), jobfile.WithoutReason(r.spec)) {
		return nil, &cli.Error{
			Code: "conflict", Exit: cli.ExitConflict, Message: fmt.Sprintf("this request id was already used for a different job, %s", j.GetId()),
			Hint: "use a new request id, or omit --request-id",
		}
	}
	return &headroomv1.SubmitResponse{Job: j}, nil
}

// accept creates the job's folder, commits the job and sends it to the loop. When the job is certainly not committed,
// the folder is removed.
func (s *service) accept(ctx context.Context, job *headroomv1.Job, r *record, change *headroomv1.Change) (revision uint64, err error) {
	var takeBack func() error
	err = s.operations.do(ctx, r.owner(), func() (err error) {
		takeBack, err = s.folders.takeIn(r)
		return err
	})
	if err != nil {
		s.takeBack(ctx, job)
		return 0, outputError(r.file, err)
	}
	if r.file.Spark == nil {
		job.Inputs = &headroomv1.JobInputs{Tasks: count(len(r.inputs.Names))}
		job.Progress.Tasks = job.GetInputs().GetTasks()
		if r.file.Map.Tasks == 0 {
			job.Inputs.Digest = r.inputs.Digest()
		}
	}
	resp, err := leader.Ask(ctx, s.leader, "submit", headroomv1connect.JobServiceClient.CommitJob, &headroomv1.CommitJobRequest{Job: job, Change: change})
	if err != nil {
		if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit != cli.ExitUnknown {
			_ = s.operations.do(context.WithoutCancel(ctx), r.owner(), takeBack) // at most an empty folder remains
			s.takeBack(ctx, job)
		}
		return 0, err
	}
	s.logger.Info("job accepted", slog.String("job", job.GetId()), slog.String("class", job.GetClass()), slog.Int("tasks", len(r.inputs.Names)), slog.String("actor", change.GetActor()))
	// The job is committed, so it must run even if this request fails now.
	return resp.GetRevision(), s.inbox.postAnyway(ctx, addEvent{plan: r.plan(job.GetId()), record: r})
}

// takeBack releases the slots that were promised to a job which is certainly not committed.
func (s *service) takeBack(ctx context.Context, job *headroomv1.Job) {
	if job.GetAdmission() != nil {
		_ = s.inbox.postAnyway(ctx, withdrawEvent{job.GetId()}) // otherwise they are released after a while
	}
}

// look returns a view of the jobs, or an error before they are known.
func (s *service) look(ctx context.Context, id string) (view, error) {
	reply := make(chan view, 1)
	v, err := ask(ctx, s.inbox, viewEvent{id: id, reply: reply}, reply)
	if err == nil && !v.ready {
		err = errNotReady()
	}
	return v, err
}

func liveJobs(v view) int {
	live := len(v.waiting)
	for _, j := range v.jobs {
		if !j.State.Ended() {
			live++
		}
	}
	return live
}

// List returns all jobs, or one, and the workers.
func (s *service) List(ctx context.Context, req *connect.Request[headroomv1.ListRequest]) (*connect.Response[headroomv1.ListResponse], error) {
	v, err := s.look(ctx, req.Msg.GetId())
	if err != nil {
		return nil, refusal(err, "list")
	}
	resp := &headroomv1.ListResponse{Jobs: v.waiting, Dispatch: v.dispatch, Groups: s.groups(ctx)}
	for _, j := range v.jobs {
		resp.Jobs = append(resp.Jobs, jobToProto(j))
		if d := detailToProto(j); d != nil {
			resp.Runs = append(resp.Runs, d)
		}
	}
	resp.Jobs = s.engines.withOwn(resp.GetJobs(), req.Msg.GetId())
	resp.Runs = append(resp.Runs, s.engines.ownDetails(req.Msg.GetId())...)
	hideOthers(access.CallerOf(ctx), resp.GetJobs())
	if req.Msg.GetId() != "" {
		s.explain(ctx, resp.GetJobs())
	}
	resp.Workers = v.workers
	return connect.NewResponse(resp), nil
}

// explainWait bounds the request for decisions about a job: without an answer the rest is shown.
const explainWait = time.Second

// explain adds the coordinators' decisions about unfinished jobs, if they answer in time.
func (s *service) explain(ctx context.Context, jobs []*headroomv1.Job) {
	ctx, cancel := context.WithTimeout(ctx, explainWait)
	defer cancel()
	for i, j := range jobs {
		if j.GetState() != headroomv1.JobState_JOB_STATE_RUNNING {
			continue
		}
		r, err := leader.Ask(ctx, s.leader, "explain", headroomv1connect.JobServiceClient.ExplainJob, &headroomv1.ExplainJobRequest{Id: j.GetId()})
		if err != nil {
			s.logger.Debug("no decision about a job available", slog.String("job", j.GetId()), slog.Any("error", err))
			continue
		}
		jobs[i] = proto.CloneOf(j)
		jobs[i].Outlook = r.GetJob().GetOutlook()
	}
}

// hideOthers removes the job files of other users from the listing of a submitter, because commands may contain private
// data.
func hideOthers(who access.Caller, jobs []*headroomv1.Job) {
	if who.Role != secure.Submitter {
		return
	}
	for i, j := range jobs {
		if j.GetSubmitter() != who.Name {
			jobs[i] = proto.CloneOf(j)
			jobs[i].Spec = nil
		}
	}
}

// Cancel commits the cancellation of a job and then stops it. Cancelling a cancelled job is no error.
func (s *service) Cancel(ctx context.Context, req *connect.Request[headroomv1.CancelRequest]) (*connect.Response[headroomv1.CancelResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, submitWait)
	defer cancel()
	access.CallerOf(ctx).Sign(req.Msg.GetChange())
	revision, err := s.cancel(ctx, req.Msg)
	if err != nil {
		return nil, refusal(err, "cancel")
	}
	return connect.NewResponse(&headroomv1.CancelResponse{Revision: revision}), nil
}

func (s *service) cancel(ctx context.Context, m *headroomv1.CancelRequest) (uint64, error) {
	if err := s.engines.notOurs(m.GetId()); err != nil {
		return 0, err
	}
	v, err := s.look(ctx, m.GetId())
	if err != nil {
		return 0, err
	}
	progress, went, over, err := cancellable(v, m.GetId())
	if err == nil {
		who := access.CallerOf(ctx)
		if err = access.OwnJob(who, m.GetId(), submitterIn(v, m.GetId())); err != nil {
			s.guard.Audit(who, "cancel", "cancel job "+m.GetId())
		}
	}
	if err != nil || over {
		return 0, err
	}
	outcome := "cancelled by " + m.GetChange().GetActor()
	if reason := m.GetChange().GetReason(); reason != "" {
		outcome += ": " + reason
	}
	revision, err := s.commits.commitFinish(ctx, &headroomv1.FinishJobRequest{
		Id: m.GetId(), State: headroomv1.JobState_JOB_STATE_CANCELLED, Outcome: outcome, Tasks: progress.GetTasks(),
		Done: progress.GetDone(), RuntimeS: progress.GetRuntimeS(), End: went, Change: m.GetChange(),
	})
	if err != nil {
		return 0, err
	}
	return revision, s.inbox.postAnyway(ctx, cancelEvent{m.GetId(), outcome})
}

// cancellable finds the job to cancel, and how it went so far; over is whether it was cancelled before.
func cancellable(v view, id string) (progress *headroomv1.JobProgress, went *headroomv1.JobEnd, over bool, err error) {
	now := time.Now()
	for _, j := range v.waiting {
		if id != "" && j.GetId() == id {
			return j.GetProgress(), &headroomv1.JobEnd{EndedUs: now.UnixMicro()}, false, nil
		}
	}
	if id == "" || len(v.jobs) != 1 {
		return nil, nil, false, NoJob(id)
	}
	j := v.jobs[0]
	if j.State == dispatch.Done || j.State == dispatch.Failed {
		return nil, nil, false, &cli.Error{
			Code: "conflict", Exit: cli.ExitConflict,
			Message: fmt.Sprintf("job %s is already %s", id, j.State), Hint: "see scheduler job show " + id,
		}
	}
	return progressToProto(j), j.wentUntil(now), j.State == dispatch.Cancelled, nil
}

// submitterIn returns the submitter of a job of the view; empty if unknown.
func submitterIn(v view, id string) string {
	for _, j := range v.waiting {
		if j.GetId() == id {
			return jobfile.SubmitterOf(j.GetSpec())
		}
	}
	for _, j := range v.jobs {
		if j.ID == id {
			return jobfile.SubmitterOf(j.spec)
		}
	}
	return ""
}

// NoJob returns the error for an unknown id.
func NoJob(id string) *cli.Error {
	return &cli.Error{
		Code: "unknown-job", Exit: cli.ExitUsage,
		Message: fmt.Sprintf("no such job: %q", id), Hint: "list jobs with scheduler job list",
	}
}

// checkQuota refuses a job of a submitter with too many waiting jobs. others are other submissions of the same user in
// progress.
func (s *service) checkQuota(who access.Caller, v view, others int) error {
	if !who.Proven() || s.cfg.MaxWaiting == 0 {
		return nil
	}
	waiting := others
	for _, j := range v.jobs {
		if j.State == dispatch.Queued && jobfile.SubmitterOf(j.spec) == who.Name {
			waiting++
		}
	}
	for _, j := range v.waiting {
		if jobfile.SubmitterOf(j.GetSpec()) == who.Name {
			waiting++
		}
	}
	if waiting < s.cfg.MaxWaiting {
		return nil
	}
	return &cli.Error{
		Code: "quota", Exit: cli.ExitRefused,
		Message: fmt.Sprintf("%s has %d waiting jobs; max_waiting is %d", who.Name, waiting, s.cfg.MaxWaiting),
		Hint:    "wait until some have started, or cancel some; max_waiting is set in scheduler.yaml",
	}
}
