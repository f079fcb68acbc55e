package scheduler

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/each"
	"headroom/internal/wire"
	"headroom/jobs/dispatch"
	"headroom/lease"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/profiles"
	"headroom/scheduler/scaling"
)

// loop owns the core and carries out its decisions: gather (events), decide (Core.Step), apply. Only its goroutine
// accesses it.
type loop struct {
	*Server
	core    *dispatch.Core
	records map[string]*record
	// waiting are accepted jobs that cannot be restored yet, with the cause.
	waiting  map[string]*headroomv1.Job
	sessions map[string]*session
	// highest is the newest directive that was carried out.
	highest lease.Stamp
	// ready is whether the jobs of the coordinators' log have been read.
	ready bool
	// kept is the dispatcher's state as last written; unkept is whether writing failed.
	kept   standing
	unkept bool
	// points are the sources of the classes' operating points, in words; histories are the measurements of the classes'
	// jobs.
	points    []string
	histories []history
	admitter  *admitter
	// prices are the quality prices of the classes; 0 for the arbiter's default.
	prices []time.Duration
	// samples are the samples of past jobs for copies.
	samples *samples
	// meters measure the running jobs, measured is when they last did, and parts are the fractions of full power that
	// nodes may use.
	meters   map[string]*scaling.Meter
	measured time.Time
	parts    map[string]float64
	// steps are, for the jobs of which one waits, those that follow.
	steps map[string][]step
	// probedAt is when the folders of the running jobs were last asked for an answer.
	probedAt time.Time
	// used are the CPU seconds of running attempts by node, as last reported.
	used map[string]map[dispatch.Ref]float64
}

// record is what is known of a job outside the core.
type record struct {
	file *jobfile.File
	spec []byte
	// floor is the minimum fraction of map tasks for a result.
	floor profiles.Bound
	dir   jobdir.Folder
	// at is the job's folder, opened; nil for a Spark application and for an ended job.
	at        *jobdir.Dir
	inputs    jobdir.Inputs
	programs  jobfile.Programs
	started   *time.Time
	submitted time.Time
	// deadline is from the submission; 0 for none.
	deadline time.Duration
	// admission is the decision about the deadline; nil for a job without one.
	admission *headroomv1.Admission
	// scaling is how its speed depends on its slots, by earlier runs; nil while unknown.
	scaling *headroomv1.Scaling
	// wasted is the total that it has wasted, once it has ended, and end the verdict on it, once that is committed.
	wasted time.Duration
	end    *headroomv1.JobEnd
	// run is the latest run as last decided, dropped what an earlier scheduler process has dropped of it.
	run     dispatch.RunRecord
	dropped []int
	// answered is when the folder of the running job last answered; probing is whether it is asked, released whether the
	// job has given its slots back because it did not.
	answered time.Time
	probing  bool
	released bool
	// cpu are the CPU seconds of its tasks by node, as far as this process was told.
	cpu map[string]float64
	// sprint is the sprint of the job by the coordinators; nil while it does not sprint.
	sprint *headroomv1.Sprinting
	// nodes are those on which an engine runs it, as last reported.
	nodes map[string]int
	// fast are the ended sprints of the run: from, to.
	fast [][2]time.Time
}

func newLoop(s *Server) *loop {
	l := &loop{
		Server:   s,
		core:     dispatch.New(s.queue, s.id.Run, draws),
		records:  make(map[string]*record),
		waiting:  make(map[string]*headroomv1.Job),
		sessions: make(map[string]*session),
		kept:     standingOf(s.queue),
		points:   make([]string, len(s.cfg.Classes)),
		prices:   s.cfg.prices(),
		admitter: newAdmitter(s.cfg.Admission.Policy),

		histories: make([]history, len(s.cfg.Classes)),
		meters:    make(map[string]*scaling.Meter),
		parts:     make(map[string]float64),
		steps:     make(map[string][]step),
		used:      make(map[string]map[dispatch.Ref]float64),
	}
	for i := range l.points {
		if l.points[i] = PointGiven; s.cfg.Classes[i].Theta == auto || s.cfg.Classes[i].SprintAfter == auto {
			l.points[i] = "not found yet"
		}
	}
	l.admitter.tally = s.tally
	l.core.Speculate(s.cfg.Speculation.rule())
	l.samples = readSamples(l.cfg.Dir, l.logger)
	if err := l.core.Learn(l.samples.all); err != nil {
		l.logger.Warn("samples of past jobs not used", slog.Any("error", err))
	}
	l.core.HoldUntil(time.Now().Add(never)) // until the jobs of the log are known
	return l
}

// draws returns the random numbers of a seed. They determine which tasks a job drops: the generator must never change.
func draws(seed uint64) func() uint64 { return rand.NewPCG(seed, 0).Uint64 }

// never is longer than any process lives.
const never = 100 * 365 * 24 * time.Hour

// run handles events until ctx ends.
func (l *loop) run(ctx context.Context) error {
	tick := time.NewTicker(stepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-l.inbox:
			e.apply(l, time.Now())
		case <-tick.C:
		}
		l.step(ctx)
	}
}

// step carries out decisions until there are none left.
func (l *loop) step(ctx context.Context) {
	if !l.lease.held() {
		return
	}
	l.attend(time.Now())
	l.measure(time.Now())
	l.probe(time.Now())
	for {
		l.endRefused(ctx, time.Now())
		now := time.Now()
		actions := l.core.Step(now)
		if len(actions) == 0 {
			l.noteStanding(l.keepStanding())
			return
		}
		for _, a := range actions {
			if !l.lease.held() {
				return // for ever: the next active scheduler decides anew
			}
			l.carryOut(ctx, now, a)
		}
	}
}

func (l *loop) carryOut(ctx context.Context, now time.Time, a dispatch.Action) {
	switch a := a.(type) {
	case dispatch.StartJob:
		l.startJob(now, a)
	case dispatch.StartTask:
		l.startTask(now, a)
	case dispatch.Kill:
		l.do(now, a.Ref.Job, func(time.Time) {
			l.send(a.Node, &headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Kill{Kill: jobfile.TaskRef(a.Ref)}})
		})
	case dispatch.DropTask:
		l.dropTasks(now, dispatch.DropTasks{Job: a.Job, Indexes: []int{a.Index}, Why: a.Why})
	case dispatch.DropTasks:
		l.dropTasks(now, a)
	case dispatch.LoseWorker:
		if s := l.sessions[a.Node]; s != nil {
			l.drop(s)
		}
		l.logger.Warn("worker lost", slog.String("node", a.Node), slog.Int("tasks", a.Tasks))
	case dispatch.EndJob:
		l.endJob(ctx, now, a)
	default:
		l.carryRun(ctx, now, a)
	}
}

// carryRun carries out actions on a whole run.
func (l *loop) carryRun(ctx context.Context, now time.Time, a dispatch.Action) {
	switch a := a.(type) {
	case dispatch.KeepRun:
		l.keepRun(now, a.Job, a.Run)
	case dispatch.Deflate:
		l.do(now, a.Job, func(time.Time) {
			select {
			case l.commits.asked <- a:
			case <-ctx.Done():
			}
		})
	case dispatch.RequeueJob:
		l.requeueJob(now, a)
	case dispatch.SprintDue:
		l.logger.Info("sprint timer fired", slog.String("job", a.Job), slog.Float64("after_s", a.After.Seconds()))
		wake(l.director.soon)
	case dispatch.StartRun:
		l.do(now, a.Job, func(now time.Time) { l.startRun(now, a) })
	case dispatch.AdoptRun:
		l.do(now, a.Job, func(now time.Time) { l.adoptRun(now, a) })
	case dispatch.KillRun:
		l.do(now, a.Job, func(time.Time) { l.killRun(a) })
	case dispatch.DeflateRun:
		l.do(now, a.Job, func(time.Time) { l.deflateRun(a) })
	}
}

// do is then for a step that does not wait.
func (l *loop) do(now time.Time, job string, f func(now time.Time)) {
	l.then(now, job, step{do: func(now time.Time) bool {
		f(now)
		return false
	}})
}

// wake sends a signal unless one is pending.
func wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// keepRun records the decisions about a run.
func (l *loop) keepRun(now time.Time, id string, run dispatch.RunRecord) {
	r := l.records[id]
	r.run = run
	l.commitRun(now, runCommit{job: id, run: r.runToProto()})
}

// requeueJob records that a killed run is over, and then discards its outputs.
func (l *loop) requeueJob(now time.Time, a dispatch.RequeueJob) {
	r := l.records[a.Job]
	killed := r.run.Number
	r.started, r.sprint, r.fast = nil, nil, nil
	l.keepRun(now, a.Job, a.Run)
	l.inFolder(now, r, "removing the outputs of a killed run", func(d *jobdir.Dir) error { return d.Discard(killed, len(r.inputs.Names)) })
	l.logger.Info("job preempted and queued again", slog.String("job", a.Job), slog.Any("run", a.Run.Number), slog.String("for", a.For))
}

// startJob records when the job started, so that its runtime survives a restart.
func (l *loop) startJob(now time.Time, a dispatch.StartJob) {
	r := l.records[a.Job]
	r.started, r.dir.Run, r.sprint, r.fast, r.dropped = new(a.At.Round(0)), a.Run.Number, nil, nil, nil
	l.keepRun(now, a.Job, a.Run)
	if a.Run.Number > 1 {
		l.inFolder(now, r, "creating the folder of a run", func(d *jobdir.Dir) error { return d.MakeRun(a.Run.Number) })
	}
	l.logger.Info("job started", slog.String("job", a.Job), slog.String("class", r.file.Class), slog.Int("tasks", len(r.inputs.Names)), slog.Any("run", a.Run.Number))
}

// dropTasks records drops before they have an effect: a rerun must not run the task.
func (l *loop) dropTasks(now time.Time, a dispatch.DropTasks) {
	r := l.records[a.Job]
	l.logger.Warn("tasks dropped", slog.String("job", a.Job), slog.Int("tasks", len(a.Indexes)), slog.Int("first", a.Indexes[0]), slog.String("why", a.Why))
	l.commitRun(now, runCommit{job: a.Job, run: &headroomv1.JobRun{Number: r.run.Number}, drop: wire.TaskRanges(a.Indexes)})
	run := r.run.Number
	l.inFolder(now, r, "writing the account of dropped tasks", func(d *jobdir.Dir) error { return d.Account(run, r.account(a.Indexes, a.Why)...) })
}

// account returns dropped tasks as people read them.
func (r *record) account(indexes []int, why string) []jobdir.DroppedTask {
	drops := make([]jobdir.DroppedTask, len(indexes))
	for i, index := range indexes {
		drops[i] = jobdir.DroppedTask{Index: index, Input: r.inputs.Names[index], Reason: why}
	}
	return drops
}

func (l *loop) endJob(ctx context.Context, now time.Time, a dispatch.EndJob) {
	r := l.records[a.Job]
	l.measureEnd(now, r, a)
	l.learnEnd(r, a)
	l.leaveAdmission(now, r, a)
	if r.file.Spark != nil && r.run.Number > 0 && a.State != dispatch.Cancelled {
		over := r.run
		over.Over = true // a restart looks for no driver
		l.keepRun(now, a.Job, over)
	}
	l.samples.keep(a.Sample)
	l.publish(now, r, a)
	l.logger.Info("job ended", slog.String("job", a.Job), slog.String("state", a.State.String()), slog.String("outcome", a.Outcome),
		slog.Float64("runtime_s", a.Runtime.Seconds()), slog.Float64("wasted_s", r.wasted.Seconds()))
	l.forget()
	if a.State == dispatch.Cancelled {
		return // a cancellation is committed before it is carried out
	}
	e := ending{a, r.went(now, a)}
	l.do(now, a.Job, func(time.Time) {
		select {
		case l.commits.ended <- e:
		case <-ctx.Done():
		}
	})
}

// publish removes what killed attempts of an ended job have left, and links its result.
func (l *loop) publish(now time.Time, r *record, a dispatch.EndJob) {
	run := r.run.Number
	l.inFolder(now, r, "removing unfinished outputs", func(d *jobdir.Dir) error { return d.Tidy(run, len(r.inputs.Names)) })
	if a.State == dispatch.Done && r.file.Reduce != nil {
		others := make(map[string]bool)
		for id, o := range l.records {
			others[id] = o.submitter() != r.file.Submitter
		}
		l.inFolder(now, r, "linking the result", func(d *jobdir.Dir) error { return d.Publish(run, func(job string) bool { return others[job] }) })
	}
	l.close(now, r)
}

// submitter returns the submitter of a job, which may have ended under an earlier scheduler process.
func (r *record) submitter() string {
	if r.file != nil {
		return r.file.Submitter
	}
	return jobfile.SubmitterOf(r.spec)
}

// endRefused commits the ends of jobs that were refused while they waited.
func (l *loop) endRefused(ctx context.Context, now time.Time) {
	if len(l.admitter.refused) == 0 {
		return
	}
	for _, e := range l.admitter.refused {
		l.logger.Info("job ended", slog.String("job", e.Job), slog.String("state", e.State.String()), slog.String("outcome", e.Outcome))
		select {
		case l.commits.ended <- ending{e, &headroomv1.JobEnd{EndedUs: now.UnixMicro()}}:
		case <-ctx.Done():
		}
	}
	l.admitter.refused = nil
	l.forget()
}

// send sends a message to a worker's stream. A worker that does not read is disconnected: its tasks are resolved when
// it reconnects or times out.
func (l *loop) send(node string, m *headroomv1.WorkMessage) {
	s := l.sessions[node]
	if s == nil {
		return
	}
	select {
	case s.out <- m:
	default:
		l.logger.Warn("worker is not reading its stream", slog.String("node", node))
		l.drop(s)
	}
}

// drop ends the stream of a worker.
func (l *loop) drop(s *session) {
	s.end()
	delete(l.sessions, s.node)
	l.core.Broken(s.node)
}

// task returns the message that makes a worker run an attempt.
func (l *loop) task(node string, ref dispatch.Ref) *headroomv1.Task {
	r := l.records[ref.Job]
	output := r.dir.Task(ref.Phase, ref.Index)
	var t *headroomv1.Task
	if ref.Phase == dispatch.PhaseReduce {
		t = r.file.ReduceTask(r.programs, ref, output, l.outputs(ref.Job, r))
	} else {
		t = r.file.MapTask(r.programs, ref, output, r.inputs.Names[ref.Index])
	}
	t.Ref.Proof = l.prover.proof(node, ref)
	return t
}

// outputs returns the names of the map outputs of the result.
func (l *loop) outputs(id string, r *record) []string {
	return each.Of(l.core.Outputs(id), func(i int) string { return r.dir.Task(dispatch.PhaseMap, i) })
}
