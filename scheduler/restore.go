package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/pause"
	"headroom/jobs/admission"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/leader"
	"headroom/scheduler/profiles"
	"headroom/scheduler/yarn"
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
	leader     *leader.Client
	inbox      inbox
	engines    *engines
	folders    jobFolders
	operations *operations
	logger     *slog.Logger
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
	for _, e := range t.eventsOf(ctx, jobs, first, known) {
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

// eventsOf returns the events for jobs of the log, in their order. The folders of jobs are read at the same time, so that
// one that does not answer delays its own job only.
func (t *restorer) eventsOf(ctx context.Context, jobs []*headroomv1.Job, first bool, known map[string]dispatch.State) []event {
	events := make([]event, len(jobs))
	var reading sync.WaitGroup
	for i, j := range jobs {
		reading.Go(func() { events[i] = t.comeBack(ctx, j, first, known) })
	}
	reading.Wait()
	return slices.DeleteFunc(events, func(e event) bool { return e == nil })
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
	case t.engines.yarn != nil && j.GetEngine() == yarn.Name:
		return nil // its engine keeps it
	case here && (state.Ended() || !over.Ended()):
		return nil // the same state here and there, or its end is being committed
	case over.Ended() && (first || here):
		return t.finished(j, over)
	case over.Ended():
		return nil
	}
	r, past, err := t.recall(ctx, j)
	if err != nil {
		j.Outcome = "not restored yet: " + plain(err)
		return waitEvent{j}
	}
	return addEvent{plan: r.plan(j.GetId()), past: past, record: r}
}

// finished returns the event for an ended job. Nothing of its files is needed.
func (t *restorer) finished(j *headroomv1.Job, state dispatch.State) endedEvent {
	e := endedEvent{
		plan:   dispatch.Plan{ID: j.GetId(), Name: j.GetName(), Class: j.GetClass(), Submitted: submittedAt(j), Tasks: int(j.GetProgress().GetTasks())},
		record: &record{admission: j.GetAdmission(), scaling: j.GetScaling(), spec: j.GetSpec(), deadline: deadlineOf(j), end: j.GetEnd(), floor: profiles.Bound{Fraction: j.GetFloor()}}, state: state,
		outcome: j.GetOutcome(), done: int(j.GetProgress().GetDone()), dropped: int(j.GetProgress().GetDropped()),
		runtime: time.Duration(j.GetProgress().GetRuntimeS() * float64(time.Second)), taught: taught(j, state),
	}
	r, err := t.record(j)
	if err != nil {
		return e
	}
	if p, ok := pastOf(r.file, state, e.plan.Tasks, e.done, e.runtime, j.GetEnd()); ok {
		e.past = &p
	}
	if r.file.Spark != nil && r.run.Number > 0 && !r.run.Over && state == dispatch.Cancelled {
		e.record, e.plan.Engine = r, r.file.Engine() // its driver may still run
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

// record creates a job's record from the log. Its job file says which engine it belongs to, as it did when the job was
// submitted.
func (t *restorer) record(j *headroomv1.Job) (*record, error) {
	file, err := jobfile.Parse("/"+j.GetId()+".yaml", j.GetSpec(), nil)
	if err != nil {
		return nil, err
	}
	r := &record{file: file, spec: j.GetSpec(), dir: t.folders.of(file, j.GetId()), submitted: submittedAt(j), deadline: deadlineOf(j), admission: j.GetAdmission(), scaling: j.GetScaling()}
	r.floor.Fraction = cmp.Or(j.GetFloor(), file.Fraction()) // as when the job was accepted, whatever its profile has now
	r.runFromProto(j.GetRun())
	return r, nil
}

// recall restores a job that has not ended, from the log and from its folder.
func (t *restorer) recall(ctx context.Context, j *headroomv1.Job) (*record, dispatch.Past, error) {
	r, err := t.record(j)
	if served := t.engines.serve(r, j.GetEngine()); served != nil {
		err = served
	}
	if err == nil {
		r.programs, err = r.file.Programs(t.programs)
	}
	if err != nil {
		return nil, dispatch.Past{}, err
	}
	var past dispatch.Past
	if r.file.Spark == nil {
		err = t.operations.do(ctx, r.owner(), func() (err error) {
			past, err = t.folders.resume(r, j.GetInputs())
			return err
		})
	}
	if err != nil {
		return nil, dispatch.Past{}, err // the operation may still be in progress
	}
	past.Run, past.Dropped = r.run, r.dropped
	if r.started != nil && !r.run.Over {
		past.Started = *r.started
	}
	return r, past, nil
}

// deadlineOf returns a committed job's deadline, 0 for none.
func deadlineOf(j *headroomv1.Job) time.Duration {
	return time.Duration(j.GetDeadlineS() * float64(time.Second))
}

func (r *record) plan(id string) dispatch.Plan {
	p := dispatch.Plan{
		ID: id, Name: r.file.Name, Class: r.file.Class, Slots: r.file.Slots, MinTasks: r.floor.Fraction,
		MaxAttempts: r.file.MaxAttempts, Tasks: len(r.inputs.Names), Reduce: r.file.Reduce != nil, Submitted: r.submitted, Engine: r.file.Engine(),
	}
	_, p.ErrorBound = r.file.ErrorBound()
	if r.deadline > 0 {
		p.Deadline = r.submitted.Add(r.deadline)
	}
	if p.Engine == "" {
		p.Sizes = r.inputs.Sizes
	}
	return p
}
