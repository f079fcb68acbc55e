package scheduler

// Admission: asking changes nothing, what was judged is judged once, jobs that wait enter when their promise fits or end as
// refused, and another scheduler process goes on from what is committed. Nothing unknown and no error loses a job.

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/jobs/admission"
	"headroom/jobs/buffers"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
)

// plant is a loop without a server around it.
type plant struct {
	*loop

	t   *testing.T
	now time.Time
}

func newPlant(t *testing.T, policy, discipline string) *plant {
	t.Helper()
	cfg := Defaults()
	cfg.Dir, cfg.Discipline, cfg.Admission.Policy = t.TempDir(), discipline, policy
	cfg.Classes = []Class{{Name: "high"}, {Name: "low"}}
	logger := slog.New(slog.DiscardHandler)
	s := &Server{
		cfg: cfg, logger: logger, inbox: make(inbox, eventsMax), queue: testkit.Need(buffers.New(cfg.settings()))(t),
		tally: newTally(), engines: &engines{}, folders: testkit.Need(openFolders(cfg.Dir, logger))(t),
	}
	s.operations = newOperations(s.inbox)
	s.commits = newCommitter(identity{ID: "s1"}, nil, s.inbox, logger)
	p := &plant{newLoop(s), t, noon}
	readyEvent{}.apply(p.loop, p.now)
	return p
}

// worker lets a worker with so many slots connect.
func (p *plant) worker(slots int) { p.core.Hello(p.now, "n01", slots, nil) }

// record is a job of ten tasks.
func (p *plant) record(name, class, keys string) *record {
	p.t.Helper()
	f := testkit.Need(jobfile.Parse("/j/"+name+".yaml", []byte("name: "+name+"\nclass: "+class+"\nslots: 4\nmap: {input: /t/*, command: [cat]}\noutput: "+p.cfg.Dir+"/out\n"+keys), nil))(p.t)
	r := &record{file: f, dir: jobdir.Folder{Output: f.Output, ID: name}, submitted: p.now, inputs: jobdir.Inputs{Names: make([]string, 10), Sizes: make([]int64, 10)}, floor: f.Floor(nil)}
	r.deadline, _ = f.Due()
	r.spec = testkit.Need(f.Specification(r.floor))(p.t)
	r.at = testkit.Need(jobdir.Make(r.dir))(p.t)
	return r
}

func (p *plant) judged(r *record, queue, dry bool) *headroomv1.Admission {
	reply := make(chan *headroomv1.Admission, 1)
	judgeEvent{id: r.file.Name, record: r, queue: queue, dry: dry, reply: reply}.apply(p.loop, p.now)
	return <-reply
}

// commit is a job whose commit the coordinators have answered.
func (p *plant) commit(r *record) {
	addEvent{plan: r.plan(r.file.Name), record: r}.apply(p.loop, p.now)
}

// accept judges a job and commits it.
func (p *plant) accept(r *record, queue bool) *headroomv1.Admission {
	r.admission = p.judged(r, queue, false)
	p.commit(r)
	return r.admission
}

// pass lets time pass, and every decision be carried out.
func (p *plant) pass(d time.Duration) {
	p.t.Helper()
	p.now = p.now.Add(d)
	p.core.Alive(p.now, "n01")
	p.attend(p.now)
	p.endRefused(context.Background(), p.now)
	for _, a := range p.core.Step(p.now) {
		p.carryOut(context.Background(), p.now, a)
	}
}

// end lets a running job end well, after so much time of its slots.
func (p *plant) end(id string, work time.Duration) {
	p.t.Helper()
	r := p.records[id]
	p.core.Cancel(p.now, id, "over") // the core's own end is another matter
	p.core.Step(p.now)
	p.worker(4) // its attempts have ended
	p.leaveAdmission(p.now, r, dispatch.EndJob{Job: id, State: dispatch.Done, Tasks: 10, Done: 10, Work: work})
}

// readmitted are the jobs whose admission is to be committed again.
func (p *plant) readmitted() (jobs []*headroomv1.Job) {
	for {
		select {
		case j := <-p.commits.admitted:
			jobs = append(jobs, j)
		default:
			return jobs
		}
	}
}

func (p *plant) state(id string) string {
	for _, j := range p.core.Jobs(p.now) {
		if j.ID == id {
			return j.State.String()
		}
	}
	if p.waiting[id] != nil {
		return "waits"
	}
	return "unknown"
}

func TestDoorAdmitsInTurn(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	first, second := p.record("a", "low", "deadline: 10m\n"), p.record("b", "low", "deadline: 5m\n")
	for range 3 { // asking changes nothing
		if a := p.judged(first, false, true); a.GetDecision() != "admitted" || a.GetSlots() != 4 || len(p.admitter.promises) != 0 {
			t.Fatalf("asked: %v, %d promises", a, len(p.admitter.promises))
		}
	}
	if a := p.accept(first, false); a.GetSlots() != 4 || p.promised("a") != 4 {
		t.Errorf("%v, %d promised", a, p.promised("a"))
	}
	a := p.judged(second, false, false)
	e, _ := errors.AsType[*cli.Error](Refused("b", a, false))
	if a.GetDecision() != "queued" || e == nil || e.Exit != cli.ExitRefused || !strings.Contains(e.Hint, "--queue") || len(p.admitter.promises) != 1 {
		t.Errorf("%v, %v, %d promises", a, e, len(p.admitter.promises))
	}
	if a := p.accept(second, true); a.GetDecision() != "queued" || a.GetSlots() != 0 || a.UntilUs == nil || p.state("b") != "waits" {
		t.Errorf("%v, %s", a, p.state("b"))
	}
	p.commit(second) // found in the log once more
	p.pass(time.Second)
	if p.state("a") != "running" || p.state("b") != "waits" {
		t.Errorf("a is %s, b is %s", p.state("a"), p.state("b"))
	}
	p.pass(time.Minute)
	p.end("a", 2*time.Minute)
	p.pass(time.Second)
	if p.state("b") != "running" || p.waiting["b"] != nil || p.promised("b") < 1 {
		t.Errorf("b is %s with %d slots", p.state("b"), p.promised("b"))
	}
	if v := p.withSpec(p.now, p.core.Jobs(p.now)[1]); v.admission.GetDecision() != "admitted" || progressToProto(v).GetPromised() == 0 {
		t.Errorf("shown as %+v", v.admission)
	}
	if got := p.readmitted(); len(got) != 1 || got[0].GetId() != "b" || got[0].GetAdmission().GetDecision() != "admitted" || got[0].GetAdmission().GetSlots() == 0 ||
		!bytes.Equal(got[0].GetSpec(), second.spec) || got[0].GetFloor() != 1 || got[0].GetDeadlineS() != 300 {
		t.Errorf("committed again: %v", got)
	}
}

// What is admitted between its judgement and its commit was committed as waiting, and is committed again.
func TestAdmittedBeforeCommit(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	p.accept(p.record("first", "low", "deadline: 10m\n"), false)
	late := p.record("b", "low", "deadline: 5m\n")
	late.admission = proto.CloneOf(p.judged(late, true, false))
	p.pass(time.Minute)
	p.end("first", 2*time.Minute)
	p.commit(late)
	if got := p.readmitted(); late.admission.GetDecision() != "admitted" || p.state("b") != "queued" || len(got) != 1 || got[0].GetAdmission().GetDecision() != "admitted" {
		t.Errorf("b is %s by %v, committed again: %v", p.state("b"), late.admission, got)
	}
}

func TestWaitingEndsAsRefused(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	p.accept(p.record("a", "low", "deadline: 10m\n"), false)
	p.accept(p.record("b", "low", "deadline: 1m\n"), true)
	p.pass(59 * time.Second)
	if p.state("b") != "waits" {
		t.Fatalf("b is %s before its time", p.state("b"))
	}
	p.pass(2 * time.Second)
	select {
	case e := <-p.commits.ended:
		if e.Job != "b" || e.State != dispatch.Failed || !strings.HasPrefix(e.Outcome, "refused by admission: ") {
			t.Errorf("%+v", e)
		}
	default:
		t.Error("the end is not committed")
	}
	if p.state("b") != "failed" || p.waiting["b"] != nil || p.admitter.promises["b"] != nil {
		t.Errorf("b is %s", p.state("b"))
	}
}

// Refused at once, with the nearest deadline that could be kept: at that deadline the job is admitted.
func TestNearestDeadlineIsKept(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	p.accept(p.record("a", "low", "deadline: 1m\n"), false)
	p.pass(time.Second)
	p.end("a", 200*time.Second)
	p.worker(2)
	a := p.judged(p.record("b", "low", "deadline: 1m\n"), true, false)
	e, _ := errors.AsType[*cli.Error](Refused("b", a, true))
	if a.GetDecision() != "refused" || a.NearestS == nil || e == nil || !strings.Contains(e.Hint, nearest(a).String()) || len(p.admitter.promises) != 0 {
		t.Fatalf("%v, %v", a, e)
	}
	if p.tally.decisions["refused"] != 1 {
		t.Errorf("counted %v", p.tally.decisions)
	}
}

func TestUnknownCapacityAdmits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy, discipline, why string
		slots                   int
	}{
		"no worker":  {"adaptive", "shared", "no worker is connected", 0},
		"discipline": {"adaptive", "np", "discipline np runs", 4},
	} {
		p := newPlant(t, c.policy, c.discipline)
		if c.slots > 0 {
			p.worker(c.slots)
		}
		a := p.accept(p.record("a", "low", "deadline: 10m\n"), false)
		if a.GetDecision() != "admitted" || a.GetSlots() != 0 || !strings.Contains(a.GetReason(), c.why) || p.state("a") != "queued" {
			t.Errorf("%s: %v, job %s", name, a, p.state("a"))
		}
	}
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	r := p.record("a", "low", "deadline: 10m\n")
	r.deadline = 2 * admission.TimeMost // more than admission takes
	if a := p.accept(r, false); a.GetDecision() != "admitted" || !strings.Contains(a.GetReason(), "admission failed") || p.state("a") != "queued" {
		t.Errorf("%v, job %s", a, p.state("a"))
	}
}

// Slots that jobs without a promise hold are promised to nobody, unless their class is lower.
func TestOthersLeaveLess(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	p.commit(p.record("plain", "low", ""))
	p.pass(time.Second)
	if a := p.judged(p.record("a", "low", "deadline: 10m\n"), false, true); a.GetDecision() != "queued" {
		t.Errorf("of the same class: %v", a)
	}
	if a := p.judged(p.record("b", "high", "deadline: 10m\n"), false, true); a.GetSlots() != 4 {
		t.Errorf("of a higher class: %v", a)
	}
}

func TestCapCutsPromise(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	p.accept(p.record("a", "low", "deadline: 10m\n"), false)
	p.pass(time.Second)
	p.core.SetCap("n01", dispatch.Cap{Cap: 100, Floor: 100, Max: 400})
	p.pass(time.Second)
	if got := p.promised("a"); got > 1 {
		t.Errorf("%d slots are promised of 1", got)
	}
	if a := p.admitter.promises["a"].answer; !strings.Contains(a.GetReason(), "capacity changed") {
		t.Errorf("%v", a)
	}
}

// A retry of a request finds the same answer; what is never committed gives its slots back.
func TestReservationIsOnceAndEnds(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	r := p.record("a", "low", "deadline: 10m\n")
	if x, y := p.judged(r, false, false), p.judged(r, false, false); x != y {
		t.Errorf("%v, then %v", x, y)
	}
	withdrawEvent{"a"}.apply(p.loop, p.now)
	if a := p.judged(p.record("b", "low", "deadline: 10m\n"), false, false); a.GetSlots() != 4 {
		t.Errorf("%v", a)
	}
	p.pass(reservedFor + time.Second)
	if a := p.judged(p.record("c", "low", "deadline: 10m\n"), false, true); a.GetSlots() != 0 {
		t.Errorf("nobody knows whether b is committed, and its slots are given away: %v", a)
	}
	readyEvent{}.apply(p.loop, p.now) // the log was read: it is not
	p.pass(time.Second)
	if a := p.judged(p.record("c", "low", "deadline: 10m\n"), false, false); a.GetSlots() != 4 {
		t.Errorf("%v", a)
	}
}

// Another scheduler process goes on from what is committed.
func TestDoorIsRebuilt(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.admitter.opens = p.now.Add(restartHold)
	runs, waits := p.record("a", "low", "deadline: 10m\n"), p.record("b", "low", "deadline: 5m\n")
	waits.submitted = p.now.Add(-time.Second) // what runs comes back before it all the same
	runs.admission = &headroomv1.Admission{Decision: "admitted", Slots: 3, Reason: "as before"}
	waits.admission = &headroomv1.Admission{Decision: "queued", Reason: "as before"}
	over := &headroomv1.Job{
		Id: "z", Class: "low", State: headroomv1.JobState_JOB_STATE_DONE, Spec: runs.spec, Floor: 1, Admission: runs.admission,
		DeadlineS: new(600.0), Progress: &headroomv1.JobProgress{Tasks: 10, Done: 10, RuntimeS: new(300.0)},
	}
	(&restorer{engines: p.engines, folders: p.folders}).finished(over, dispatch.Done).apply(p.loop, p.now)
	addEvent{plan: runs.plan("a"), record: runs, past: dispatch.Past{Started: p.now}}.apply(p.loop, p.now)
	p.commit(waits)
	if p.state("a") != "running" || p.state("b") != "waits" || p.promised("a") != 3 {
		t.Errorf("a is %s with %d slots, b is %s", p.state("a"), p.promised("a"), p.state("b"))
	}
	if a := p.judged(p.record("c", "low", "deadline: 10m\n"), false, true); !strings.Contains(a.GetReason(), "has just started") {
		t.Errorf("%v", a)
	}
	p.worker(4)
	p.pass(restartHold)
	if p.promised("a") < 2 || p.state("b") != "waits" { // half of 4 slots for 10 minutes, as z needed
		t.Errorf("%d slots are promised to a, b is %s", p.promised("a"), p.state("b"))
	}
	if g := p.admitter.controllers[""]; g == nil || g.Fraction() != 0.5 {
		t.Errorf("learned %v", g)
	}
	p.now = p.now.Add(time.Minute)
	p.end("a", time.Minute)
	p.pass(time.Second)
	if p.state("b") != "running" {
		t.Errorf("b is %s", p.state("b"))
	}
}

// A job that waits is ended at its deadline also where nobody knows the slots.
func TestWaitingWithoutWorkersEnds(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	r := p.record("b", "low", "deadline: 5m\n")
	r.admission = &headroomv1.Admission{Decision: "queued", Reason: "as before"}
	p.commit(r)
	p.pass(5 * time.Minute)
	if p.state("b") != "failed" {
		t.Errorf("b is %s", p.state("b"))
	}
}

func TestWasteIsCounted(t *testing.T) {
	t.Parallel()
	y := newTally()
	waste := dispatch.Waste{Copies: time.Second, Failed: 2 * time.Second, Killed: 4 * time.Second}
	for _, c := range []struct {
		state dispatch.State
		late  bool
		want  float64
	}{{dispatch.Done, false, 7}, {dispatch.Done, true, 107}, {dispatch.Failed, false, 107}, {dispatch.Cancelled, true, 107}} {
		if got := y.ended(dispatch.EndJob{State: c.state, Wasted: waste}, 100*time.Second, c.late); got.Seconds() != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for why, want := range map[string]float64{wastedCopy: 4, wastedFailed: 108, wastedKilled: 116, wastedMissed: 100} {
		if y.wasted[why].Seconds() != want {
			t.Errorf("%s: %v, want %v s", why, y.wasted[why], want)
		}
	}
}

// A job that is ended by its deadline, with what it needs, has kept it; one whose floor is done later, or that needs all
// of its tasks and ends later, has not.
func TestEndedByItsDeadlineIsNotLate(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	partial, strict := p.record("a", "low", "deadline: 10m\nmin_tasks: 20%\n"), p.record("b", "low", "deadline: 10m\n")
	bounded, free := p.record("c", "low", "deadline: 10m\nerror: 80%\n"), p.record("d", "low", "min_tasks: 20%\n")
	due := p.now.Add(10 * time.Minute)
	for _, c := range []struct {
		what        string
		record      *record
		maps, ended time.Duration // after the deadline
		late        bool
	}{
		{"ended by it, and reduced", partial, stepEvery, 10 * time.Second, false},
		{"before it", partial, -time.Minute, -time.Second, false},
		{"floor done later", partial, 10 * time.Second, 10 * time.Second, true},
		{"needs all tasks", strict, stepEvery, stepEvery, true},
		{"needs all tasks, in time", strict, -time.Second, 0, false},
		{"ends by its error bound", bounded, stepEvery, stepEvery, true},
		{"no deadline", free, time.Hour, time.Hour, false},
	} {
		if got := c.record.late(due.Add(c.ended), dispatch.EndJob{Course: dispatch.Course{MapsOver: due.Add(c.maps)}}); got != c.late {
			t.Errorf("%s: late %v", c.what, got)
		}
	}
	if partial.late(due.Add(stepEvery), dispatch.EndJob{}) || !partial.late(due.Add(time.Second), dispatch.EndJob{}) {
		t.Error("what ends with its map tasks is not judged by its end")
	}
}

// Every policy but oracle can be named.
func TestAdmissionPolicies(t *testing.T) {
	t.Parallel()
	for policy, good := range map[string]bool{"adaptive": true, "pythia": true, "reactive": true, "nodrop": true, "off": true, "oracle": false, "": false, "x": false} {
		if err := (Admission{policy}).check(); (err == nil) != good {
			t.Errorf("%q: %v", policy, err)
		}
	}
	for _, policy := range []string{"pythia", "reactive", "nodrop"} {
		p := newPlant(t, policy, "shared")
		p.worker(4)
		if a := p.accept(p.record("a", "low", "deadline: 10m\n"), false); a.GetSlots() != 4 {
			t.Errorf("%s: %v", policy, a)
		}
		p.pass(11 * time.Minute)
		if p.state("a") != "running" {
			t.Errorf("%s: the job is %s past its deadline", policy, p.state("a"))
		}
	}
}

// A job is promised slots for the tasks of its floor: what it can do beyond them by its deadline is a gift.
func TestPromiseIsForTheFloor(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "adaptive", "shared")
	p.worker(4)
	if a := p.accept(p.record("a", "low", "deadline: 10m\nmin_tasks: 20%\n"), false); a.GetDecision() != "admitted" || a.GetSlots() != 2 {
		t.Fatalf("two of ten tasks: %v", a)
	}
	p.pass(time.Second)
	p.end("a", 20*time.Minute) // ten tasks of two minutes: those that were promised took four
	if a := p.judged(p.record("b", "low", "deadline: 10m\nmin_tasks: 20%\n"), false, true); a.GetWorkS() != (4 * time.Minute).Seconds() {
		t.Errorf("ten tasks were counted where two are promised: %v", a)
	}
}
