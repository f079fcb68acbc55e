package promises

import (
	"fmt"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

// outcome is what was seen of a job. Times count from its submission.
type outcome struct {
	submitted time.Duration // since the run began
	refused   bool
	why       string // it was refused
	ended     bool
	took      time.Duration // until its end
	done      int           // tasks, at the last look
	inTime    int           // tasks done by its deadline
	reached   bool          // the tasks that it may end on are done
	bound     time.Duration // until they were
	work      float64       // container seconds that it held
	wasted    float64       // container seconds that counted for nothing, by the scheduler's word
	copies    int           // the most of its copies that ran at once
}

// watch is what was seen of a run so far: one look at the scheduler after the other. It reads no clock.
type watch struct {
	jobs     []job
	outcomes []outcome
	index    map[string]int // by job id
	last     time.Duration
	over     int  // jobs that have ended or were refused
	blind    bool // the engine does not tell of copies and wasted work
}

func newWatch(jobs []job) *watch {
	return &watch{jobs: jobs, outcomes: make([]outcome, len(jobs)), index: map[string]int{}}
}

// submit notes that a job was accepted; at is the time since the run began.
func (w *watch) submit(i int, id string, at time.Duration) {
	w.index[id] = i
	w.outcomes[i].submitted = at
}

// refuse notes that a job was refused, and why.
func (w *watch) refuse(i int, why string) {
	w.outcomes[i].refused, w.outcomes[i].why = true, why
	w.over++
}

// look records the scheduler's state. A job that has not ended as it should is an error.
func (w *watch) look(at time.Duration, l *headroomv1.ListResponse) error {
	for _, j := range l.GetJobs() {
		i, ok := w.index[j.GetId()]
		if !ok || w.outcomes[i].ended || w.outcomes[i].refused {
			continue
		}
		o, p := &w.outcomes[i], j.GetProgress()
		// An engine may count tasks that are not of its input as done.
		o.done = max(o.done, min(int(p.GetDone()), w.jobs[i].tasks-int(p.GetDropped())))
		o.work += max(0, (at-max(w.last, o.submitted)).Seconds()) * float64(max(p.GetContainers(), p.GetRunning()))
		o.wasted = max(o.wasted, p.GetWastedS())
		o.copies = max(o.copies, int(p.GetCopies()))
		since := at - o.submitted
		if w.jobs[i].deadline == 0 || since <= w.jobs[i].deadline {
			o.inTime = o.done
		}
		switch j.GetState() {
		case headroomv1.JobState_JOB_STATE_FAILED, headroomv1.JobState_JOB_STATE_CANCELLED:
			if !turnedAway(j) {
				return fmt.Errorf("promises: job %s: %s", j.GetId(), j.GetOutcome())
			}
			w.refuse(i, j.GetOutcome())
			continue
		case headroomv1.JobState_JOB_STATE_DONE:
			w.end(i, since)
		default:
		}
		if !o.reached && (o.done >= w.jobs[i].need() || o.ended) {
			o.reached, o.bound = true, since
		}
	}
	w.last = at
	return nil
}

// turnedAway reports whether a job that has ended badly was refused. Of an application that YARN has not let in only its
// diagnostics say so.
func turnedAway(j *headroomv1.Job) bool {
	d := j.GetAdmission().GetDecision()
	return d == "queued" || d == "refused" || strings.Contains(j.GetOutcome(), "Headroom refuses ")
}

// grace is how much later than its deadline a job may be seen to end that the scheduler ends then: two looks.
const grace = time.Second / 2

func (w *watch) end(i int, since time.Duration) {
	o, j := &w.outcomes[i], &w.jobs[i]
	o.ended, o.took = true, since
	if j.kind == partial && since <= j.deadline+grace {
		o.inTime = o.done
	}
	w.over++
}

// met reports whether a job with a deadline has kept it: the tasks that it may end on were done by then.
func (o *outcome) met(j *job) bool { return !o.refused && o.inTime >= j.need() }
