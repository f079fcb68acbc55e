// Claim (promise P13): a job that was admitted with a deadline ends with a verdict, met or missed by how much and why, by
// the times that its scheduler has seen; a promise that was taken back, or never given, has none.
package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/ledger"
	"headroom/units"
)

const submitted = int64(1_700_000_000_000_000)

// endedJob is a job with a deadline of a minute that ran from 5 s after its submission until so long after it.
func endedJob(state ledger.JobState, after time.Duration) ledger.Job {
	return ledger.Job{
		ID: "j", State: state, Submitted: submitted, Deadline: time.Minute, Tasks: 40, Done: 40, Runtime: after - 5*time.Second, Outcome: "disk full",
		Course: &ledger.JobCourse{Began: submitted + 5_000_000, Ended: submitted + after.Microseconds()},
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	with := func(j ledger.Job, change func(*ledger.Job)) ledger.Job {
		change(&j)
		return j
	}
	partly := func(j *ledger.Job) { j.Floor, j.Done = 0.5, 30 }
	for name, x := range map[string]struct {
		job  ledger.Job
		word string
		late time.Duration
		why  string
	}{
		"in time":  {endedJob(ledger.JobDone, 45*time.Second), "met", 0, "waited 5.0 s and ran 40.0 s; what the cap cost is unknown"},
		"too late": {endedJob(ledger.JobDone, 72*time.Second), "missed", 12 * time.Second, "waited 5.0 s and ran 67.0 s; what the cap cost is unknown"},
		"capped": {
			with(endedJob(ledger.JobDone, 75*time.Second), func(j *ledger.Job) {
				j.Uncapped, j.Energy = 50*time.Second, &ledger.JobEnergy{Energy: 3400 * units.Joule}
			}),
			"missed", 15 * time.Second, "waited 5.0 s and ran 70.0 s; the cap cost about 20.0 s, without it 50.0 s were expected; 3400 J",
		},
		"not slowed": {with(endedJob(ledger.JobDone, 45*time.Second), func(j *ledger.Job) { j.Uncapped = 50 * time.Second }), "met", 0, "waited 5.0 s and ran 40.0 s; the cap cost nothing"},
		// Such a job runs until its deadline, which its scheduler notices a moment later.
		"ended at its deadline":     {with(endedJob(ledger.JobDone, 60400*time.Millisecond), partly), "met", 0, "waited 5.0 s and ran 55.4 s; what the cap cost is unknown; 10 of 40 tasks dropped"},
		"reduced after it":          {with(endedJob(ledger.JobDone, 64*time.Second), partly), "missed", 4 * time.Second, "waited 5.0 s and ran 59.0 s; what the cap cost is unknown; 10 of 40 tasks dropped"},
		"a moment late with all":    {endedJob(ledger.JobDone, 60400*time.Millisecond), "missed", 400 * time.Millisecond, "waited 5.0 s and ran 55.4 s; what the cap cost is unknown"},
		"failed in time":            {endedJob(ledger.JobFailed, 30*time.Second), "missed", 0, "failed: disk full; waited 5.0 s and ran 25.0 s; what the cap cost is unknown"},
		"cancelled before":          {endedJob(ledger.JobCancelled, 30*time.Second), "", 0, ""},
		"cancelled after":           {endedJob(ledger.JobCancelled, 90*time.Second), "missed", 30 * time.Second, "cancelled: disk full; waited 5.0 s and ran 85.0 s; what the cap cost is unknown"},
		"no deadline":               {with(endedJob(ledger.JobDone, 90*time.Second), func(j *ledger.Job) { j.Deadline = 0 }), "", 0, ""},
		"it runs":                   {with(endedJob(ledger.JobAccepted, 90*time.Second), func(j *ledger.Job) { j.Course = nil }), "", 0, ""},
		"ended under older rules":   {with(endedJob(ledger.JobDone, 72*time.Second), func(j *ledger.Job) { j.Ended, j.Course = j.Course.Ended, nil }), "missed", 12 * time.Second, "ran 67.0 s; what the cap cost is unknown"},
		"refused while it waited":   {ledger.Job{State: ledger.JobFailed, Submitted: submitted, Deadline: time.Minute, Admission: &ledger.Admission{Decision: "queued"}, Course: &ledger.JobCourse{Ended: submitted + 50_000_000}}, "", 0, ""},
		"admitted, and never begun": {ledger.Job{State: ledger.JobFailed, Outcome: "its inputs are gone", Submitted: submitted, Deadline: time.Minute, Admission: &ledger.Admission{Decision: "admitted"}, Course: &ledger.JobCourse{Ended: submitted + 50_000_000}}, "missed", 0, "failed: its inputs are gone; ran 0.0 s; what the cap cost is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if v := x.job.Verdict(); v != (ledger.Verdict{Word: x.word, Late: x.late, Why: x.why}) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// Whatever the times, a verdict agrees with them.
func TestVerdictAgreesWithTheTimes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := ledger.Job{
			ID: "j", Submitted: submitted, State: rapid.SampledFrom([]ledger.JobState{ledger.JobDone, ledger.JobFailed}).Draw(t, "state"),
			Deadline: time.Duration(rapid.Int64Range(1, 1000).Draw(t, "deadline")) * time.Second, Floor: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "floor"),
		}
		ended := time.Duration(rapid.Int64Range(1, 2_000_000).Draw(t, "ended")) * time.Millisecond
		j.Course = &ledger.JobCourse{Began: submitted + 1, Ended: submitted + ended.Microseconds()}
		v, late := j.Verdict(), ended-j.Deadline
		if met := v.Word == ledger.VerdictMet; met && (j.State != ledger.JobDone || late > time.Second) || !met && (v.Word != ledger.VerdictMissed || j.State == ledger.JobDone && v.Late <= 0) {
			t.Fatalf("%s %v after its deadline: %+v", j.State, late, v)
		}
		if v.Why == "" || v.Late != 0 && v.Late != late {
			t.Fatalf("%v late: %+v", late, v)
		}
	})
}

// The end of a job is recorded once, with its course, and the audit log has the verdict.
func TestFinishWithCourse(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j", State: ledger.JobAccepted, Submitted: submitted, Deadline: time.Minute}})
	ends := func(x ledger.JobCourse) ledger.Command {
		return ledger.Command{Finish: &ledger.FinishJob{ID: "j", State: ledger.JobDone, Tasks: 4, Done: 4, Course: &x}}
	}
	for _, x := range []ledger.JobCourse{{}, {Began: 2, Ended: 1}, {Began: -1, Ended: 1}, {Ended: 1, Wasted: -1}, {Ended: 1, Longest: -1}, {Ended: 1, Work: -1}, {Ended: 1, Input: -1}} {
		refused(t, s, ends(x), ledger.ErrJob)
	}
	do(t, s, ends(ledger.JobCourse{Began: submitted, Ended: submitted + 72_000_000}))
	if what := s.Events[len(s.Events)-1].What; what != "job j done, 4 of 4 tasks, deadline missed by 12.0 s" {
		t.Errorf("the audit log says %q", what)
	}
	old := admitted(t, 800, "n01")
	old.Rules = ledger.RulesOfCourses - 1
	do(t, old, ledger.Command{Job: &ledger.Job{ID: "j", State: ledger.JobAccepted}})
	refused(t, old, ends(ledger.JobCourse{Ended: 1}), ledger.ErrRules)
}
