package scheduler

import (
	"context"
	"log/slog"
	"maps"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lease"
	"headroom/scheduler/profiles"
)

// loop owns the core and carries out what it decides: gather (events), decide
// (Core.Step), apply. Only its goroutine touches it.
type loop struct {
	*Server
	core    *Core
	records map[string]*record
	// waiting are accepted jobs that cannot be restored yet, with the cause.
	waiting  map[string]*headroomv1.Job
	sessions map[string]*session
	// highest is the newest directive carried out.
	highest lease.Stamp
	// ready says that the jobs of the coordinators' log have been read.
	ready bool
}

// record is what the core does not need of a job.
type record struct {
	file *JobFile
	spec []byte
	// floor is the least fraction of map tasks that counts as a result.
	floor     profiles.Bound
	dir       folder
	inputs    []string
	programs  programs
	started   *time.Time
	submitted time.Time
}

func newLoop(s *Server) *loop {
	return &loop{
		Server:   s,
		core:     NewCore(s.cfg.Classes, s.id.Run),
		records:  make(map[string]*record),
		waiting:  make(map[string]*headroomv1.Job),
		sessions: make(map[string]*session),
	}
}

// run handles events until ctx ends.
func (l *loop) run(ctx context.Context) error {
	tick := time.NewTicker(stepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-l.events:
			e.apply(l, time.Now())
		case <-tick.C:
		}
		l.step(ctx)
	}
}

// step carries out decisions until there is nothing left to do.
func (l *loop) step(ctx context.Context) {
	for {
		now := time.Now()
		actions := l.core.Step(now)
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			l.carryOut(ctx, now, a)
		}
	}
}

func (l *loop) carryOut(ctx context.Context, now time.Time, a Action) {
	switch a := a.(type) {
	case StartJob:
		l.startJob(a)
	case StartTask:
		l.send(a.Node, &headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Task{Task: l.task(a.Ref)}})
	case Kill:
		l.send(a.Node, &headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Kill{Kill: refToProto(a.Ref)}})
	case DropTask:
		l.dropTask(now, a)
	case LoseWorker:
		if s := l.sessions[a.Node]; s != nil {
			l.drop(s)
		}
		l.logger.Warn("worker lost", slog.String("node", a.Node), slog.Int("tasks", a.Tasks))
	case EndJob:
		l.endJob(ctx, a)
	}
}

// startJob notes when the job started, so that its runtime survives a restart.
func (l *loop) startJob(a StartJob) {
	r := l.records[a.Job]
	at := a.At.Round(0)
	r.started = &at
	if err := r.dir.writeManifest(r.manifest()); err != nil {
		l.logger.Warn("start of job not recorded", slog.String("job", a.Job), slog.Any("error", err))
	}
	l.logger.Info("job started", slog.String("job", a.Job), slog.String("class", r.file.Class), slog.Int("tasks", len(r.inputs)))
}

func (r *record) manifest() manifest {
	return manifest{ID: r.dir.id, Inputs: r.inputs, StartedAt: r.started}
}

// dropTask makes a drop durable. A drop that cannot be recorded must not count:
// a rerun could take the task up again.
func (l *loop) dropTask(now time.Time, a DropTask) {
	r := l.records[a.Job]
	l.logger.Warn("task dropped", slog.String("job", a.Job), slog.Int("task", a.Index), slog.String("why", a.Why))
	if err := r.dir.recordDrop(droppedTask{Index: a.Index, Input: r.inputs[a.Index], Reason: a.Why}); err != nil {
		l.core.Fail(now, a.Job, "dropped task could not be recorded: "+err.Error())
	}
}

func (l *loop) endJob(ctx context.Context, a EndJob) {
	r := l.records[a.Job]
	if a.State == Done && r.file.Reduce != nil {
		if err := r.dir.publish(); err != nil {
			l.logger.Warn("result link not made", slog.String("job", a.Job), slog.Any("error", err))
		}
	}
	l.logger.Info("job ended", slog.String("job", a.Job), slog.String("state", a.State.String()), slog.String("outcome", a.Outcome), slog.Float64("runtime_s", a.Runtime.Seconds()))
	maps.DeleteFunc(l.records, func(id string, _ *record) bool { return !l.core.Knows(id) })
	if a.State == Cancelled {
		return // a cancellation is committed before it is carried out
	}
	select {
	case l.ended <- a:
	case <-ctx.Done():
	}
}

// send gives a message to a worker's stream. A worker that does not read is cut
// off: its tasks are settled when it comes back or falls silent.
func (l *loop) send(node string, m *headroomv1.WorkMessage) {
	s := l.sessions[node]
	if s == nil {
		return
	}
	select {
	case s.out <- m:
	default:
		l.logger.Warn("worker does not read its stream", slog.String("node", node))
		l.drop(s)
	}
}

// drop ends a worker's stream from this side.
func (l *loop) drop(s *session) {
	s.end()
	delete(l.sessions, s.node)
	l.core.Broken(s.node)
}

// task is the message that lets a worker run an attempt.
func (l *loop) task(ref Ref) *headroomv1.Task {
	r := l.records[ref.Job]
	output := r.dir.task(ref.Phase, ref.Index)
	t := &headroomv1.Task{Ref: refToProto(ref), Output: output, Dir: r.file.Folder, Env: environment(ref)}
	if ref.Phase == PhaseReduce {
		t.Argv = append(fill(r.programs.reducer, r.file.Reduce.Command, words(t)), l.outputs(ref.Job, r)...)
		return t
	}
	t.Argv = fill(r.programs.mapper, r.file.Map.Command, append(words(t), "{input}", r.inputs[ref.Index]))
	return t
}

// outputs are the names of the map outputs that are part of the result.
func (l *loop) outputs(id string, r *record) []string {
	var names []string
	for _, i := range l.core.Outputs(id) {
		names = append(names, r.dir.task(PhaseMap, i))
	}
	return names
}
