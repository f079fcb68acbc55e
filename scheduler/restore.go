package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/pause"
	"headroom/jobs/admission"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/leader"
	"headroom/scheduler/profiles"
)

const (
	// resyncEvery is how often the jobs are compared with the coordinators' log: that finds a commit whose answer was
	// lost.
	resyncEvery = 10 * time.Second
	// listWait bounds one attempt to read the job table.
	listWait = 10 * time.Second
	// firstRetry is the wait between attempts while the jobs are unknown.
	firstRetry = 500 * time.Millisecond
)

// restorer keeps the loop's jobs consistent with the coordinators' log.
type restorer struct {
	leader  *leader.Client
	inbox   inbox
	engines *engines
	folders jobFolders
	logger  *slog.Logger
	// programs is the folder where programs of the same build are found.
	programs string
	// find looks at the files of jobs.
	find finder
	// wanted wakes it when the coordinators may have new jobs.
	wanted chan struct{}
}

// run restores the jobs of the coordinators' log, at the start and whenever the log may contain an unknown one.
func (t *restorer) run(ctx context.Context) error {
	first, failed := true, false
	for {
		jobs, err := t.listJobs(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			t.compare(ctx, jobs, first)
			first = false
		} else if !failed {
			t.logger.Warn("jobs not read from the coordinators", slog.Any("error", err))
		}
		failed = err != nil
		if !t.awaitResync(ctx, first) {
			return nil
		}
	}
}

// awaitResync waits for the next comparison; it returns false when ctx ended.
func (t *restorer) awaitResync(ctx context.Context, first bool) bool {
	if first {
		return pause.For(ctx, firstRetry)
	}
	timer := time.NewTimer(resyncEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.wanted:
	case <-timer.C:
	}
	return true
}

func (t *restorer) listJobs(parent context.Context) (jobs []*headroomv1.Job, err error) {
	ctx, cancel := context.WithTimeout(parent, listWait)
	defer cancel()
	err = t.leader.Call(ctx, "read the jobs", func(ctx context.Context, c headroomv1connect.JobServiceClient) error {
		jobs, err = allJobs(ctx, c)
		return err
	})
	return jobs, err
}

// allJobs reads page by page, because all job files together may not fit into one message.
func allJobs(ctx context.Context, c headroomv1connect.JobServiceClient) (jobs []*headroomv1.Job, err error) {
	for after := ""; ; {
		resp, err := c.ListJobs(ctx, connect.NewRequest(&headroomv1.ListJobsRequest{After: after}))
		if err != nil {
			return nil, err
		}
		page := resp.Msg.GetJobs()
		jobs = append(jobs, page...)
		if !resp.Msg.GetMore() || len(page) == 0 {
			return jobs, nil
		}
		after = page[len(page)-1].GetId()
	}
}

// compare sends every unknown job to the loop. The first time it also sends the ended ones, for listings.
func (t *restorer) compare(ctx context.Context, jobs []*headroomv1.Job, first bool) {
	slices.SortStableFunc(jobs, func(a, b *headroomv1.Job) int { return cmp.Compare(a.GetSubmittedUs(), b.GetSubmittedUs()) })
	known := t.known(ctx)
	if t.engines.yarn != nil {
		t.engines.yarn.Restore(jobs)
	}
	running := false
	for _, j := range jobs {
		e := t.comeBack(ctx, j, first, known)
		if e == nil {
			continue
		}
		if a, ok := e.(addEvent); ok {
			running = running || !a.past.Started.IsZero()
		}
		if t.inbox.post(ctx, e) != nil {
			return
		}
	}
	if t.inbox.post(ctx, readyEvent{hold: running}) == nil && first {
		t.tidyAtStart(ctx, jobs)
	}
}

// tidyAtStart removes the files of jobs that are neither listed here nor going to run.
func (t *restorer) tidyAtStart(ctx context.Context, jobs []*headroomv1.Job) {
	known := t.known(ctx)
	if known == nil {
		return // the scheduler ends
	}
	for _, j := range jobs {
		if state := stateFromProto(j.GetState()); !state.Ended() {
			known[j.GetId()] = state // also a job that cannot be restored yet
		}
	}
	t.folders.removeLeft(time.Now(), func(id string) bool { _, ok := known[id]; return ok })
}

// known returns the states of the jobs in the loop.
func (t *restorer) known(ctx context.Context) map[string]dispatch.State {
	reply := make(chan view, 1)
	v, err := ask(ctx, t.inbox, viewEvent{reply: reply}, reply)
	if err != nil {
		return nil
	}
	states := make(map[string]dispatch.State, len(v.jobs))
	for _, j := range v.jobs {
		states[j.ID] = j.State
	}
	return states
}

// comeBack returns the event for a job of the log, or nil when the loop needs none.
func (t *restorer) comeBack(ctx context.Context, j *headroomv1.Job, first bool, known map[string]dispatch.State) event {
	state, here := known[j.GetId()]
	over := stateFromProto(j.GetState())
	switch {
	case t.engines.isForeign(j):
		return t.engines.foreign(j, here)
	case here && (state.Ended() || !over.Ended()):
		return nil // the same state here and there, or its end is being committed
	case over.Ended() && (first || here):
		return t.finished(ctx, j, over)
	case over.Ended():
		return nil
	}
	r, past, err := t.recall(ctx, j)
	if err != nil {
		j.Outcome = "not restored yet: " + err.Error()
		return waitEvent{j}
	}
	return addEvent{plan: r.plan(j.GetId()), past: past, record: r}
}

// ended returns the event for an ended job.
func ended(j *headroomv1.Job, state dispatch.State) endedEvent {
	p := dispatch.Plan{ID: j.GetId(), Name: j.GetName(), Class: j.GetClass(), Submitted: submittedAt(j), Tasks: int(j.GetProgress().GetTasks())}
	return endedEvent{
		plan: p, record: &record{admission: j.GetAdmission(), scaling: j.GetScaling(), spec: j.GetSpec(), floor: profiles.Bound{Fraction: j.GetFloor()}}, state: state, outcome: j.GetOutcome(), done: int(j.GetProgress().GetDone()),
		dropped: int(j.GetProgress().GetDropped()),
		runtime: time.Duration(j.GetProgress().GetRuntimeS() * float64(time.Second)),
	}
}

// finished returns the event for an ended job of ours.
func (t *restorer) finished(ctx context.Context, j *headroomv1.Job, state dispatch.State) endedEvent {
	e := ended(j, state)
	e.taught = taught(j, state)
	if j.GetEngine() == "" || state != dispatch.Cancelled {
		return e
	}
	if r, _, err := t.recall(ctx, j); err == nil { // its driver may still run
		e.record, e.plan.Engine = r, j.GetEngine()
	}
	return e
}

// taught returns what admission learns from an ended job: that it needed at most all of its slots while it ran. It is
// nil for a job without an admission decision, or without a result.
func taught(j *headroomv1.Job, state dispatch.State) *lesson {
	if j.GetAdmission() == nil || state != dispatch.Done || j.GetProgress().GetRuntimeS() <= 0 {
		return nil
	}
	file, err := jobfile.Parse("/"+j.GetId()+".yaml", j.GetSpec(), nil)
	if err != nil {
		return nil
	}
	most := mostSlots(file, int(j.GetProgress().GetTasks()), j.GetFloor())
	return &lesson{
		admission.Job{ID: j.GetId(), User: file.Submitter, Tasks: most, Deadline: deadlineOf(j)},
		min(admission.TimeMost, time.Duration(j.GetProgress().GetRuntimeS()*float64(most)*float64(time.Second))),
	}
}

// recall creates a job's record from its specification and its folder.
func (t *restorer) recall(ctx context.Context, j *headroomv1.Job) (*record, dispatch.Past, error) {
	file, err := jobfile.Parse("/"+j.GetId()+".yaml", j.GetSpec(), nil)
	if err != nil {
		return nil, dispatch.Past{}, err
	}
	r := &record{file: file, spec: j.GetSpec(), dir: t.folders.of(file, j.GetId()), submitted: submittedAt(j), deadline: deadlineOf(j), admission: j.GetAdmission(), scaling: j.GetScaling()}
	r.floor.Fraction = cmp.Or(j.GetFloor(), file.Fraction()) // as when the job was accepted, whatever its profile has now
	if r.programs, err = file.Programs(t.programs); err != nil {
		return nil, dispatch.Past{}, err
	}
	m, err := r.dir.ReadManifest()
	if err != nil {
		return nil, dispatch.Past{}, err
	}
	if m == nil { // nothing of it is left: it starts again
		return r, dispatch.Past{}, r.begin(ctx, t.find)
	}
	r.inputs, r.sizes, r.started = m.Inputs, m.Sizes, m.StartedAt
	if m.Run != nil {
		r.run, r.dir.Run = *m.Run, m.Run.Number
	}
	past, err := r.dir.Past(*m)
	return r, past, err
}

// deadlineOf returns a committed job's deadline, 0 for none.
func deadlineOf(j *headroomv1.Job) time.Duration {
	return time.Duration(j.GetDeadlineS() * float64(time.Second))
}

// begin finds the inputs and creates the job's folder.
func (r *record) begin(ctx context.Context, find finder) (err error) {
	if err = r.find(ctx, find); err != nil {
		return err
	}
	if _, err = jobdir.MakeAll(r.dir.Path("")); err == nil {
		err = r.keepManifest()
	}
	if err != nil {
		return outputError(r.file, err)
	}
	return nil
}

// keepManifest writes the manifest, unless an earlier attempt of the same request has: then its inputs count.
func (r *record) keepManifest() error {
	m, err := r.dir.ReadManifest()
	if err != nil || m != nil {
		if m != nil {
			r.inputs, r.sizes, r.started = m.Inputs, m.Sizes, m.StartedAt
		}
		return err
	}
	return r.dir.WriteManifest(r.manifest())
}

func (r *record) plan(id string) dispatch.Plan {
	p := dispatch.Plan{
		ID: id, Name: r.file.Name, Class: r.file.Class, Slots: r.file.Slots, MinTasks: r.floor.Fraction,
		MaxAttempts: r.file.MaxAttempts, Tasks: len(r.inputs), Reduce: r.file.Reduce != nil, Submitted: r.submitted, Engine: r.file.Engine(),
	}
	_, p.ErrorBound = r.file.ErrorBound()
	if r.deadline > 0 {
		p.Deadline = r.submitted.Add(r.deadline)
	}
	if p.Engine == "" {
		p.Sizes = r.sizes
	}
	return p
}
