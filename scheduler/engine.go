package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// engineSpark is the name of the engine for applications of Spark.
const engineSpark = "spark"

// engine runs jobs as a whole; scheduler/spark is one. Its methods return at once;
// what happens to a run comes as events.
type engine interface {
	// Run serves until ctx ends. Runs outlive it.
	Run(ctx context.Context) error
	Start(RunOrder) error
	// Adopt takes over a run of an earlier scheduler process. Without an error and
	// not running it has never begun; how it ended meanwhile comes as an event.
	Adopt(RunOrder) (running bool, err error)
	// Kill ends a run, by force where it does not heed; an event confirms it.
	Kill(job string, number uint32)
	// Deflate raises the drop ratio of a job that runs.
	Deflate(job string, theta float64, seed uint64)
	Events() <-chan RunEvent
}

// RunOrder is a run as an engine gets it.
type RunOrder struct {
	Job    string
	Number uint32
	// Application is what is run, as its owner wrote it, with absolute paths.
	Application SparkStage
	Theta       float64
	Seed        uint64
	// Slots is the most cores at once.
	Slots int
	// Dir is where the application runs, Folder the engine's own for this job.
	Dir, Folder string
	// Floor is the least part of its tasks that counts as a result.
	Floor float64
}

// RunEvent is what an engine tells of a run: its progress, or that it has ended.
type RunEvent struct {
	Job    string
	Number uint32
	// Ended runs have an Outcome in words, the others a Progress.
	Ended, OK bool
	Outcome   string
	Progress  EngineProgress
}

// engine is the engine of a job file; empty for our own workers.
func (f *JobFile) engine() string {
	if f.Spark != nil {
		return engineSpark
	}
	return ""
}

// watch passes on what the engine tells.
func (s *Server) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.spark.Events():
			if s.post(ctx, engineEvent{e}) != nil {
				return nil
			}
		}
	}
}

// engineEvent is what an engine tells.
type engineEvent struct{ RunEvent }

func (e engineEvent) apply(l *loop, now time.Time) {
	if e.Ended {
		l.core.RunEnded(now, e.Job, e.Number, e.OK, e.Outcome)
		return
	}
	l.core.Progress(now, e.Job, e.Number, e.Progress)
}

// order is a run for the engine.
func (l *loop) order(id string, run RunRecord) RunOrder {
	r := l.records[id]
	return RunOrder{
		Job: id, Number: run.Number, Application: *r.file.Spark, Theta: run.Theta, Seed: run.Seed, Slots: r.file.Slots,
		Dir: r.file.Folder, Folder: r.dir.path(fmt.Sprintf("run-%d", run.Number)), Floor: r.floor.Fraction,
	}
}

// startRun lets the engine begin with a run.
func (l *loop) startRun(now time.Time, a StartRun) {
	if err := l.spark.Start(l.order(a.Job, a.Run)); err != nil {
		l.logger.Warn("run not started", slog.String("job", a.Job), slog.Any("error", err))
		l.core.RunEnded(now, a.Job, a.Run.Number, false, "cannot be started: "+err.Error())
	}
}

// adoptRun takes over a run of an earlier scheduler process, or begins it where that
// process had not come so far.
func (l *loop) adoptRun(now time.Time, a AdoptRun) {
	running, err := l.spark.Adopt(l.order(a.Job, a.Run))
	switch {
	case err != nil:
		l.logger.Warn("run not taken over", slog.String("job", a.Job), slog.Any("error", err))
		l.core.RunEnded(now, a.Job, a.Run.Number, false, "cannot be taken over after a restart of the scheduler: "+err.Error())
	case running:
		l.logger.Info("run taken over", slog.String("job", a.Job), slog.Any("run", a.Run.Number))
	case a.Run.Stopping != "":
		l.core.RunEnded(now, a.Job, a.Run.Number, false, "")
	default:
		l.startRun(now, StartRun(a))
	}
}

// sweep ends the driver of a job that was cancelled, when the scheduler was killed
// before it could.
func (l *loop) sweep(id string, run RunRecord) {
	if running, err := l.spark.Adopt(l.order(id, run)); err == nil && running {
		l.logger.Info("run of an ended job is ended", slog.String("job", id))
		l.spark.Kill(id, run.Number)
	}
}
