// Package verdicts is what the scheduler's two admission paths share: that of its own jobs, and that of applications that
// users submit to YARN.
//
// The one idea: package admission decides, each path carries out the decision, and both report and commit it in one form.
//
// Guarantees: an unknown number is absent, or 0 where the message says so; what a job needed is learned once, whether its
// controller still has it or not.
//
// It keeps no state, starts nothing and decides nothing.
package verdicts

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/admission"
)

// Answer returns a decision in the form in which it is reported and committed.
func Answer(d *admission.Decision) *headroomv1.Admission {
	a := &headroomv1.Admission{Decision: d.Verdict.String(), Free: count(d.Free), Samples: count(d.Samples), Reason: d.Reason()}
	if d.Verdict == admission.Admitted {
		a.Slots = count(int(d.Slots))
	}
	if d.Work > 0 && d.Need <= admission.TasksMost { // the work is known, and the deadline has not passed
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

// Ended reports to a controller what a completed job needed. The controller also learns from a job that it no longer has,
// because its deadline passed or it was stopped. It returns an error for a job that cannot be learned from.
func Ended(c *admission.Controller, now time.Time, job admission.Job, work time.Duration) ([]admission.Decision, error) {
	if out, _, err := c.Finished(now, job.ID, work); err == nil {
		return out, nil
	}
	return nil, c.Learn(job, work)
}
