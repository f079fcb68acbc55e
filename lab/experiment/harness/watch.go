package harness

import (
	"fmt"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

// Outcome is what happened to a job.
type Outcome struct {
	Job *Job
	// Refused: it was not admitted, or turned away later.
	Refused bool
	// Took is the time from its submission to its end, Exec that from the begin of its last execution, Bound
	// that until the tasks that it may end on were done. Deadlines and Bound count from when the engine had it.
	Took, Exec, Bound time.Duration
	// Done and Dropped are its tasks, InTime those that were done by its deadline.
	Done, Dropped, InTime int
	// Work and Wasted are container seconds: all that it held, and those that counted for nothing.
	Work, Wasted float64
	// Runs is the number of its executions, Theta the largest part of its tasks that it had to drop.
	Runs  int
	Theta float64
	// Sprints is the number of its sprints, Spent what these took above the caps.
	Sprints int
	Spent   units.Energy
	// Drawn is the energy of the job, Wrong the error of its answer in percent; nil where not measured.
	Drawn *units.Energy
	Wrong *float64

	id          string
	sent, taken time.Duration
	began       time.Time
	ended       bool
	reached     bool
}

// Met reports whether a job with a deadline met it: the tasks that it may end on were done by then.
func (o *Outcome) Met() bool { return !o.Refused && o.InTime >= o.Job.Need() }

// Seen is what happened in a run.
type Seen struct {
	Jobs []Outcome
	// Energy is what all nodes drew.
	Energy units.Energy
	// KilledS and TotalS are seconds of machine time, of killed executions and of all.
	KilledS, TotalS float64
	Blind           bool

	index map[string]int // by job id
	last  time.Duration
	over  int
}

func newSeen(s *Setup) *Seen {
	w := &Seen{Jobs: make([]Outcome, len(s.Jobs)), Blind: s.Engine.Blind, index: map[string]int{}}
	for i := range s.Jobs {
		w.Jobs[i].Job = &s.Jobs[i]
	}
	return w
}

// look records the scheduler's state at a time since the run began. A job that failed is an error.
func (w *Seen) look(at time.Duration, l *headroomv1.ListResponse) error {
	w.KilledS, w.TotalS = l.GetDispatch().GetKilledS(), l.GetDispatch().GetTotalS()
	for _, run := range l.GetRuns() {
		if i, known := w.index[run.GetId()]; known && run.GetBeganUs() > 0 {
			w.Jobs[i].began = time.UnixMicro(run.GetBeganUs())
		}
	}
	for _, j := range l.GetJobs() {
		i, known := w.index[j.GetId()]
		if !known || w.Jobs[i].ended || w.Jobs[i].Refused {
			continue
		}
		o := &w.Jobs[i]
		o.progress(at, w.last, j)
		switch j.GetState() {
		case headroomv1.JobState_JOB_STATE_FAILED, headroomv1.JobState_JOB_STATE_CANCELLED:
			if !turnedAway(j) {
				return fmt.Errorf("experiment: job %s: %s", j.GetId(), j.GetOutcome())
			}
			o.Refused = true
			w.over++
			continue
		case headroomv1.JobState_JOB_STATE_DONE:
			o.end(at, int(j.GetProgress().GetDropped()))
			w.over++
		default:
		}
		if !o.reached && (o.Done >= o.Job.Need() || o.ended) {
			o.reached, o.Bound = true, at-o.taken
		}
	}
	w.last = at
	return nil
}

// progress takes in one look at a job that has not ended; last is the time of the look before.
func (o *Outcome) progress(at, last time.Duration, j *headroomv1.Job) {
	p := j.GetProgress()
	// An engine may count tasks that are not of its input as done.
	o.Done = max(o.Done, min(int(p.GetDone()), o.Job.Tasks-int(p.GetDropped())))
	o.Work += max(0, (at-max(last, o.taken)).Seconds()) * float64(max(p.GetContainers(), p.GetRunning()))
	o.Wasted = max(o.Wasted, p.GetWastedS())
	o.Runs = int(p.GetRun())
	o.Theta = max(o.Theta, p.GetTheta(), j.GetDeflation().GetTheta())
	if o.Job.Deadline == 0 || at-o.taken <= o.Job.Deadline {
		o.InTime = o.Done
	}
}

// turnedAway reports whether a job that has not ended well was refused. Of an application that YARN has not
// let in only its diagnostics have that.
func turnedAway(j *headroomv1.Job) bool {
	d := j.GetAdmission().GetDecision()
	return d == "queued" || d == "refused" || strings.Contains(j.GetOutcome(), "Headroom refuses ")
}

// grace is how much later than its deadline the end of a job may be seen that the scheduler ends then, with a part of its tasks: two looks.
const grace = time.Second / 2

// end records that a job is done. An engine may not report what was dropped: then it is what was not done.
func (o *Outcome) end(at time.Duration, dropped int) {
	o.ended, o.Took, o.Exec = true, at-o.sent, at-o.sent
	if !o.began.IsZero() {
		o.Exec = time.Since(o.began)
	}
	o.Dropped = min(o.Job.Tasks, max(0, dropped, o.Job.Tasks-o.Done))
	if o.Job.Floor > 0 && at-o.taken <= o.Job.Deadline+grace {
		o.InTime = o.Done
	}
}

// addSprints takes in the ledger's sprints and reports whether those of the jobs are over.
func (w *Seen) addSprints(records []*headroomv1.SprintRecord) bool {
	for i := range w.Jobs {
		w.Jobs[i].Sprints, w.Jobs[i].Spent = 0, 0
	}
	over := true
	for _, r := range records {
		if i, known := w.index[r.GetJob()]; known {
			w.Jobs[i].Sprints++
			w.Jobs[i].Spent += units.Energy(r.GetSpentUj())
			over = over && r.GetState() == "closed"
		}
	}
	return over
}
