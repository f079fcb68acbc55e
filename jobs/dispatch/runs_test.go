package dispatch

// Runs as the paper's disciplines want them: one job at a time, killed and started anew under p alone, with the drop ratio
// of its class from the first task on, with a sprint timer that counts from the true dispatch, whatever restarts.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/units"
)

// night is a driver for one job at a time that keeps every action in words.
type night struct {
	*driver
	log  []string
	runs map[string]RunRecord
	// killed are the attempts that the last step told to stop.
	killed map[Ref]string
	// dropped are those of the last drop ratio.
	dropped []int
}

func newNight(t testing.TB, d buffers.Discipline, nodes ...string) *night {
	k := newDriver(t)
	k.c = New(dispatcher(d, "high", "low"), 1, draws)
	for _, n := range nodes {
		k.c.Hello(k.now, n, 2, nil)
	}
	return &night{driver: k, runs: map[string]RunRecord{}}
}

// pass lets d pass and notes what the core wants.
func (n *night) pass(d time.Duration) {
	for name := range n.c.workers {
		n.c.Alive(n.now.Add(d), name)
	}
	killed := map[Ref]string{}
	for _, a := range n.step(d) {
		switch a := a.(type) {
		case StartJob:
			n.note("start %s.%d", a.Job, a.Run.Number)
			n.runs[a.Job] = a.Run
		case KeepRun:
			n.runs[a.Job] = a.Run
		case Deflate:
			n.note("deflate %s %v", a.Job, a.Run.Theta)
		case DropTasks:
			n.dropped = a.Indexes
			n.note("drop %d of %s", len(a.Indexes), a.Job)
		case RequeueJob:
			n.note("back %s for %s", a.Job, a.For)
			n.runs[a.Job] = a.Run
		case SprintDue:
			n.note("sprint %s", a.Job)
		case Kill:
			killed[a.Ref] = a.Node
			n.note("stop %v", a.Ref.Job)
		case StartRun:
			n.note("engine starts %s.%d theta %v", a.Job, a.Run.Number, a.Run.Theta)
		case AdoptRun:
			n.note("engine adopts %s.%d", a.Job, a.Run.Number)
		case KillRun:
			n.note("engine kills %s.%d", a.Job, a.Number)
		case DeflateRun:
			n.note("engine deflates %s to %v", a.Job, a.Theta)
		case EndJob:
			n.note("%s %s", a.Job, a.State)
		}
	}
	n.killed = killed
}

func (n *night) note(format string, args ...any) { n.log = append(n.log, fmt.Sprintf(format, args...)) }

func (n *night) expect(want ...string) {
	n.t.Helper()
	if !slices.Equal(n.log, want) {
		n.t.Fatalf("got  %q\nwant %q", n.log, want)
	}
	n.log = nil
}

func (n *night) restart(d buffers.Discipline, jobs ...Plan) {
	n.c = New(dispatcher(d, "high", "low"), 2, draws)
	for _, p := range jobs {
		testkit.Check(n.t, n.c.Add(n.now, p, Past{Run: n.runs[p.ID]}))
	}
}

func at(p Plan, t time.Time) Plan { p.Submitted = t; return p }

// Under p a higher job kills the lower one, waits until its tasks are over, and goes first; the lower one then starts from
// the beginning: tasks done in the killed run run again. Its machine time is waste.
func TestPreemptiveRestart(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.P, "n1")
	n.add(plan("low", "low", 3, 2))
	n.add(plan("low2", "low", 1, 1))
	n.pass(0)
	n.expect("start low.1")
	n.finish("low", PhaseMap, 0, "")
	n.add(plan("high", "high", 1, 1))
	n.pass(time.Second)
	n.expect("stop low", "stop low")
	told := n.killed
	n.pass(time.Second)
	n.expect() // the workers have not answered
	for ref, node := range told {
		n.c.Stopped(n.now, node, ref)
	}
	n.pass(0)
	n.expect("back low for high", "start high.1")
	n.pass(time.Second)
	n.finish("high", PhaseMap, 0, "")
	n.pass(0)
	if v := n.c.view(n.now, n.c.jobs["low"]); v.Done != 0 || v.Run.Number != 2 || v.Running != 2 {
		t.Fatalf("low is %+v, want its second run from the beginning", v)
	}
	if w := n.c.queue.Waste(); w.Killed <= 0 || w.Killed >= w.Total {
		t.Fatalf("waste %+v", w)
	}
	for i := range 3 {
		n.finish("low", PhaseMap, i, "")
	}
	if n.ended["low"].State != Done || n.ended["low"].Done != 3 {
		t.Fatalf("low ended as %+v", n.ended["low"])
	}
}

// An attempt of a killed run that a lost worker brings back is not taken for one of the next run.
func TestAttemptOfAKilledRun(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.P, "n1")
	n.add(plan("low", "low", 2, 1))
	n.pass(0)
	n.finish("low", PhaseMap, 0, "")
	var old Ref
	for r := range n.running {
		old = r
	}
	n.add(plan("high", "high", 1, 1))
	n.pass(0)
	n.c.Broken("n1")
	n.c.Hello(n.now, "n2", 2, nil)
	n.c.Alive(n.now.Add(workerSilence), "n2")
	n.step(workerSilence)
	n.finish("high", PhaseMap, 0, "")
	n.c.Hello(n.now, "n1", 2, []Ref{old})
	n.killed = nil
	n.pass(0)
	if n.killed[old] != "n1" {
		t.Fatalf("told to stop: %v, want %v", n.killed, old)
	}
	n.c.Result(n.now, "n1", old, "")
	n.pass(0)
	if v := n.c.view(n.now, n.c.jobs["low"]); v.Done != 0 || v.Running != 1 || v.Run.Number != 2 { // task 0 on n2
		t.Fatalf("low is %+v, want its second run under way with nothing done", v)
	}
}

// A run that reaches its end although it was told to stop is done.
func TestDoneBeforeTheKill(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.P, "n1")
	n.add(plan("low", "low", 1, 1))
	n.pass(0)
	var last Ref
	for r := range n.running {
		last = r
	}
	n.add(plan("high", "high", 1, 1))
	n.pass(0)
	n.c.Result(n.now, "n1", last, "")
	n.pass(0)
	n.expect("start low.1", "stop low", "low done", "start high.1")
}

// Without p nothing is killed, and one job runs at a time although slots are free.
func TestNonPreemptiveDisciplines(t *testing.T) {
	t.Parallel()
	for _, d := range []buffers.Discipline{buffers.NP, buffers.NPS} {
		n := newNight(t, d, "n1", "n2")
		n.add(plan("low", "low", 2, 1))
		n.pass(0)
		n.add(plan("low2", "low", 1, 1))
		n.add(plan("high", "high", 1, 1))
		n.pass(0)
		n.finish("low", PhaseMap, 0, "")
		n.finish("low", PhaseMap, 1, "")
		n.pass(0)
		if got := strings.Join(n.begun, " "); got != "low high" {
			t.Errorf("%s: started %s", d, got)
		}
	}
}

// No task starts before the drop ratio is committed; then the tasks that the seed says are dropped, the same after a restart.
func TestDropRatioComesFirst(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.DA, "n1")
	p := plan("low", "low", 10, 4)
	p.MinTasks = 0.3
	n.add(p)
	n.pass(time.Second)
	n.expect("start low.1", "deflate low 0.5")
	if len(n.running) != 0 {
		t.Fatalf("%v run before the drop ratio is committed", n.running)
	}
	n.c.Deflated(n.now, "low", 1, 0.5, "")
	n.pass(0)
	n.expect("drop 5 of low")
	dropped := n.dropped
	n.restart(buffers.DA, at(p, n.now))
	n.pass(0)
	n.expect("drop 5 of low") // a crash came before they were recorded
	if !slices.Equal(n.dropped, dropped) {
		t.Fatalf("dropped %v, after a restart %v", dropped, n.dropped)
	}
	n.restart(buffers.DA, at(p, n.now))
	if v := n.c.view(n.now, n.c.jobs["low"]); v.Dropped != 5 || v.Run.Theta != 0.5 {
		t.Fatalf("after a restart %+v", v)
	}
}

// A job keeps what its floor asks for, whatever its class drops, and says why; refused, it runs on all of its tasks.
func TestDropRatioAndFloor(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.DIAS, "n1")
	strict, partly, refused := plan("a", "low", 10, 20), plan("b", "low", 10, 20), plan("c", "low", 10, 20)
	partly.MinTasks, refused.MinTasks = 0.8, 0.1
	n.add(strict)
	n.add(partly)
	n.add(refused)
	n.pass(0)
	n.expect("start a.1")
	if v := n.c.view(n.now, n.c.jobs["a"]); v.Run.Theta != 0 || !strings.Contains(v.Run.Why, "floor of 100 %") {
		t.Errorf("a: %+v", v.Run)
	}
	n.c.Cancel(n.now, "a", "")
	n.pass(0)
	n.log = nil
	if r := n.runs["b"]; r.Theta < 0.2-1e-9 || r.Theta > 0.2+1e-9 {
		t.Errorf("b runs with %v, want the 20 %% that its floor leaves", r.Theta)
	}
	n.c.Deflated(n.now, "b", 1, n.runs["b"].Theta, "")
	n.pass(0)
	n.expect("drop 2 of b")
	n.c.Cancel(n.now, "b", "")
	n.pass(0)
	n.c.Deflated(n.now, "c", 1, 0, "refused")
	n.pass(0)
	if v := n.c.view(n.now, n.c.jobs["c"]); v.Dropped != 0 || v.Run.Why != "refused" || len(n.c.jobs["c"].pending) != 10 {
		t.Errorf("c: %+v", v)
	}
}

// A running job drops tasks that have not begun, never more than its floor leaves, and never takes one up again.
func TestDeflateRunning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := testkit.Need(buffers.New(buffers.Settings{Discipline: buffers.NP, Width: 1, Classes: []buffers.Class{{Name: "low"}}}))(t)
		c := New(b, 1, draws)
		p := plan("j", "low", rapid.IntRange(1, 40).Draw(t, "tasks"), rapid.IntRange(1, 8).Draw(t, "slots"))
		p.MinTasks = rapid.Float64Range(0.01, 1).Draw(t, "floor")
		testkit.Check(t, c.Add(start, p, Past{}))
		c.Hello(start, "n", 8, nil)
		c.Step(start)
		before := 0
		for range rapid.IntRange(1, 4).Draw(t, "directives") {
			theta := rapid.Float64Range(0, 1).Draw(t, "theta")
			err := c.Deflate("j", theta, 7, "")
			v := c.view(start, c.jobs["j"])
			if refused := theta > 1-p.MinTasks+1e-9 || units.Ratio(1-theta).Kept(p.Tasks) < units.Ratio(p.MinTasks).Of(p.Tasks); refused != errors.Is(err, errFloor) || refused && v.Dropped != before {
				t.Fatalf("theta %v, floor %v: %v, %d dropped", theta, p.MinTasks, err, v.Dropped)
			}
			if v.Dropped < before || p.Tasks-v.Dropped < units.Ratio(p.MinTasks).Of(p.Tasks) || v.Running > p.Tasks-v.Dropped {
				t.Fatalf("%d of %d dropped, %d before, floor %v", v.Dropped, p.Tasks, before, p.MinTasks)
			}
			before = v.Dropped
		}
	})
}

// A sprint timer fires once, counted from the true dispatch, over a restart too; a clock set back makes nothing negative.
func TestSprintTimer(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.NPS, "n1")
	p := plan("high", "high", 1, 1)
	n.add(p)
	n.pass(0)
	n.expect("start high.1")
	n.pass(6 * time.Second)
	n.expect()
	n.restart(buffers.NPS, at(p, n.now))
	n.pass(4 * time.Second)
	n.expect("sprint high")
	n.pass(time.Minute)
	n.expect()
	began := n.now
	n.now = n.now.Add(-time.Hour) // the clock is set back, and the scheduler starts again
	n.restart(buffers.NPS, at(p, began))
	if v := n.c.view(n.now, n.c.jobs["high"]); v.Runtime < 0 || v.Run.Began.After(n.now) {
		t.Fatalf("after a step back: %+v", v)
	}
	n.c.Hello(n.now, "n1", 2, nil)
	n.pass(10 * time.Second)
	n.expect("sprint high")
	if v := n.c.view(n.now.Add(-time.Minute), n.c.jobs["high"]); v.Runtime < 0 {
		t.Fatalf("runtime %v", v.Runtime)
	}
}

// While drained running jobs end and none begins, in every discipline.
func TestDrained(t *testing.T) {
	t.Parallel()
	for _, d := range buffers.Disciplines() {
		n := newNight(t, d, "n1")
		n.add(plan("a", "high", 1, 1))
		n.pass(0)
		n.c.queue.Drain(true)
		n.add(plan("b", "high", 1, 1))
		n.finish("a", PhaseMap, 0, "")
		n.pass(time.Second)
		if got := strings.Join(n.begun, " "); got != "a" || n.ended["a"].State != Done {
			t.Errorf("%s: drained, %q began, a is %v", d, got, n.ended["a"].State)
		}
		n.c.queue.Drain(false)
		n.pass(time.Second)
		if got := strings.Join(n.begun, " "); got != "a b" {
			t.Errorf("%s: %q began", d, got)
		}
	}
}

// An engine's job: started after its drop ratio is committed, killed for a higher class and started anew, cancelled with the
// next one waiting until it is over, adopted after a restart.
func TestEngineRuns(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.P)
	spark := func(id, class string) Plan { p := plan(id, class, 0, 4); p.Engine = "spark"; return p }
	n.add(spark("low", "low"))
	n.pass(0)
	n.expect("start low.1", "engine starts low.1 theta 0")
	n.c.Progress(n.now, "low", 1, EngineProgress{Known: true, Tasks: 9, Done: 4, Running: 2, RunningOn: map[string]int{"n1": 2}})
	if v := n.c.view(n.now, n.c.jobs["low"]); v.Tasks != 9 || v.Done != 4 || v.RunningOn["n1"] != 2 {
		t.Errorf("progress: %+v", v)
	}
	n.add(spark("high", "high"))
	n.pass(0)
	n.expect("engine kills low.1")
	n.c.RunEnded(n.now, "low", 1, false, "killed")
	n.pass(0)
	n.expect("back low for high", "start high.1", "engine starts high.1 theta 0")
	n.c.RunEnded(n.now, "low", 1, true, "late") // of a run that is over
	n.c.Cancel(n.now, "high", "cancelled")
	n.pass(0)
	n.expect("high cancelled", "engine kills high.1")
	n.c.RunEnded(n.now, "high", 1, false, "killed")
	n.pass(0)
	n.expect("start low.2", "engine starts low.2 theta 0")
	n.restart(buffers.P, at(spark("low", "low"), n.now))
	n.pass(0)
	n.expect("engine adopts low.2")
	n.c.RunEnded(n.now, "low", 2, true, "exit status 0")
	n.pass(0)
	n.expect("low done")
}

// What the coordinators are told of the end of an engine's job: those tasks that ran and those that were dropped, and none that
// its application had planned and did not need.
func TestEndOfAnEngineRun(t *testing.T) {
	t.Parallel()
	n := newNight(t, buffers.NP)
	p := plan("low", "low", 0, 4)
	p.Engine = "spark"
	n.add(p)
	n.pass(0)
	n.c.Progress(n.now, "low", 1, EngineProgress{Known: true, Tasks: 48, Done: 33, Dropped: 12})
	n.c.RunEnded(n.now, "low", 1, true, "exit status 0")
	n.pass(0)
	if e := n.ended["low"]; e.State != Done || e.Tasks != 45 || e.Done != 33 {
		t.Errorf("the coordinators are told %+v", e)
	}
	if v := n.c.view(n.now, n.c.jobs["low"]); v.Tasks != 45 || v.Done != 33 || v.Dropped != 12 {
		t.Errorf("listed as %+v", v)
	}
}

// The order in which tasks are dropped follows from the seed alone: a permutation, whose beginning is the same for every
// drop ratio; ceil(n(1-theta)) tasks are kept, whatever rounding does.
func TestDropOrder(t *testing.T) {
	t.Parallel()
	if got := DropOrder(8, draws(1)); !slices.Equal(got, []int{3, 1, 5, 7, 0, 4, 2, 6}) {
		t.Errorf("order %v: a rerun by another version would drop others", got)
	}
	for _, c := range []struct {
		n     int
		theta float64
		want  int
	}{{50, 0.1, 45}, {50, 0.2, 40}, {50, 0.9, 5}, {10, 1, 1}, {3, 0.5, 2}, {10, 0, 10}, {10, 0.7, 3}} {
		if got := units.Ratio(1 - c.theta).Kept(c.n); got != c.want {
			t.Errorf("of %d tasks %d are kept at %v, want %d", c.n, got, c.theta, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(1, 200).Draw(t, "n"), rapid.Uint64().Draw(t, "seed")
		order := DropOrder(n, draws(seed))
		sorted := slices.Sorted(slices.Values(order))
		for i, x := range sorted {
			if i != x {
				t.Fatalf("%v is no permutation", order)
			}
		}
	})
}
