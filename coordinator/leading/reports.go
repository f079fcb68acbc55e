package leading

import (
	"maps"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
)

const (
	// reportedJobs bounds the progress samples kept.
	reportedJobs = 10_000
	// sampleLife is how long a job's progress counts as known.
	sampleLife = 10 * time.Second
)

// jobReports holds the newest progress of each job. They never enter the log.
type jobReports struct {
	samples map[string]sample
	// newestAcked is the newest directive that a scheduler has acknowledged, newestRefused the newest it could not carry out, and
	// refusal why not.
	newestAcked, newestRefused uint64
	refusal                    string
	// refusals are the orders about jobs that could not be carried out, in words, acked those that were, by subject.
	refusals map[string]string
	acked    map[string]bool
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

func newJobReports() *jobReports {
	return &jobReports{samples: map[string]sample{}, refusals: map[string]string{}, acked: map[string]bool{}, engines: map[string]engineSample{}}
}

// reportedEngines bounds the engines that are remembered.
const reportedEngines = 64

// reportedClasses bounds the classes that are remembered.
const reportedClasses = 64

// report takes in the progress of the jobs that are not finished, and what their engines
// have. It reports whether they are to be looked at soon: a job has come or begun since the report before, or can sprint
// by its timer: that has fired, and it is known where the job runs.
func (r *jobReports) report(m *headroomv1.ProgressReport, at time.Time) (due bool) {
	r.discipline, r.points, r.pointsAt = m.GetDiscipline(), m.GetClasses()[:min(len(m.GetClasses()), reportedClasses)], at
	for _, e := range m.GetEngines() {
		if _, ok := r.engines[e.GetEngine()]; ok || len(r.engines) < reportedEngines {
			r.engines[e.GetEngine()] = engineSample{e, at}
		}
	}
	maps.DeleteFunc(r.engines, func(_ string, e engineSample) bool { return at.Sub(e.at) > time.Hour })
	for _, p := range m.GetJobs() {
		if was, ok := r.samples[p.GetId()]; ok || len(r.samples) < reportedJobs {
			due = due || mayStart(p) && !(mayStart(was.progress) && was.progress.GetRun() == p.GetRun()) || began(was.progress, p)
			r.samples[p.GetId()] = sample{progress: p, at: at}
		}
	}
	maps.DeleteFunc(r.samples, func(_ string, s sample) bool { return at.Sub(s.at) > time.Hour })
	return due
}

// began reports whether a job has come, or begun or gone back since the report before.
func began(was, p *headroomv1.JobProgress) bool {
	return was.GetState() != p.GetState() || was.GetRun() != p.GetRun()
}

// mayStart reports whether a job's sprint timer has fired and nodes are known to speed up.
func mayStart(p *headroomv1.JobProgress) bool {
	return p.GetSprintDue() && len(p.GetRunningOn()) > 0
}

// classes are the scheduler's discipline and operating points; empty while unknown or too old.
func (r *jobReports) classes(now time.Time) (discipline string, points []*headroomv1.ClassPoint) {
	if now.Sub(r.pointsAt) > sampleLife {
		return "", nil
	}
	return r.discipline, r.points
}

// of is the newest progress of a job, nil while unknown or too old.
func (r *jobReports) of(id string, now time.Time) *headroomv1.JobProgress {
	s, ok := r.samples[id]
	if !ok || now.Sub(s.at) > sampleLife {
		return nil
	}
	return s.progress
}

// reported are the engines' newest reports, without those that are too old.
func (r *jobReports) reported(now time.Time) map[string]*headroomv1.EngineReport {
	out := map[string]*headroomv1.EngineReport{}
	for name, e := range r.engines {
		if now.Sub(e.at) <= sampleLife {
			out[name] = e.report
		}
	}
	return out
}

// ack takes in a scheduler's acknowledgement of a directive of the given
// leadership, and reports whether it was refused. Sequences begin anew with each
// leadership, so another's say nothing here. subject is what the directive is
// about, empty for caps: those are told again with each change.
func (r *jobReports) ack(e lease.Epoch, a *headroomv1.DirectiveAck, subject string) (refused bool) {
	if wire.Epoch(a.GetEpoch()) != e {
		return false
	}
	switch {
	case a.GetError() == "":
		r.newestAcked = max(r.newestAcked, a.GetSeq())
		delete(r.refusals, subject)
		if subject != "" {
			r.acked[subject] = true
		}
		return false
	case subject == "":
		r.newestRefused, r.refusal = a.GetSeq(), a.GetError()
	default:
		r.refusals[subject] = a.GetError()
	}
	return true
}
