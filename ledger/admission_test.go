// Claims: what admission has decided about a job stays with it, in the log and in snapshots; numbers that make no sense are
// refused with what is wrong; a job that waits may be admitted later, one that is admitted never waits again.
package ledger_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"headroom/ledger"
)

func promised(slots uint32) *ledger.Admission {
	return &ledger.Admission{Decision: ledger.AdmissionAdmitted, Slots: slots, Need: 2, Free: 9, Work: new(120.0), Confidence: new(0.9), Samples: 12, Reason: "enough are free"}
}

func accepted(a *ledger.Admission) ledger.Command {
	return ledger.Command{Job: &ledger.Job{ID: "k1", State: ledger.JobAccepted, Deadline: time.Minute, Admission: a}}
}

func TestAdmissionIsKept(t *testing.T) {
	t.Parallel()
	s := crowded(t)
	waits := &ledger.Admission{Decision: ledger.AdmissionQueued, Need: 5, Free: 1, Until: 1_700_000_000_000_000}
	do(t, s, accepted(waits))
	do(t, s, accepted(promised(3)))
	back, err := ledger.Restore([]byte(snapshot(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	for name, state := range map[string]*ledger.State{"the log": s, "the snapshot": back} {
		if a := state.Jobs["k1"].Admission; a == nil || a.Slots != 3 || *a.Work != 120 || *a.Confidence != 0.9 || a.Reason == "" {
			t.Errorf("%s has %+v", name, a)
		}
	}
	refused(t, s, accepted(waits), ledger.ErrJob)
	before := snapshot(t, s)
	do(t, s, accepted(nil)) // an older scheduler asks again
	do(t, s, accepted(promised(3)))
	if snapshot(t, s) != before {
		t.Error("the same job again has changed something")
	}
	do(t, s, accepted(promised(2))) // capacity has changed
	if got := s.Jobs["k1"].Admission.Slots; got != 2 {
		t.Errorf("%d slots", got)
	}
	do(t, s, ledger.Command{Finish: &ledger.FinishJob{ID: "k1", State: ledger.JobDone}})
	do(t, s, accepted(promised(9)))
	if got := s.Jobs["k1"].Admission.Slots; got != 2 {
		t.Errorf("a job that is over is promised %d slots", got)
	}
}

// A log that was written before jobs had admissions means what it meant.
func TestJobsWithoutAdmission(t *testing.T) {
	t.Parallel()
	c, err := ledger.Decode([]byte(`{"rules":1,"epoch":{"incarnation":1,"term":1},"job":{"id":"old","name":"wc","class":"low","spec":"e30=","submitted_us":5,"state":"accepted","deadline_ns":600000000000}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := crowded(t)
	c.Epoch = s.Epoch
	do(t, s, c)
	text := snapshot(t, s)
	if j := s.Jobs["old"]; j.Admission != nil || j.Deadline != 10*time.Minute || strings.Contains(text, "admission") {
		t.Errorf("%+v in\n%s", j, text)
	}
	if back, err := ledger.Restore([]byte(text)); err != nil || back.Jobs["old"].Admission != nil {
		t.Errorf("restored %v", err)
	}
}

func TestWrongAdmissions(t *testing.T) {
	t.Parallel()
	for says, edit := range map[string]func(a *ledger.Admission){
		`is "refused"`:                         func(a *ledger.Admission) { a.Decision = "refused" },
		`is ""`:                                func(a *ledger.Admission) { a.Decision = "" },
		"at most 10000000 are taken":           func(a *ledger.Admission) { a.Slots = math.MaxUint32 },
		"needs 10000001":                       func(a *ledger.Admission) { a.Need = 10_000_001 },
		"promises 3 slots to a job that waits": func(a *ledger.Admission) { a.Decision = ledger.AdmissionQueued },
		"NaN slot seconds":                     func(a *ledger.Admission) { a.Work = new(math.NaN()) },
		"-1 slot seconds":                      func(a *ledger.Admission) { a.Work = new(-1.0) },
		"+Inf slot seconds":                    func(a *ledger.Admission) { a.Work = new(math.Inf(1)) },
		"a confidence of 1.5":                  func(a *ledger.Admission) { a.Confidence = new(1.5) },
		"a confidence of NaN":                  func(a *ledger.Admission) { a.Confidence = new(math.NaN()) },
		"neither may be before 1970":           func(a *ledger.Admission) { a.Until = -1 },
		"a reason of 2001 bytes":               func(a *ledger.Admission) { a.Reason = strings.Repeat("x", 2001) },
	} {
		s, a := crowded(t), promised(3)
		edit(a)
		c := accepted(a)
		c.Epoch = s.Epoch
		if _, err := s.Apply(c); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `job "k1"`) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
