package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/secure"
	"headroom/jobs/dispatch"
	"headroom/scheduler/fanout"
	"headroom/scheduler/spark"
	"headroom/scheduler/sparkapp"
	"headroom/scheduler/yarn"
)

// engine runs whole jobs; spark.Engine is one. Its methods return at once; what happens to a run is reported by events.
type engine interface {
	// Run serves until ctx ends. Runs outlive it.
	Run(ctx context.Context) error
	Start(r spark.Run) error
	// Adopt takes over a run of an earlier scheduler process. If it has ended meanwhile, an event reports that.
	// spark.ErrNoRun is returned for a run that never started.
	Adopt(r spark.Run) (running bool, err error)
	// Kill ends a run, by force if it does not react; an event confirms it.
	Kill(job string, number uint32)
	// Deflate raises the drop ratio of a running job.
	Deflate(job string, theta float64, seed uint64) error
	// Share sets how many cores each job may hold, in the order in which they are served.
	Share(shares []spark.Share) error
	// Capacity returns how many cores there are to divide, or why that is unknown.
	Capacity() (cores int, trouble string)
	Events() <-chan spark.Event
}

// engines are those that run whole jobs, in addition to the workers; nil is one that is not configured.
type engines struct {
	yarn    *yarn.Engine
	spark   engine
	masters *fanout.Engine
	inbox   inbox
}

// openEngines opens the configured engines, and their ports.
func openEngines(s *Server, keeper *secure.Keeper) (*engines, error) {
	e := &engines{inbox: s.inbox}
	if err := e.openYarn(s, keeper); err != nil {
		return nil, err
	}
	if err := e.openMasters(s, keeper); err != nil {
		return nil, err
	}
	if !s.cfg.Spark.On() {
		return e, nil
	}
	own, err := spark.New(s.cfg.Spark, s.cfg.Dir, nil, s.sparkOnYARN(), s.logger)
	if err != nil {
		return nil, err
	}
	own.Speculate(s.cfg.Speculation.rule().Policy)
	if keeper != nil {
		own.Secure(keeper, s.cfg.TLS.CA)
	}
	e.spark, s.ports[portSpark] = own, own.Hooks()
	return e, nil
}

// close closes the ports and connections of engines that do not run; s may be nil.
func (s *Server) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e := s.engines
	if e.yarn != nil {
		e.yarn.Close()
	}
	if e.spark != nil {
		_ = e.spark.Run(ctx) // it ends at once
	}
	if e.masters != nil {
		_ = e.masters.Run(ctx)
	}
}

// parts returns the functions of the engines that run concurrently with the loop.
func (e *engines) parts() (parts []func(context.Context) error) {
	if e.yarn != nil {
		parts = append(parts, e.yarn.Run)
	}
	if e.spark != nil {
		parts = append(parts, e.spark.Run, e.watch)
	}
	if e.masters != nil {
		parts = append(parts, e.masters.Run)
	}
	return parts
}

// watch forwards the events of Spark's engine.
func (e *engines) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case happened := <-e.spark.Events():
			if e.inbox.post(ctx, engineEvent{happened}) != nil {
				return nil
			}
		}
	}
}

// engineEvent is an event of an engine.
type engineEvent struct{ spark.Event }

func (e engineEvent) apply(l *loop, now time.Time) {
	l.core.Progress(now, e.Job, e.Number, engineProgress(e.Progress))
	l.noteNodes(e.Job, e.Progress.RunningOn)
	if e.Kind == spark.KindEnded {
		l.core.RunEnded(now, e.Job, e.Number, e.Ended.OK, e.Ended.Outcome)
	}
}

// noteNodes reports to the coordinators at once on which further nodes a job of an engine runs: its sprint may be due
// and waits only for that.
func (l *loop) noteNodes(id string, on map[string]int) {
	r := l.records[id]
	if r == nil {
		return
	}
	for node := range on {
		if _, known := r.nodes[node]; !known {
			wake(l.director.soon)
			break
		}
	}
	r.nodes = on
}

// engineProgress converts the progress of a run for the core.
func engineProgress(p sparkapp.Progress) dispatch.EngineProgress {
	out := dispatch.EngineProgress{
		Known: p.Known, Tasks: p.Tasks, Done: p.Done, Running: p.Running, Dropped: p.Dropped, Copies: p.Copies,
		RunningOn: p.RunningOn, Executors: p.Executors, Cores: p.Cores, Surplus: p.Surplus, Source: string(p.From), Trouble: p.Remark(),
	}
	for _, s := range p.Stages {
		out.Stages = append(out.Stages, dispatch.Stage{ID: s.ID, Attempt: s.Attempt, Name: s.Name, Kept: s.Kept, Total: s.Partitions, Done: s.Done})
	}
	return out
}

// order returns a run for the engine.
func (l *loop) order(id string, run dispatch.RunRecord) spark.Run {
	r := l.records[id]
	_, bounded := r.file.ErrorBound()
	return spark.Run{
		Job: id, Number: run.Number, Spec: *r.file.Spark, Theta: run.Theta, Seed: run.Seed, Slots: r.file.Slots,
		Folder: r.dir.Path(fmt.Sprintf("run-%d", run.Number)), Floor: r.floor.Fraction, Bounded: bounded,
		Submitted: r.submitted, Deadline: r.deadline,
	}
}

// startRun starts a run on the engine.
func (l *loop) startRun(now time.Time, a dispatch.StartRun) {
	if l.fanned(a.Job) {
		l.fan(a.Job, a.Run)
		return
	}
	if err := l.engines.spark.Start(l.order(a.Job, a.Run)); err != nil {
		l.logger.Warn("run not started", slog.String("job", a.Job), slog.Any("error", err))
		l.core.RunEnded(now, a.Job, a.Run.Number, false, "start failed: "+err.Error())
	}
}

// adoptRun takes over a run of an earlier scheduler process, or starts it if that process had not.
func (l *loop) adoptRun(now time.Time, a dispatch.AdoptRun) {
	if l.fanned(a.Job) {
		l.fan(a.Job, a.Run)
		return
	}
	running, err := l.engines.spark.Adopt(l.order(a.Job, a.Run))
	switch {
	case errors.Is(err, spark.ErrNoRun) && a.Run.Stopping != "":
		l.core.RunEnded(now, a.Job, a.Run.Number, false, "")
	case errors.Is(err, spark.ErrNoRun):
		l.startRun(now, dispatch.StartRun(a))
	case err != nil:
		l.logger.Warn("run not taken over", slog.String("job", a.Job), slog.Any("error", err))
		l.core.RunEnded(now, a.Job, a.Run.Number, false, "not resumed after a restart of the scheduler: "+err.Error())
	default:
		l.logger.Info("run taken over", slog.String("job", a.Job), slog.Any("run", a.Run.Number), slog.Bool("running", running))
	}
}

// killRun ends a run.
func (l *loop) killRun(a dispatch.KillRun) {
	if l.fanned(a.Job) {
		l.engines.masters.Kill(a.Job, a.Number)
		return
	}
	l.engines.spark.Kill(a.Job, a.Number)
}

// deflateRun raises the drop ratio of a run.
func (l *loop) deflateRun(a dispatch.DeflateRun) {
	if l.fanned(a.Job) {
		l.engines.masters.Deflate(a.Job, a.Theta)
		return
	}
	if err := l.engines.spark.Deflate(a.Job, a.Theta, a.Seed); err != nil {
		l.logger.Warn("run not deflated", slog.String("job", a.Job), slog.Any("error", err))
	}
}

// shareSpark sets how many cores each job may hold.
func (e *engines) shareSpark(d *headroomv1.ShareDirective) error {
	shares := make([]spark.Share, 0, len(d.GetJobs()))
	for _, j := range d.GetJobs() {
		shares = append(shares, spark.Share{Job: j.GetId(), Cores: int(min(j.GetContainers(), math.MaxInt32))})
	}
	return e.spark.Share(shares)
}

// reportSpark returns what can be divided among Spark's jobs.
func (e *engines) reportSpark() *headroomv1.EngineReport {
	cores, trouble := e.spark.Capacity()
	return &headroomv1.EngineReport{Engine: spark.Name, Containers: count(cores), Trouble: trouble}
}

// sweep ends the driver of a job that was cancelled when the scheduler was killed before it could do so.
func (l *loop) sweep(id string, run dispatch.RunRecord) {
	if l.fanned(id) || l.engines.spark == nil {
		return // masters stop unclaimed tasks by themselves; without Spark there is nobody to ask
	}
	if running, err := l.engines.spark.Adopt(l.order(id, run)); err == nil && running {
		l.logger.Info("ending the run of an ended job", slog.String("job", id))
		l.engines.spark.Kill(id, run.Number)
	}
}
