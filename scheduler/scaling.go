package scheduler

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/scaling"
	"headroom/scheduler/spark"
)

// Scaling is the scaling section: whether scaling curves of jobs are learned.
type Scaling struct {
	// Policy is learned or off.
	Policy string `yaml:"policy"`
}

const (
	scalingLearned = "learned"
	scalingOff     = "off"
)

func (s Scaling) check() *cli.Error {
	if s.Policy != scalingLearned && s.Policy != scalingOff {
		return config.Bad("want learned or off", "scaling.policy %q is unknown", s.Policy)
	}
	return nil
}

// openScaling returns the learner of scaling curves; nil if it is off.
func openScaling(cfg Config, logger *slog.Logger) *scaling.Learner {
	if cfg.Scaling.Policy != scalingLearned {
		return nil
	}
	return scaling.Open(cfg.Dir, logger)
}

// advise returns the known scaling of a new job; nil for none. A job with a deadline never explores.
func (s *Server) advise(r *record) *headroomv1.Scaling {
	return s.scaling.Advise(curveName(r.file), r.deadline == 0)
}

// curveName returns the name under which runs of a job are learned from: the same name on another engine is another program.
func curveName(f *jobfile.File) string {
	if f.Spark != nil {
		return spark.Name + "/" + f.Name
	}
	return f.Name
}

// measure records how many slots the running jobs hold.
func (l *loop) measure(now time.Time) {
	if l.scaling == nil || now.Sub(l.measured) < stepEvery {
		return
	}
	l.measured = now
	for _, j := range l.core.Jobs(now) {
		sample, ok := sampleOf(&j)
		if !ok {
			continue
		}
		m := l.meters[j.ID]
		if m == nil {
			m = &scaling.Meter{}
			l.meters[j.ID] = m
		}
		m.Look(now, j.Run.Number, sample, l.powerPart)
	}
}

// sampleOf returns what a job holds for its map tasks; false while it has none to run, or that is unknown.
func sampleOf(j *dispatch.JobView) (s scaling.Sample, ok bool) {
	s = scaling.Sample{Held: float64(j.Held), On: j.RunningOn, Done: j.Done}
	switch {
	case j.State != dispatch.Running:
		return s, false
	case j.Engine == "":
		return s, j.Held > 0 && j.Done+j.Dropped < j.Tasks
	case j.Engine != spark.Name || !j.Progress.Known || j.Progress.RunningOn == nil:
		return s, false // a driver that is silent for long makes the run unknown
	}
	p := &j.Progress
	// On has idle executors too. Between stages nothing is held.
	s.Copies, s.On = float64(p.Copies), p.RunningOn
	s.Held = float64(p.Running) + s.Copies
	for _, stage := range p.Stages {
		if stage.Attempt > 0 {
			s.Lost = max(s.Lost, stage.Total) // outputs were lost, and their tasks ran again
		}
	}
	return s, true
}

// powerPart returns the fraction of its full power that a node may use, as last sent by the coordinators.
func (l *loop) powerPart(node string) (float64, bool) {
	part, known := l.parts[node]
	return part, known
}

// capped records the cap of a node.
func (l *loop) capped(node string, c dispatch.Cap) {
	if c.Max > 0 && c.Cap > 0 {
		l.parts[node] = min(1, float64(c.Cap)/float64(c.Max))
	}
}

// learnEnd learns the scaling of jobs of a name from an ended run.
func (l *loop) learnEnd(r *record, a dispatch.EndJob) {
	m := l.meters[a.Job]
	delete(l.meters, a.Job)
	if run, ok := m.End(r.run.Number, a.Done, a.Wasted.Total()); ok && a.State == dispatch.Done {
		l.scaling.Ended(curveName(r.file), run)
	}
}

// curveEvent reports a new curve of a name: unfinished jobs get it.
type curveEvent struct{ name string }

func (e curveEvent) apply(l *loop, now time.Time) {
	for _, j := range l.core.Jobs(now) {
		r := l.records[j.ID]
		if j.State.Ended() || r == nil || r.file == nil || curveName(r.file) != e.name || r.scaling.GetExploring() {
			continue
		}
		x := l.scaling.Advise(e.name, false)
		if x == nil || proto.Equal(x, r.scaling) {
			continue
		}
		r.scaling = x
		select {
		case l.commits.scaled <- jobToProto(l.withSpec(now, j)):
		default:
			l.logger.Debug("scaling curve of job not committed: queue is full", slog.String("job", j.ID))
		}
	}
}

// learnScaling runs the learner until ctx ends.
func (s *Server) learnScaling(ctx context.Context) error {
	return s.scaling.Run(ctx, func(name string) { _ = s.inbox.post(ctx, curveEvent{name}) }) // fails only when ctx ends
}

// scalings commits scaling curves of unfinished jobs until ctx ends.
func (c *committer) scalings(ctx context.Context) error {
	return takeAll(ctx, c.scaled, c.commitScaling)
}

func (c *committer) commitScaling(ctx context.Context, j *headroomv1.Job) {
	req := &headroomv1.CommitJobRequest{Job: j, Change: &headroomv1.Change{Actor: c.actor, Reason: "scaling curve updated"}}
	if _, err := askOnce(ctx, c.leader, "scale job "+j.GetId(), headroomv1connect.JobServiceClient.CommitJob, req); err != nil {
		c.logger.Warn("scaling curve of job not committed", slog.String("job", j.GetId()), slog.Any("error", err))
	}
}
