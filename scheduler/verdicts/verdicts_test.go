// Claims: a decision is told with the numbers that are known, and those alone; a job that has ended teaches once, whether
// the controller still knows it or not.
package verdicts_test

import (
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/admission"
	"headroom/scheduler/verdicts"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAnswer(t *testing.T) {
	t.Parallel()
	c := testkit.Need(admission.New(admission.Adaptive, 4))(t)
	job := admission.Job{ID: "a", User: "ann", Tasks: 4, Deadline: 10 * time.Minute}
	d := testkit.Need(c.Ask(now, job, 4, 0))(t)
	if a := verdicts.Answer(&d); a.GetDecision() != "admitted" || a.GetSlots() != 4 || a.GetFree() != 4 || a.GetNeed() != 0 || a.WorkS != nil || a.Confidence != nil || a.FinishUs != nil || a.GetReason() != d.Reason() {
		t.Errorf("nothing is known yet: %v", a)
	}
	testkit.Check(t, c.Learn(job, 20*time.Minute))
	d = testkit.Need(c.Ask(now, job, 4, 0))(t)
	if a := verdicts.Answer(&d); a.GetNeed() != 2 || a.GetSlots() != 4 || a.GetWorkS() != 1200 || a.GetConfidence() != 0.5 || a.GetSamples() != 1 || a.GetFinishUs() != now.Add(10*time.Minute).UnixMicro() {
		t.Errorf("as the one before: %v", a)
	}
	d = testkit.Need(c.Ask(now, job, 1, 0))(t)
	if a := verdicts.Answer(&d); a.GetDecision() != "refused" || a.GetSlots() != 0 || a.GetNearestS() < 1200 || a.UntilUs != nil {
		t.Errorf("one slot is not enough: %v", a)
	}
	d.Need = admission.TasksMost + 1
	if a := verdicts.Answer(&d); a.GetNeed() != 0 || a.WorkS != nil {
		t.Errorf("its deadline has passed: %v", a)
	}
}

func TestEnded(t *testing.T) {
	t.Parallel()
	c := testkit.Need(admission.New(admission.Adaptive, 4))(t)
	job := admission.Job{ID: "a", User: "ann", Tasks: 4, Deadline: 10 * time.Minute}
	testkit.Need(c.Submit(now, job))(t)
	later := now.Add(5 * time.Minute)
	testkit.Need(verdicts.Ended(c, later, job, 20*time.Minute))(t)
	if _, runs := c.Promised("a"); runs || c.Fraction() != 0.5 {
		t.Errorf("learned %v, it runs: %v", c.Fraction(), runs)
	}
	job.ID = "b" // the controller has never known it
	testkit.Need(verdicts.Ended(c, later, job, 30*time.Minute))(t)
	if d := testkit.Need(c.Ask(later, job, 4, 0))(t); d.Samples != 2 {
		t.Errorf("%d jobs have taught", d.Samples)
	}
	if _, err := verdicts.Ended(c, later, job, -1); err == nil {
		t.Error("taught by less than nothing")
	}
}
