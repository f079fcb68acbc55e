package dispatch

// The core's promises, event by event: K buffers, first come first served inside
// a class, no eviction, no idle slot while work waits, each task counted once.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/units"
)

var start = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)

// shared is a dispatcher of the discipline "shared".
func shared(classes ...string) *buffers.Buffers {
	return dispatcher(buffers.Shared, classes...)
}

// dispatcher is a dispatcher for one job at a time; the last class drops half of its tasks, the first sprints after 10 s.
func dispatcher(d buffers.Discipline, classes ...string) *buffers.Buffers {
	s := buffers.Settings{Discipline: d, Width: 1}
	for _, name := range classes {
		s.Classes = append(s.Classes, buffers.Class{Name: name})
	}
	s.Classes[0].Sprint, s.Classes[0].SprintAfter = true, 10*time.Second
	s.Classes[len(classes)-1].Theta = 0.5
	b, err := buffers.New(s)
	if err != nil {
		panic(err)
	}
	return b
}

// draws are those of the scheduler.
func draws(seed uint64) func() uint64 { return rand.NewPCG(seed, 0).Uint64 }

// driver drives a core and keeps what it wants done.
type driver struct {
	t   testing.TB
	c   *Core
	now time.Time
	// running are the attempts that were started and neither reported nor killed.
	running map[Ref]string
	ended   map[string]EndJob
	drops   map[string]int
	begun   []string
}

func newDriver(t testing.TB) *driver {
	return &driver{
		t: t, c: New(shared("high", "mid", "low"), 1, draws), now: start,
		running: make(map[Ref]string), ended: make(map[string]EndJob), drops: make(map[string]int),
	}
}

// step lets d pass and carries the actions out.
func (k *driver) step(d time.Duration) []Action {
	k.now = k.now.Add(d)
	actions := k.c.Step(k.now)
	for _, a := range actions {
		switch a := a.(type) {
		case StartJob:
			k.begun = append(k.begun, a.Job)
		case StartTask:
			k.running[a.Ref] = a.Node
		case Kill:
			delete(k.running, a.Ref)
		case DropTask:
			k.drops[a.Job]++
		case EndJob:
			k.ended[a.Job] = a
		case LoseWorker:
		}
	}
	return actions
}

func plan(id, class string, tasks, slots int) Plan {
	return Plan{ID: id, Name: id, Class: class, Slots: slots, MinTasks: 1, MaxAttempts: 3, Tasks: tasks}
}

func (k *driver) add(p Plan) {
	k.now = k.now.Add(time.Millisecond)
	p.Submitted = k.now
	testkit.Check(k.t, k.c.Add(k.now, p, Past{}))
}

// on are the running attempts, as "job/map-00001 n01", sorted.
func (k *driver) on() string {
	set := make(map[Ref]bool)
	for r := range k.running {
		set[r] = true
	}
	var parts []string
	for _, r := range sortedRefs(set) {
		parts = append(parts, fmt.Sprintf("%s%c%d@%s", r.Job, r.Phase.String()[0], r.Index, k.running[r]))
	}
	return strings.Join(parts, " ")
}

// finish reports the end of the task of that name.
func (k *driver) finish(job string, phase Phase, index int, failure string) {
	k.t.Helper()
	for r, node := range k.running {
		if r.Job == job && r.Phase == phase && r.Index == index {
			delete(k.running, r)
			k.c.Result(k.now, node, r, failure)
			k.step(0)
			return
		}
	}
	k.t.Fatalf("%s %s %d does not run", job, phase, index)
}

func (k *driver) want(what string) {
	k.t.Helper()
	if got := k.on(); got != what {
		k.t.Errorf("running %q, want %q", got, what)
	}
}

func TestFirstComeFirstServedByClass(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 1, nil)
	for _, p := range []Plan{plan("l1", "low", 1, 1), plan("l2", "low", 1, 1), plan("m1", "mid", 1, 1), plan("h1", "high", 1, 1), plan("h2", "high", 1, 1)} {
		k.add(p)
	}
	k.step(0)
	for len(k.running) > 0 {
		for r := range k.running {
			k.finish(r.Job, r.Phase, r.Index, "")
		}
	}
	if got := strings.Join(k.begun, " "); got != "h1 h2 m1 l1 l2" {
		t.Errorf("started %s", got)
	}
}

func TestRunningJobIsNotEvicted(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 2, nil)
	k.add(plan("low", "low", 4, 2))
	k.step(0)
	k.add(plan("high", "high", 2, 2))
	k.step(0)
	k.finish("low", PhaseMap, 0, "")
	k.want("lowm1@n1 lowm2@n1") // the low job leaves no slot unused
	k.finish("low", PhaseMap, 1, "")
	k.finish("low", PhaseMap, 2, "")
	k.want("highm0@n1 lowm3@n1") // now it does
	k.finish("high", PhaseMap, 0, "")
	k.want("highm1@n1 lowm3@n1")
}

func TestFreeSlotsGoByClassAndArrival(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 3, nil)
	k.add(plan("low", "low", 9, 1))
	k.step(0)
	k.add(plan("high", "high", 9, 1))
	k.add(plan("mid", "mid", 9, 9))
	k.step(0)
	k.want("highm0@n1 lowm0@n1 midm0@n1")
	k.c.SetCap("n1", Cap{Cap: 100 * units.Watt, Floor: 100 * units.Watt, Max: 200 * units.Watt}) // one slot
	k.finish("low", PhaseMap, 0, "")
	k.finish("mid", PhaseMap, 0, "")
	k.want("highm0@n1") // drained, not killed
	k.finish("high", PhaseMap, 0, "")
	k.want("highm1@n1")
	k.c.SetCap("n1", Cap{Cap: 200 * units.Watt, Floor: 100 * units.Watt, Max: 200 * units.Watt})
	k.step(0)
	k.want("highm1@n1 midm1@n1 midm2@n1") // the mid job may use more slots, and goes before
}

func TestTasksSpread(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 2, nil)
	k.c.Hello(k.now, "n2", 3, nil)
	k.add(plan("j", "low", 4, 4))
	k.step(0)
	k.want("jm0@n2 jm1@n1 jm2@n2 jm3@n1")
}

func TestFailureIsRetriedElsewhere(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 1, nil)
	k.c.Hello(k.now, "n2", 1, nil)
	k.add(plan("j", "low", 1, 1))
	k.step(0)
	k.finish("j", PhaseMap, 0, "broken disk")
	k.want("jm0@n2")
	k.finish("j", PhaseMap, 0, "broken disk")
	k.want("jm0@n1")
	k.finish("j", PhaseMap, 0, "exit status 3: no space left")
	e := k.ended["j"]
	if e.State != Failed || e.Outcome != "map task 0 failed 3 times, last on n1: exit status 3: no space left" {
		t.Errorf("ended as %+v", e)
	}
}

func TestReduceFollowsAllMaps(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 4, nil)
	p := plan("j", "low", 2, 4)
	p.Reduce = true
	k.add(p)
	k.step(0)
	k.finish("j", PhaseMap, 1, "")
	k.want("jm0@n1")
	k.finish("j", PhaseMap, 0, "")
	k.want("jr0@n1")
	if got := fmt.Sprint(k.c.Outputs("j")); got != "[0 1]" {
		t.Errorf("outputs %s", got)
	}
	k.finish("j", PhaseReduce, 0, "")
	if e := k.ended["j"]; e.State != Done || e.Done != 2 || e.Tasks != 2 {
		t.Errorf("ended as %+v", e)
	}
}

func TestDroppedTasksAreAFloor(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 4, nil)
	p := plan("j", "low", 4, 4)
	p.MinTasks, p.MaxAttempts = 0.75, 1
	k.add(p)
	k.step(0)
	k.finish("j", PhaseMap, 3, "bad")
	if k.drops["j"] != 1 {
		t.Fatalf("%d dropped", k.drops["j"])
	}
	k.finish("j", PhaseMap, 2, "bad")
	if e := k.ended["j"]; e.State != Failed || e.Done != 0 || len(k.running) != 0 {
		t.Errorf("ended as %+v with %q still running", e, k.on())
	}
}

func TestSilentWorkerLosesItsTasks(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 1, nil)
	k.add(plan("j", "low", 1, 1))
	k.step(0)
	k.c.Hello(k.now, "n2", 1, nil)
	k.c.Broken("n1")
	k.step(workerSilence - 2*time.Millisecond)
	k.want("jm0@n1")
	k.c.Alive(k.now, "n2")
	old := Ref{"j", PhaseMap, 0, 1<<16 | 1}
	k.step(time.Millisecond)
	if k.running[Ref{"j", PhaseMap, 0, 1<<16 | 2}] != "n2" {
		t.Fatalf("running %v", k.running)
	}
	// The lost attempt comes back: nobody waits for it, and its result counts for nothing.
	k.c.Hello(k.now, "n1", 1, []Ref{old})
	killed := false
	for _, a := range k.step(0) {
		killed = killed || a == Kill{"n1", old}
	}
	k.c.Result(k.now, "n1", old, "")
	k.step(0)
	if v := k.c.view(k.now, k.c.jobs["j"]); !killed || v.Done != 0 || v.Running != 1 {
		t.Errorf("killed %v, %+v", killed, v)
	}
	k.finish("j", PhaseMap, 0, "")
	if e := k.ended["j"]; e.State != Done || e.Done != 1 {
		t.Errorf("ended as %+v", e)
	}
}

func TestWorkerComesBackWithItsTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silent  time.Duration
		running bool
		want    string
	}{
		"still running":      {time.Second, true, "jm0@n1"},
		"after being lost":   {time.Minute, true, "jm0@n1"}, // nobody else had a slot for it
		"task was forgotten": {time.Second, false, "jm0@n1"},
	} {
		k := newDriver(t)
		k.c.Hello(k.now, "n1", 1, nil)
		k.add(plan("j", "low", 1, 1))
		k.step(0)
		k.c.Broken("n1")
		k.step(c.silent)
		var refs []Ref
		for r := range k.running {
			refs = append(refs, r)
		}
		attempts := len(refs)
		if !c.running {
			refs = nil
			clear(k.running)
		}
		k.c.Hello(k.now, "n1", 1, refs)
		k.step(0)
		if got := k.on(); got != c.want || attempts != 1 || len(k.running) != 1 {
			t.Errorf("%s: running %q, want %q", name, got, c.want)
		}
	}
}

func TestRestartedCoreTakesUpTheWork(t *testing.T) {
	t.Parallel()
	c := New(shared("high", "low"), 9, draws)
	p := plan("j", "low", 4, 4)
	p.Reduce, p.Submitted = true, start
	testkit.Check(t, c.Add(start, p, Past{Started: start.Add(-time.Minute), Done: []int{0, 3, 3, -1, 99}, Dropped: []int{3}, ReduceDone: true}))
	c.HoldUntil(start.Add(2 * time.Second))
	old := Ref{"j", PhaseMap, 1, 8<<16 | 1}
	c.Hello(start, "n1", 2, []Ref{old, {"gone", PhaseMap, 0, 1}})
	actions := c.Step(start)
	if len(actions) != 1 || actions[0] != (Kill{"n1", Ref{"gone", PhaseMap, 0, 1}}) {
		t.Fatalf("actions %v", actions)
	}
	c.Result(start, "n1", Ref{"gone", PhaseMap, 0, 1}, "stopped")
	c.Alive(start.Add(2*time.Second), "n1")
	actions = c.Step(start.Add(2 * time.Second))
	if len(actions) != 1 || actions[0] != (StartTask{"n1", Ref{"j", PhaseMap, 2, 9<<16 | 1}}) {
		t.Fatalf("actions %v", actions)
	}
	v := c.view(start.Add(2*time.Second), c.jobs["j"])
	if v.State != Running || v.Done != 1 || v.Dropped != 1 || v.Running != 2 || v.Runtime != 62*time.Second {
		t.Errorf("%+v", v)
	}
}

func TestRestartWithEverythingDone(t *testing.T) {
	t.Parallel()
	c := New(shared("low"), 1, draws)
	p := plan("j", "low", 2, 1)
	p.Reduce = true
	testkit.Check(t, c.Add(start, p, Past{Started: start, Done: []int{0, 1}, ReduceDone: true}))
	actions := c.Step(start)
	if e, ok := actions[len(actions)-1].(EndJob); !ok || e.State != Done || e.Done != 2 {
		t.Errorf("actions %v", actions)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 1, nil)
	k.add(plan("j", "low", 100, 1))
	k.step(0)
	if v := k.c.view(k.now, k.c.jobs["j"]); v.RateKnown {
		t.Error("a rate is known at once")
	}
	for i := range 20 {
		k.step(500 * time.Millisecond)
		k.finish("j", PhaseMap, i, "")
	}
	if v := k.c.view(k.now, k.c.jobs["j"]); !v.RateKnown || v.Rate < 2 || v.Rate > 2.2 {
		t.Errorf("rate %v, want 2 per second", v.Rate)
	}
	if v := k.c.view(k.now.Add(10*time.Second), k.c.jobs["j"]); v.Rate != 0 {
		t.Errorf("rate %v after 10 idle seconds", v.Rate)
	}
}

func TestEndedJobsAreBounded(t *testing.T) {
	t.Parallel()
	c := New(shared("low"), 1, draws)
	for i := range EndedMax + 10 {
		c.AddEnded(Plan{ID: fmt.Sprint(i), Submitted: start.Add(time.Duration(i))}, Done, "", 1, 0, time.Second)
	}
	if n := len(c.Jobs(start)); n != EndedMax || c.Knows("9") || !c.Knows("10") {
		t.Errorf("%d jobs kept", n)
	}
}

// Two attempts of one task on one node are kept apart.
func TestAttemptsOnOneNode(t *testing.T) {
	t.Parallel()
	old, newer := Ref{"j", PhaseMap, 0, 1<<16 | 1}, Ref{"j", PhaseMap, 0, 1<<16 | 3}
	for name, late := range map[string]func(*driver){
		"the old one succeeds": func(k *driver) { k.c.Result(k.now, "n1", old, "") },
		"the old one fails":    func(k *driver) { k.c.Result(k.now, "n1", old, "broken disk") },
		"the old one stops":    func(k *driver) { k.c.Stopped(k.now, "n1", old) },
		"both are reported":    func(k *driver) { k.c.Hello(k.now, "n1", 2, []Ref{old, newer}) },
		"only the new one is":  func(k *driver) { k.c.Hello(k.now, "n1", 2, []Ref{newer}) },
	} {
		k := newDriver(t)
		k.c.Hello(k.now, "n1", 2, nil)
		p := plan("j", "low", 1, 1)
		p.MaxAttempts = 1
		k.add(p)
		k.step(0)
		k.c.Hello(k.now, "n2", 1, nil)
		k.c.Broken("n1")
		k.now = k.now.Add(workerSilence)
		k.c.Alive(k.now, "n2")
		k.step(0) // a second attempt, on n2
		k.c.Hello(k.now, "n1", 2, []Ref{old})
		k.c.Gone(k.now, "n2")
		k.step(0) // a third, on n1, where the first has not ended
		late(k)
		k.step(0)
		if v := k.c.view(k.now, k.c.jobs["j"]); k.running[newer] != "n1" || v.State != Running || v.Running != 1 || v.Done != 0 {
			t.Errorf("%s: %+v, running %v", name, v, k.running)
		}
		k.c.Result(k.now, "n1", newer, "")
		k.step(0)
		if e := k.ended["j"]; e.State != Done || e.Done != 1 {
			t.Errorf("%s: ended as %+v", name, e)
		}
	}
}
