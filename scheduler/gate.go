package scheduler

import (
	"context"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
)

// What is done for a job is done in order, and nothing of it before what was to be recorded is recorded: each job has a
// queue of steps. A step that waits, for the coordinators or for the job's folder, holds up the later steps of its job
// and of no other.

// step does something for a job; waits is whether a stepDone follows.
type step struct {
	do func(now time.Time) (waits bool)
	// undone is called in place of do when the job must not start tasks any more; nil for a step that is done anyway.
	undone func(now time.Time)
}

// then does a step after the earlier ones of the job.
func (l *loop) then(now time.Time, job string, s step) {
	if steps, waiting := l.steps[job]; waiting {
		l.steps[job] = append(steps, s)
		return
	}
	if s.do(now) {
		l.steps[job] = nil
	}
}

// stepDone reports that the step of a job that waited is over.
type stepDone struct {
	job string
	// told is what follows from it; nil for nothing.
	told func(l *loop, now time.Time)
}

func (e stepDone) apply(l *loop, now time.Time) {
	if e.told != nil {
		e.told(l, now)
	}
	steps := l.steps[e.job]
	for i, s := range steps {
		if s.do(now) {
			l.steps[e.job] = steps[i+1:]
			return
		}
	}
	delete(l.steps, e.job)
}

// startNothing lets no task of a job start that waits for its turn.
func (l *loop) startNothing(now time.Time, job string) {
	steps, waiting := l.steps[job]
	if !waiting {
		return
	}
	kept := steps[:0]
	for _, s := range steps {
		if s.undone != nil {
			s.undone(now)
			continue
		}
		kept = append(kept, s)
	}
	l.steps[job] = kept
}

// startTask lets a worker run an attempt, unless its stream has ended meanwhile: then the core has noticed that.
func (l *loop) startTask(now time.Time, a dispatch.StartTask) {
	s := l.sessions[a.Node]
	l.then(now, a.Ref.Job, step{
		do: func(time.Time) bool {
			if s != nil && l.sessions[a.Node] == s {
				l.send(a.Node, &headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Task{Task: l.task(a.Node, a.Ref)}})
			}
			return false
		},
		undone: func(now time.Time) { l.core.Stopped(now, a.Node, a.Ref) },
	})
}

// runCommit is a run to be recorded; drop are the tasks that it gives up, none to record the run itself.
type runCommit struct {
	job  string
	run  *headroomv1.JobRun
	drop []*headroomv1.TaskRange
	// recorded is called with the refusal, nil for none.
	recorded func(l *loop, now time.Time, refused error)
}

// commitRun records a run in the coordinators' log, as a step. A job whose run is refused ends: what the log does not
// have must not happen.
func (l *loop) commitRun(now time.Time, c runCommit) {
	c.recorded = func(l *loop, now time.Time, refused error) {
		if refused == nil {
			return
		}
		l.logger.Warn("run of job not recorded", slog.String("job", c.job), slog.Any("error", refused))
		l.startNothing(now, c.job)
		l.core.Fail(now, c.job, "not recorded by the coordinators: "+plain(refused))
	}
	l.then(now, c.job, step{do: func(time.Time) bool {
		l.commits.runs <- c // each job has at most one here
		return true
	}})
}

// commitRuns records runs until ctx ends.
func (c *committer) commitRuns(ctx context.Context) error {
	return takeAll(ctx, c.runs, func(ctx context.Context, r runCommit) {
		refused := c.recordRun(ctx, r)
		if ctx.Err() == nil {
			_ = c.inbox.post(ctx, stepDone{r.job, func(l *loop, now time.Time) { r.recorded(l, now, refused) }}) // it fails only when ctx ends
		}
	})
}
