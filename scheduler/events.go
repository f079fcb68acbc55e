package scheduler

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/buffers"
	"headroom/jobs/dispatch"
	"headroom/lease"
)

// jobsMax bounds the unfinished jobs.
const jobsMax = 1000

// event is something that happened. Events are values; the loop applies them in order.
type event interface {
	apply(l *loop, now time.Time)
}

// errNotReady refuses requests until the jobs are known.
func errNotReady() error {
	return rpc.Standby("", "")
}

// helloEvent is a worker whose stream opened.
type helloEvent struct {
	session *session
	slots   int
	running []dispatch.Ref
	// others are tasks that the worker runs but was not given; it is told to stop them.
	others []*headroomv1.TaskRef
	reply  chan<- error
}

func (e helloEvent) apply(l *loop, now time.Time) {
	if !l.ready {
		e.reply <- errNotReady()
		return
	}
	if old := l.sessions[e.session.node]; old != nil {
		if now.Sub(old.heard) < takeoverAfter {
			e.reply <- rpc.Refuse(codeFor(cli.ExitConflict), "conflict", cli.ExitConflict,
				fmt.Sprintf("another worker of node %s is connected", e.session.node), "run one worker per node, each under its own node name")
			return
		}
		l.drop(old)
	}
	e.session.heard = now
	l.sessions[e.session.node] = e.session
	l.core.Hello(now, e.session.node, e.slots, e.running)
	for _, ref := range e.others {
		l.send(e.session.node, &headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Kill{Kill: ref}})
	}
	l.logger.Info("worker connected", slog.String("node", e.session.node), slog.Int("slots", e.slots), slog.Int("running", len(e.running)))
	e.reply <- nil
}

// resultEvent is an ended attempt of a task.
type resultEvent struct {
	session *session
	ref     dispatch.Ref
	failure string
	stopped bool
	cpu     float64
}

func (e resultEvent) apply(l *loop, now time.Time) {
	if l.sessions[e.session.node] != e.session {
		return
	}
	e.session.heard = now
	l.spend(e.session.node, e.ref, e.cpu)
	delete(l.used[e.session.node], e.ref)
	if e.stopped {
		l.core.Stopped(now, e.session.node, e.ref)
		return
	}
	l.core.Result(now, e.session.node, e.ref, e.failure)
}

// aliveEvent is a sign of life of a worker, with the CPU seconds of its running attempts.
type aliveEvent struct {
	session  *session
	controls *headroomv1.TaskControls
	used     map[dispatch.Ref]float64
}

func (e aliveEvent) apply(l *loop, now time.Time) {
	if l.sessions[e.session.node] == e.session {
		e.session.heard, e.session.controls = now, e.controls
		l.core.Alive(now, e.session.node)
		for ref, cpu := range e.used {
			l.spend(e.session.node, ref, cpu)
		}
		maps.DeleteFunc(l.used[e.session.node], func(ref dispatch.Ref, _ float64) bool { return !l.core.Runs(e.session.node, ref) })
	}
}

// cpuMost bounds what an attempt is believed to have used: a century of one CPU.
const cpuMost = 3e9

// spend adds what an attempt has used since it was last reported to the CPU time of its job. A repeated result adds
// nothing.
func (l *loop) spend(node string, ref dispatch.Ref, cpu float64) {
	more := cpu - l.used[node][ref]
	if r := l.records[ref.Job]; r != nil && more > 0 && cpu < cpuMost && l.core.Runs(node, ref) {
		if r.cpu == nil {
			r.cpu = make(map[string]float64)
		}
		if l.used[node] == nil {
			l.used[node] = make(map[dispatch.Ref]float64)
		}
		r.cpu[node], l.used[node][ref] = r.cpu[node]+more, cpu
	}
}

// leaveEvent is a worker whose stream ended; goodbye is whether it stopped its tasks itself.
type leaveEvent struct {
	session *session
	goodbye bool
}

func (e leaveEvent) apply(l *loop, now time.Time) {
	if l.sessions[e.session.node] != e.session {
		return
	}
	l.drop(e.session)
	if e.goodbye {
		l.core.Gone(now, e.session.node)
	}
	l.logger.Info("worker disconnected", slog.String("node", e.session.node), slog.Any("goodbye", e.goodbye))
}

// addEvent is a committed job. A known job is not changed.
type addEvent struct {
	plan   dispatch.Plan
	past   dispatch.Past
	record *record
}

func (e addEvent) apply(l *loop, now time.Time) {
	if l.core.Knows(e.plan.ID) || l.holds(now, e) {
		return
	}
	delete(l.waiting, e.plan.ID)
	l.records[e.plan.ID] = e.record
	if i := slices.IndexFunc(l.cfg.Classes, func(k Class) bool { return k.Name == e.plan.Class }); i >= 0 {
		l.histories[i].arrived(e.plan.Submitted)
	}
	if err := l.core.Add(now, e.plan, e.past); err != nil {
		// The class was removed from scheduler.yaml. An accepted job still runs.
		l.logger.Warn("unknown class; running job in the lowest class", slog.String("job", e.plan.ID), slog.String("class", e.plan.Class))
		e.plan.Class = l.cfg.Classes[len(l.cfg.Classes)-1].Name
		_ = l.core.Add(now, e.plan, e.past) // the lowest class is known
	}
}

// endedEvent is an ended job of the log.
type endedEvent struct {
	plan    dispatch.Plan
	record  *record
	state   dispatch.State
	outcome string
	done    int
	dropped int
	runtime time.Duration
	// taught is what admission learns from it, and past its run; nil for nothing.
	taught *lesson
	past   *pastRun
}

func (e endedEvent) apply(l *loop, now time.Time) {
	delete(l.waiting, e.plan.ID)
	if e.taught != nil && !l.core.Knows(e.plan.ID) {
		l.learn(e.plan.Engine, *e.taught)
	}
	if p := e.past; p != nil && !l.core.Knows(e.plan.ID) {
		l.admitter.earlier.Add(p.known, p.in, p.run)
	}
	l.withdraw(now, e.plan.ID)
	if l.core.Knows(e.plan.ID) {
		l.core.Cancel(now, e.plan.ID, e.outcome) // no effect if it has ended here too
		return
	}
	l.records[e.plan.ID] = e.record
	if run := e.record.run; e.plan.Engine != "" && run.Number > 0 && !run.Over {
		l.sweep(e.plan.ID, run)
	}
	l.core.AddEnded(e.plan, e.state, e.outcome, e.done, e.dropped, e.runtime)
}

// waitEvent is an accepted job that cannot be restored yet; its outcome states why.
type waitEvent struct{ job *headroomv1.Job }

func (e waitEvent) apply(l *loop, _ time.Time) {
	if l.waiting[e.job.GetId()].GetOutcome() != e.job.GetOutcome() {
		l.logger.Warn("job not restored; retrying", slog.String("job", e.job.GetId()), slog.String("why", e.job.GetOutcome()))
	}
	l.waiting[e.job.GetId()] = e.job
}

// readyEvent reports that the jobs of the log have been read. recovered is whether some of them were running.
type readyEvent struct{ hold bool }

func (e readyEvent) apply(l *loop, now time.Time) {
	l.admitter.read = now
	if l.ready {
		return
	}
	l.ready = true
	l.core.HoldUntil(now)
	if e.hold {
		l.core.HoldUntil(now.Add(restartHold))
		l.admitter.opens = now.Add(restartHold)
	}
	l.logger.Info("scheduler ready", slog.Int("jobs", len(l.records)))
}

// cancelEvent is a committed cancellation.
type cancelEvent struct{ id, outcome string }

func (e cancelEvent) apply(l *loop, now time.Time) {
	waits := l.waiting[e.id]
	delete(l.waiting, e.id)
	if p := l.admitter.promises[e.id]; p != nil && p.waiting != nil {
		l.records[e.id] = p.waiting.record
		l.core.AddEnded(p.waiting.plan, dispatch.Cancelled, e.outcome, 0, 0, 0)
		l.withdraw(now, e.id)
	}
	if waits != nil && !l.core.Knows(e.id) { // it could not be restored, and stays listed
		j := proto.CloneOf(waits)
		j.Outcome = e.outcome
		l.restorer.finished(j, dispatch.Cancelled).apply(l, now)
	}
	l.core.Cancel(now, e.id, e.outcome)
}

// directiveEvent is a directive of the coordinators.
type directiveEvent struct {
	stamp lease.Stamp
	node  string
	cap   dispatch.Cap
	// sprint and deflate are nil unless the directive is one.
	sprint  *headroomv1.SprintDirective
	deflate *headroomv1.DeflateDirective
	// shares are the shares of our own workers' slots; nil unless the directive has them.
	shares *headroomv1.ShareDirective
	reason string
	reply  chan<- error
}

func (e directiveEvent) apply(l *loop, now time.Time) {
	if e.stamp.Compare(l.highest) < 0 {
		e.reply <- fmt.Errorf("%v after %v: %w", e.stamp, l.highest, errOlder)
		return
	}
	l.highest = e.stamp
	if e.node != "" {
		l.core.SetCap(e.node, e.cap)
		l.capped(e.node, e.cap)
		l.logger.Debug("cap directive", slog.String("node", e.node), slog.Float64("cap_w", e.cap.Cap.Watts()), slog.String("reason", e.reason))
	}
	if e.sprint != nil {
		l.sprints(now, e.sprint)
	}
	if e.shares != nil {
		l.core.Share(sharesFromProto(e.shares))
		l.logger.Info("shares of slots changed", slog.Int("jobs", len(e.shares.GetJobs())), slog.String("reason", e.reason))
	}
	if d := e.deflate; d != nil {
		e.reply <- l.core.Deflate(d.GetId(), d.GetTheta(), d.GetSeed(), e.reason)
		return
	}
	e.reply <- nil
}

// sprints records that the nodes of a job sprint, or no longer sprint. The nodes learn it with their leases.
func (l *loop) sprints(now time.Time, d *headroomv1.SprintDirective) {
	r := l.records[d.GetId()]
	switch {
	case r == nil:
	case d.GetSprint() == "":
		r.fast, r.sprint = r.sprints(now), nil
	case r.sprint.GetId() != d.GetSprint():
		r.fast = r.sprints(now)
		r.sprint = &headroomv1.Sprinting{Id: d.GetSprint(), Nodes: d.GetNodes(), CapUw: d.GetCapUw(), SinceUs: now.UnixMicro(), DurationMs: d.GetDurationMs()}
	default: // the same sprint continues
		r.sprint.Nodes, r.sprint.CapUw, r.sprint.DurationMs = d.GetNodes(), d.GetCapUw(), d.GetDurationMs()
	}
	l.logger.Info("sprint directive", slog.String("job", d.GetId()), slog.String("sprint", d.GetSprint()), slog.Any("nodes", d.GetNodes()))
}

// view is the source of listings and progress reports.
type view struct {
	ready   bool
	jobs    []jobAndSpec
	waiting []*headroomv1.Job
	workers []*headroomv1.Worker
	// dispatch is how jobs start.
	dispatch *headroomv1.Dispatch
	// capacity is how many slots the workers may use in total.
	capacity int
}

// jobAndSpec is a job with its specification.
type jobAndSpec struct {
	dispatch.JobView
	spec     []byte
	floor    float64
	deadline time.Duration
	sprint   *headroomv1.Sprinting
	// bound is the fraction of its tasks that it may miss by its error bound; nil for none.
	bound     *float64
	admission *headroomv1.Admission
	scaling   *headroomv1.Scaling
	promised  int
	// wasted is the total that it has wasted, once it has ended, and end the verdict on it.
	wasted time.Duration
	end    *headroomv1.JobEnd
	// cpu are the CPU seconds of its tasks by node.
	cpu map[string]float64
	// length is short or long for a job that masters dispatch, and empty for others.
	length string
}

// viewEvent requests a view; id limits it to one job, and live to unfinished jobs.
type viewEvent struct {
	id    string
	live  bool
	reply chan<- view
}

func (e viewEvent) apply(l *loop, now time.Time) {
	v := view{ready: l.ready, workers: l.workers(), dispatch: l.dispatch(), capacity: l.core.Capacity()}
	for _, j := range l.core.Jobs(now) {
		if (e.id != "" && j.ID != e.id) || (e.live && j.State.Ended()) {
			continue
		}
		v.jobs = append(v.jobs, l.withSpec(now, j))
	}
	for _, j := range l.waiting {
		if e.id == "" || j.GetId() == e.id {
			v.waiting = append(v.waiting, j)
		}
	}
	e.reply <- v
}

// workers returns the workers as listings show them.
func (l *loop) workers() (all []*headroomv1.Worker) {
	for _, v := range l.core.Workers() {
		w := &headroomv1.Worker{Node: v.Node, Slots: count(v.Slots), Usable: count(v.Usable), Running: count(v.Running), Connected: v.Connected}
		if s := l.sessions[v.Node]; s != nil {
			w.Controls = proto.CloneOf(s.controls)
		}
		all = append(all, w)
	}
	return all
}

func (l *loop) withSpec(now time.Time, j dispatch.JobView) jobAndSpec {
	if r := l.records[j.ID]; r != nil {
		v := jobAndSpec{
			JobView: j, spec: r.spec, floor: r.floor.Fraction, deadline: r.deadline, sprint: proto.CloneOf(r.sprint),
			admission: r.admission, scaling: r.scaling, promised: l.promised(j.ID), wasted: r.wasted, end: proto.CloneOf(r.end),
			length: r.lengthOf(l.cfg), cpu: maps.Clone(r.cpu),
		}
		if why := r.silence(now); why != "" {
			v.Progress.Trouble = why
		}
		if p := l.admitter.promises[j.ID]; p != nil {
			v.admission = p.answer
		}
		if r.file != nil {
			if part, ok := r.file.ErrorBound(); ok {
				v.bound = &part
			}
		}
		return v
	}
	return jobAndSpec{JobView: j}
}

// dispatch returns how jobs start now.
func (l *loop) dispatch() *headroomv1.Dispatch {
	w := l.queue.Waste()
	d := &headroomv1.Dispatch{
		Discipline: string(l.queue.Discipline), Drained: l.queue.Drained(), KilledS: w.Killed.Seconds(), TotalS: w.Total.Seconds(),
	}
	if l.queue.Discipline != buffers.Shared {
		d.Width = count(l.queue.Width)
	}
	for i, k := range l.queue.Classes {
		p := &headroomv1.ClassPoint{Name: k.Name, Why: l.points[i]}
		if l.queue.Discipline.Deflates() {
			p.Theta = k.Theta
		}
		if l.queue.Discipline.Sprints() && k.Sprint {
			p.SprintAfterS = new(k.SprintAfter.Seconds())
		}
		if i < len(l.prices) && l.prices[i] > 0 {
			p.QualityPriceS = new(l.prices[i].Seconds())
		}
		d.Classes = append(d.Classes, p)
		d.Waiting = append(d.Waiting, count(len(l.queue.Waiting(i))))
	}
	return d
}
