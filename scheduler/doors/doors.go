// Package doors is what the scheduler's two doors have in common: that of its own jobs, and that of the applications
// that users submit to YARN.
//
// The one idea: package admission decides, each door carries out, and what was decided is told and committed in one form.
//
// Guarantees: a number that is not known is absent, or 0 where the message says so; what a job needed is learned once,
// whether its controller still knows it or not.
//
// It keeps nothing, starts nothing and decides nothing.
package doors

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/admission"
)

// Answer is a decision as it is told and committed.
func Answer(d *admission.Decision) *headroomv1.Admission {
	a := &headroomv1.Admission{Decision: d.Verdict.String(), Free: count(d.Free), Samples: count(d.Samples), Reason: d.Reason()}
	if d.Verdict == admission.Admitted {
		a.Slots = count(int(d.Slots))
	}
	if d.Work > 0 && d.Need <= admission.TasksMost { // it is known, and its deadline is ahead
		a.Need, a.WorkS, a.Confidence = count(d.Need), new(d.Work.Seconds()), new(d.Confidence)
	}
	if !d.Until.IsZero() {
		a.UntilUs = new(d.Until.UnixMicro())
	}
	if !d.Finish.IsZero() {
		a.FinishUs = new(d.Finish.UnixMicro())
	}
	if d.Nearest > 0 {
		a.NearestS = new(d.Nearest.Seconds())
	}
	return a
}

func count(n int) uint32 { return uint32(max(0, n)) }

// Ended tells a controller what a job needed that has its result. It teaches also where the controller no longer knows
// the job: its deadline has passed, or it was stopped. An error is a job that teaches nothing.
func Ended(c *admission.Controller, now time.Time, job admission.Job, work time.Duration) ([]admission.Decision, error) {
	if out, _, err := c.Finished(now, job.ID, work); err == nil {
		return out, nil
	}
	return nil, c.Learn(job, work)
}
