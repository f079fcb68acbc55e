package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/wire"
	"headroom/jobs/dispatch"
	"headroom/scheduler/distributor"
	"headroom/scheduler/fanout"
	"headroom/scheduler/jobfile"
)

// openMasters opens the engine of jobs that masters dispatch, if groups are configured.
func (e *engines) openMasters(s *Server, keeper *secure.Keeper) error {
	if !s.cfg.Dispatch.On() {
		return nil
	}
	c := s.cfg.Dispatch.Distributor()
	c.Name, c.Incarnation, c.Logger = s.id.ID, uint64(s.id.Run), s.logger
	c.Epoch = func() uint64 { return s.lease.Epoch() }
	if keeper != nil {
		c.Name, c.Peers = keeper.Identity().Name, rpc.SecurePeers(keeper, secure.Master, secure.Scheduler) // masters of earlier versions are schedulers
		c.Peers.Deny(s.guard.Denials)
	}
	d, err := distributor.New(c)
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	e.masters = fanout.New(d, func(ctx context.Context, happened fanout.Event) {
		_ = e.inbox.post(ctx, fannedEvent{happened}) // fails only when the scheduler ends: the next one resumes the job
	}, s.logger)
	return nil
}

// fannedEvent is an event of a job that masters dispatch.
type fannedEvent struct{ fanout.Event }

func (e fannedEvent) apply(l *loop, now time.Time) {
	if e.Ended {
		l.core.RunEnded(now, e.Job, e.Number, e.OK, e.Outcome)
		return
	}
	l.core.Progress(now, e.Job, e.Number, e.Progress)
}

// fanned reports whether masters dispatch the tasks of a job.
func (l *loop) fanned(id string) bool {
	r := l.records[id]
	return r != nil && r.file != nil && r.file.Dispatch == jobfile.Pigeon
}

// fan starts a run on the engine, or resumes one of an earlier scheduler process.
func (l *loop) fan(id string, run dispatch.RunRecord) {
	r := l.records[id]
	file, programs, inputs, dir, at, dropped := r.file, r.programs, r.inputs.Names, r.dir, r.at, r.dropped
	dir.Run = run.Number
	l.engines.masters.Start(fanout.Run{
		Plan: r.plan(id), Number: run.Number, High: r.short(l.cfg), Theta: run.Theta,
		Draws: func() func() uint64 { return draws(run.Seed) }, First: dispatch.FirstAttempt(l.id.Run, run.Number),
		Recall: func(ctx context.Context) (dispatch.Past, error) {
			for {
				past := &dispatch.Past{Dropped: dropped} // an attempt that hangs may still write into its own
				err := l.operations.do(ctx, r.owner(), func() error {
					past.Done, past.ReduceDone = at.Finished(run.Number, len(inputs))
					return nil
				})
				if err == nil {
					return *past, nil
				}
				if !pause.For(ctx, folderWait) {
					return dispatch.Past{}, err
				}
			}
		},
		Map: func(index int, attempt uint32) *headroomv1.Task {
			ref := dispatch.Ref{Job: id, Phase: dispatch.PhaseMap, Index: index, Attempt: attempt}
			return file.MapTask(programs, ref, dir.Task(ref.Phase, index), inputs[index])
		},
		ReduceOf: func(maps []int, attempt uint32) *headroomv1.Task {
			ref := dispatch.Ref{Job: id, Phase: dispatch.PhaseReduce, Attempt: attempt}
			outputs := each.Of(maps, func(i int) string { return dir.Task(dispatch.PhaseMap, i) })
			return file.ReduceTask(programs, ref, dir.Task(ref.Phase, 0), outputs)
		},
		Drop: func(ctx context.Context, indexes []int, why string) error {
			l.logger.Warn("tasks dropped", slog.String("job", id), slog.Int("tasks", len(indexes)), slog.Int("first", indexes[0]), slog.String("why", why))
			if err := l.commits.recordRun(ctx, runCommit{job: id, run: &headroomv1.JobRun{Number: run.Number}, drop: wire.TaskRanges(indexes)}); err != nil {
				return err
			}
			if err := l.operations.do(ctx, r.owner(), func() error { return at.Account(run.Number, r.account(indexes, why)...) }); err != nil {
				l.logger.Warn("account of dropped tasks not written", slog.String("job", id), slog.Any("error", err))
			}
			return ctx.Err()
		},
	})
}

// short reports whether the job's tasks have high priority.
func (r *record) short(cfg Config) bool {
	return r.file.IsShort(cfg.Dispatch.Cutoff.Std(), cfg.Classes[0].Name)
}

// lengthOf returns short or long for a job that masters dispatch, and empty for others.
func (r *record) lengthOf(cfg Config) string {
	switch {
	case r.file == nil || r.file.Dispatch != jobfile.Pigeon:
		return ""
	case r.short(cfg):
		return jobfile.Short
	}
	return jobfile.Long
}

// noMasters refuses a job if no masters are configured.
func noMasters(file *jobfile.File) error {
	e := file.ErrorAt("dispatch", "this scheduler has no masters configured")
	e.Err = errNoEngine
	return e.WithHint("configure groups and masters in the section dispatch of scheduler.yaml, or replace dispatch by slots")
}

// checkTasks refuses a job if too many tasks would be unfinished: the queue is bounded.
func (s *service) checkTasks(r *record, v view) error {
	if r.file.Dispatch != jobfile.Pigeon {
		return nil
	}
	waiting := 0
	for _, j := range v.jobs {
		if j.Engine == jobfile.Pigeon && !j.State.Ended() {
			waiting += max(0, j.Tasks-j.Done-j.Dropped)
		}
	}
	if waiting+len(r.inputs.Names) <= s.cfg.Dispatch.MaxTasks {
		return nil
	}
	return &cli.Error{
		Code: "full", Exit: cli.ExitRefused,
		Message: fmt.Sprintf("%d tasks are outstanding at masters; %d more would exceed dispatch.max_tasks of %d", waiting, len(r.inputs.Names), s.cfg.Dispatch.MaxTasks),
		Hint:    "submit again when some have ended; see scheduler job list and scheduler job list --groups",
	}
}

// statusWait bounds the request for the status of the groups: without an answer the rest is shown.
const statusWait = time.Second

// groups returns the status of the groups, none if there are none.
func (s *Server) groups(ctx context.Context) []*headroomv1.DispatchGroup {
	if s.engines.masters == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	all, err := s.engines.masters.Status(ctx)
	if err != nil {
		s.logger.Debug("status of groups unknown", slog.Any("error", err))
	}
	return all
}
