package coordinator

import (
	"maps"
	"time"

	headroomv1 "headroom/api/headroom/v1"

	"headroom/internal/wire"
	"headroom/lease"
)

const (
	// boardedJobs bounds the progress samples kept.
	boardedJobs = 10_000
	// sampleLife is how long a job's progress counts as known.
	sampleLife = 10 * time.Second
)

// jobBoard holds the newest progress of each job. It never enters the log. It is the desk's.
type jobBoard struct {
	samples map[string]sample
	// acked is the newest directive that a scheduler has acknowledged, refused the newest it could not carry out.
	acked, refused uint64
	refusal        string
	// refusals are the orders about jobs that could not be carried out, in words, heeded those that were, by subject.
	refusals map[string]string
	heeded   map[string]bool
	// engines are the newest reports of what there is to share out.
	engines map[string]engineSample
	// discipline and points are the scheduler's, as it said at that time.
	discipline string
	points     []*headroomv1.ClassPoint
	pointsAt   time.Time
}

type engineSample struct {
	report *headroomv1.EngineReport
	at     time.Time
}

type sample struct {
	progress *headroomv1.JobProgress
	at       time.Time
}

func newJobBoard() *jobBoard {
	return &jobBoard{samples: map[string]sample{}, refusals: map[string]string{}, heeded: map[string]bool{}, engines: map[string]engineSample{}}
}

// reportedEngines bounds the engines that are remembered.
const reportedEngines = 64

// reportedClasses bounds the classes that are remembered.
const reportedClasses = 64

// report takes in the progress of the jobs that are not finished, and what their engines
// have. It tells whether one can sprint by its timer since the report before: it has fired, and
// it is known where the job runs.
func (b *jobBoard) report(r *headroomv1.ProgressReport, at time.Time) (due bool) {
	b.discipline, b.points, b.pointsAt = r.GetDiscipline(), r.GetClasses()[:min(len(r.GetClasses()), reportedClasses)], at
	for _, e := range r.GetEngines() {
		if _, ok := b.engines[e.GetEngine()]; ok || len(b.engines) < reportedEngines {
			b.engines[e.GetEngine()] = engineSample{e, at}
		}
	}
	maps.DeleteFunc(b.engines, func(_ string, e engineSample) bool { return at.Sub(e.at) > time.Hour })
	for _, p := range r.GetJobs() {
		was, ok := b.samples[p.GetId()]
		if ok || len(b.samples) < boardedJobs {
			due = due || mayStart(p) && !(mayStart(was.progress) && was.progress.GetRun() == p.GetRun())
			b.samples[p.GetId()] = sample{progress: p, at: at}
		}
	}
	maps.DeleteFunc(b.samples, func(_ string, s sample) bool { return at.Sub(s.at) > time.Hour })
	return due
}

// mayStart tells whether a job's sprint timer has fired and nodes are known to speed up.
func mayStart(p *headroomv1.JobProgress) bool {
	return p.GetSprintDue() && len(p.GetRunningOn()) > 0
}

// classes are the scheduler's discipline and operating points; empty while unknown or too old.
func (b *jobBoard) classes(now time.Time) (discipline string, points []*headroomv1.ClassPoint) {
	if now.Sub(b.pointsAt) > sampleLife {
		return "", nil
	}
	return b.discipline, b.points
}

// of is the newest progress of a job, nil while unknown or too old.
func (b *jobBoard) of(id string, now time.Time) *headroomv1.JobProgress {
	s, ok := b.samples[id]
	if !ok || now.Sub(s.at) > sampleLife {
		return nil
	}
	return s.progress
}

// reported are the engines' newest reports, without those that are too old.
func (b *jobBoard) reported(now time.Time) map[string]*headroomv1.EngineReport {
	out := map[string]*headroomv1.EngineReport{}
	for name, e := range b.engines {
		if now.Sub(e.at) <= sampleLife {
			out[name] = e.report
		}
	}
	return out
}

// ack takes in a scheduler's acknowledgement of a directive of the given
// leadership, and tells whether it was refused. Sequences begin anew with each
// leadership, so another's say nothing here. subject is what the directive is
// about, empty for caps: those are told again with each change.
func (b *jobBoard) ack(e lease.Epoch, a *headroomv1.DirectiveAck, subject string) (refused bool) {
	if wire.Epoch(a.GetEpoch()) != e {
		return false
	}
	switch {
	case a.GetError() == "":
		b.acked = max(b.acked, a.GetSeq())
		delete(b.refusals, subject)
		if subject != "" {
			b.heeded[subject] = true
		}
		return false
	case subject == "":
		b.refused, b.refusal = a.GetSeq(), a.GetError()
	default:
		b.refusals[subject] = a.GetError()
	}
	return true
}

// heed takes in what a scheduler says to a directive. What it says to an order that another has replaced since tells
// nothing of the one in force.
func (d *desk) heed(a *headroomv1.DirectiveAck) {
	subject, newest := d.schedulers.Subject(a.GetSeq())
	if newest && d.board.ack(d.epoch, a, subject) {
		d.jobs.refused(subject)
	}
}
