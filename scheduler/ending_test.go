// Claims: a deadline that the fastest earlier run of a job could not have met is refused, whoever reads the log; an ended
// job is shown with one account of its time, that of the coordinators once they have it.
package scheduler

import (
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
)

// run lets a job run on the plant's slots, each task for so long, and returns how it went.
func (p *plant) run(id string, task time.Duration) ending {
	p.t.Helper()
	p.accept(p.record(id, "low", ""), false)
	p.pass(time.Second)
	p.settle(nil)
	for range 20 {
		p.pass(task)
		p.settle(nil)
		w := p.core.Workers()[0]
		for _, j := range p.core.Jobs(p.now) {
			for i := range j.Tasks {
				for attempt := range uint32(3) {
					p.core.Result(p.now, w.Node, dispatch.Ref{Job: id, Phase: dispatch.PhaseMap, Index: i, Attempt: attempt}, "")
				}
			}
		}
		p.pass(0)
		p.settle(nil)
		if len(p.commits.ended) > 0 {
			return <-p.commits.ended
		}
	}
	p.t.Fatalf("job %s does not end", id)
	return ending{}
}

// With more time no job is refused that could run: ten tasks of two seconds on two slots.
func TestDeadlineBelowTheFastestRun(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(2)
	e := p.run("words", 2*time.Second)
	if e.State != dispatch.Done || e.went.GetSlots() != 2 || e.went.GetWorkS() != 20 || e.went.GetLongestS() != 2 || e.went.GetBeganUs() == 0 || e.went.GetEndedUs()-e.went.GetBeganUs() != e.Runtime.Microseconds() {
		t.Fatalf("%+v went %v", e.EndJob, e.went)
	}
	ask := func(p *plant, name, keys string) *headroomv1.Admission {
		r := p.record(name, "low", keys)
		return p.judged(r, false, true)
	}
	if a := ask(p, "words", "deadline: 3s\n"); a.GetDecision() != "refused" || !strings.Contains(a.GetReason(), "the fastest of its 1 earlier runs would take 10s on the 2 slots") || a.GetNearestS() < 10 || a.GetNearestS() > 11 {
		t.Errorf("%v", a)
	}
	for keys, want := range map[string]string{"deadline: 11s\n": "admitted", "deadline: 3s\nsubmitter: submitter/bob\n": "admitted", "deadline: 6s\nmin_tasks: 50%\n": "admitted"} {
		if a := ask(p, "words", keys); a.GetDecision() != want {
			t.Errorf("%q: %v", keys, a)
		}
	}
	if a := ask(p, "letters", "deadline: 3s\n"); a.GetDecision() != "admitted" {
		t.Errorf("another name: %v", a)
	}

	// The next scheduler process learns it from the log, and where nothing is promised it counts as well.
	r := p.record("words", "low", "")
	over := &headroomv1.Job{
		Id: "words-1", Name: "words", Class: "low", Spec: r.spec, SubmittedUs: noon.UnixMicro(), State: headroomv1.JobState_JOB_STATE_DONE, Floor: 1, End: e.went,
		Progress: &headroomv1.JobProgress{Tasks: 10, Done: 10, RuntimeS: new(e.Runtime.Seconds())},
	}
	for _, discipline := range []string{"shared", "dias"} {
		next := newPlant(t, "adaptive", discipline)
		(&restorer{engines: next.engines, folders: next.folders}).finished(over, dispatch.Done).apply(next.loop, next.now)
		next.worker(2)
		if a := ask(next, "words", "deadline: 3s\n"); a.GetDecision() != "refused" || !strings.Contains(a.GetReason(), "1 earlier run") {
			t.Errorf("%s: %v", discipline, a)
		}
		if v := next.withSpec(next.now, next.core.Jobs(next.now)[0]); jobToProto(v).GetEnd().GetSlots() != 2 {
			t.Errorf("%s: listed as %v", discipline, jobToProto(v).GetEnd())
		}
	}
}

func TestOneAccountOfWaste(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(2)
	e := p.run("words", 2*time.Second)
	if e.went.GetWastedS() != 0 {
		t.Errorf("%v wasted", e.went.GetWastedS())
	}
	judgedEvent{"words", &headroomv1.JobEnd{Verdict: "missed", WastedS: 6.5}}.apply(p.loop, p.now)
	judgedEvent{"gone", &headroomv1.JobEnd{}}.apply(p.loop, p.now)
	if j := jobToProto(p.withSpec(p.now, p.core.Jobs(p.now)[0])); j.GetEnd().GetVerdict() != "missed" || j.GetProgress().GetWastedS() != 6.5 {
		t.Errorf("%v, %v wasted", j.GetEnd(), j.GetProgress().GetWastedS())
	}

	// A cancelled job has wasted what its tasks have had until then.
	p.accept(p.record("more", "low", ""), false)
	p.pass(time.Second)
	p.settle(nil)
	p.pass(3 * time.Second)
	v := p.withSpec(p.now, p.core.Jobs(p.now)[1])
	if e := v.wentUntil(p.now); e.GetWastedS() != 6 || e.GetEndedUs() != p.now.UnixMicro() || e.GetBeganUs() != p.now.Add(-3*time.Second).UnixMicro() {
		t.Errorf("%v", e)
	}
}
