package master

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/local"
	"headroom/units"
)

// bench is a group without streams.
type bench struct {
	*group

	t   *testing.T
	now time.Time
}

func newBench(t *testing.T, cfg Config) *bench {
	cfg.Name, cfg.Group, cfg.Logger = "m1", "rack/r1", slog.New(slog.DiscardHandler)
	b := &bench{t: t, now: time.Unix(1e9, 0)}
	b.group = newGroup(cfg, b.now)
	b.settle()
	return b
}

func (b *bench) worker(node string, slots int, running ...*headroomv1.TaskRef) *workSession {
	b.t.Helper()
	s := newWorkSession(node, nil)
	if err := b.hello(b.now, s, &headroomv1.WorkerHello{Slots: uint32(slots), Running: running}); err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) source(name string) *placeSession {
	b.t.Helper()
	s := newPlaceSession(name, 1, nil)
	if err := b.join(b.now, s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) hand(s *placeSession, high bool, all ...*headroomv1.Task) {
	b.place(b.now, s, &headroomv1.PlaceTasks{Tasks: all, High: high})
	b.decide()
}

// got is what a worker was sent since it was asked last: tasks begun and attempts to stop.
func got(s *workSession) (tasks []*headroomv1.Task, kills int) {
	for _, x := range s.box.take(time.Time{}) {
		if x.kill != nil {
			kills++
		} else {
			tasks = append(tasks, x.task)
		}
	}
	return tasks, kills
}

func (b *bench) done(s *workSession, all ...*headroomv1.Task) {
	for _, x := range all {
		b.ended(b.now, s, []*headroomv1.TaskResult{{Ref: x.GetRef()}})
	}
	b.decide()
}

// heard is what a distributor was sent since it was asked last.
func heard(s *placeSession) (results, lost, refused int, state *headroomv1.GroupState) {
	for _, x := range s.box.take(time.Time{}) {
		switch {
		case x.result != nil:
			results++
		case x.lost != nil:
			lost++
		case x.refused != nil:
			refused++
		default:
			state = x.state
		}
	}
	return results, lost, refused, state
}

// A lower cap kills nothing and begins less, low priority first; a node that is not below the domain is refused, also when that
// is known later; what is not known limits nothing, and is said.
func TestCaps(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{Coordinators: []string{"c1"}, Reserved: Reserved{Slots: 2}})
	w, d := b.worker("n01", 8), b.source("d1")
	stranger := b.worker("n99", 8)
	if !strings.Contains(b.trouble(b.now), "unknown") || b.see().GetUsable() != 16 {
		t.Errorf("before any news: %q, %v", b.trouble(b.now), b.see())
	}
	caps := map[string]dispatch.Cap{"n01": {Cap: 200 * units.Watt, Floor: 100 * units.Watt, Max: 200 * units.Watt}}
	b.learn(b.now, caps)
	if b.away(b.now, stranger, false); !over(stranger.line) || b.trouble(b.now) != "" {
		t.Error("a node of another domain stays")
	}
	if err := b.hello(b.now, newWorkSession("n99", nil), &headroomv1.WorkerHello{Slots: 8}); err == nil || !strings.Contains(err.Error(), "not in rack/r1") {
		t.Errorf("a node of another domain: %v", err)
	}
	b.now = b.now.Add(workerSilence)
	b.ended(b.now, w, nil)
	b.of(d, b.now)
	b.tick(b.now)
	b.hand(d, false, tasks("low", 0, 20)...)
	running, _ := got(w)
	if len(running) != 6 { // two of eight are reserved
		t.Fatalf("%d low-priority tasks run", len(running))
	}
	caps["n01"] = dispatch.Cap{Cap: 150 * units.Watt, Floor: 100 * units.Watt, Max: 200 * units.Watt}
	b.learn(b.now, caps) // four of eight slots
	if more, kills := got(w); len(more)+kills > 0 {
		t.Errorf("a cut begins %d and stops %d tasks", len(more), kills)
	}
	b.hand(d, true, tasks("high", 0, 8)...)
	begun, high := 0, 0
	for round := 0; round < 30 && len(running) > 0; round++ {
		b.done(w, running[0])
		more, _ := got(w)
		for _, x := range more {
			begun++
			if x.GetRef().GetJob() == "high" {
				high++
			}
		}
		if running = append(running[1:], more...); len(more) > 0 && len(running) > 4 {
			t.Fatalf("%d run beside one that begins, on four slots", len(running))
		}
		if high < 8 && begun > high {
			t.Fatal("a low-priority task begins while high-priority ones wait")
		}
	}
	b.now = b.now.Add(newsLate + time.Second)
	if b.usable(b.nodes["n01"]) != 4 || !strings.Contains(b.trouble(b.now), "11 s old") {
		t.Errorf("without news: %d slots, %q", b.usable(b.nodes["n01"]), b.trouble(b.now))
	}
}

func (b *bench) see() *headroomv1.GroupState { return b.state(b.now, nil) }

// Nothing is begun on a node whose stream is broken; after its silence its tasks are lost, not failed.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	w, d := b.worker("n01", 2), b.source("d1")
	b.hand(d, false, tasks("j", 0, 1)...)
	b.away(b.now, w, false)
	b.hand(d, false, tasks("j", 1, 2)...)
	if s := b.see(); s.GetRunningLow() != 1 || s.GetWaitingLow() != 1 || s.GetSlots() != 0 || s.GetUsable() != 0 {
		t.Errorf("while it is not connected: %v", s)
	}
	for range 6 {
		b.now = b.now.Add(time.Second)
		b.of(d, b.now)
		b.tick(b.now)
	}
	if results, lost, _, _ := heard(d); results != 0 || lost != 1 {
		t.Errorf("%d results, %d lost", results, lost)
	}
	again := b.worker("n01", 2, tasks("j", 0, 1)[0].GetRef()) // it runs what was dropped
	b.decide()
	if more, _ := got(again); len(more) != 1 || b.see().GetRunningLow() != 2 {
		t.Errorf("begins %v, %v", more, b.see())
	}
	b.now = b.now.Add(claimWait + time.Second)
	b.ended(b.now, again, nil)
	b.of(d, b.now)
	b.tick(b.now)
	if _, kills := got(again); kills != 1 {
		t.Errorf("%d stopped: nobody waits for it", kills)
	}
	late := b.source("d2")
	b.place(b.now, late, &headroomv1.PlaceTasks{Tasks: tasks("j", 0, 1), Again: true})
	heard(late)
	b.ended(b.now, again, []*headroomv1.TaskResult{{Ref: tasks("j", 0, 1)[0].GetRef(), ExitCode: -1, Error: local.Stopped}})
	if results, lost, _, _ := heard(late); results != 0 || lost != 1 {
		t.Errorf("claimed while it is being stopped: %d results, %d lost", results, lost)
	}
}

// What a worker says that it was not given counts for nothing, and what it says twice counts once.
func TestLyingWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	honest, d := b.worker("n01", 2), b.source("d1")
	given := tasks("j", 0, 1)
	b.hand(d, false, given...)
	ref := func(proof string) *headroomv1.TaskRef {
		k := keyOf(given[0].GetRef())
		k.proof = proof
		return k.ref()
	}
	liar := b.worker("n02", 2, ref("guessed"), ref("guessed too"))
	twin := b.worker("n03", 2, given[0].GetRef())
	if _, kills := got(twin); kills != 1 {
		t.Errorf("names another's: told to stop %d", kills)
	}
	b.ended(b.now, liar, []*headroomv1.TaskResult{{Ref: ref("guessed")}})
	b.ended(b.now, twin, []*headroomv1.TaskResult{{Ref: given[0].GetRef()}})
	b.ended(b.now, honest, []*headroomv1.TaskResult{{Ref: ref("wrong")}})
	if results, _, _, _ := heard(d); results != 0 {
		t.Errorf("%d results are believed", results)
	}
	b.done(honest, given[0], given[0])
	if results, _, _, _ := heard(d); results != 1 {
		t.Errorf("%d results of one task", results)
	}
	other := b.source("d2")
	b.hand(d, false, tasks("k", 0, 1)...)
	b.hand(other, false, &headroomv1.Task{Ref: &headroomv1.TaskRef{Job: "k", Phase: "map", Attempt: 1, Proof: "k-0"}})
	if _, _, refused, _ := heard(other); refused != 1 {
		t.Error("a distributor gets the task of another one")
	}
	got(liar)
	b.now = b.now.Add(claimWait + time.Second)
	for _, s := range []*workSession{honest, liar} {
		b.ended(b.now, s, nil)
	}
	b.tick(b.now)
	if _, kills := got(liar); kills != 1 {
		t.Errorf("guesses: told to stop %d", kills)
	}
}

// A worker that names attempts before anybody is given them takes none of them: they run on the others, once each.
func TestNamedInAdvance(t *testing.T) {
	t.Parallel()
	for name, proof := range map[string]string{"without proof": "", "with a guess": "guessed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			var named []*headroomv1.TaskRef
			for _, x := range tasks("j", 0, 64) {
				ref := x.GetRef()
				ref.Proof = proof
				named = append(named, ref)
			}
			liar, honest, d := b.worker("n01", 1, named...), b.worker("n02", 2), b.source("d1")
			b.ended(b.now, liar, []*headroomv1.TaskResult{{Ref: named[1]}}) // kept for a distributor that may ask
			b.hand(d, false, tasks("j", 0, 2)...)
			if begun, _ := got(honest); len(begun) != 2 {
				t.Fatalf("%d of two tasks begun on the other node: %v", len(begun), b.see())
			}
			b.done(honest, tasks("j", 0, 2)...)
			if results, lost, refused, _ := heard(d); results != 2 || lost+refused != 0 {
				t.Errorf("%d results, %d lost, %d refused", results, lost, refused)
			}
			b.now = b.now.Add(takeoverAfter)
			b.worker("n01", 1) // it names nothing
			if b.nodes["n01"].running != 0 || len(b.unclaimed) != 0 {
				t.Errorf("%d run there, %d are kept", b.nodes["n01"].running, len(b.unclaimed))
			}
		})
	}
}

// What one node may make a master remember is bounded.
func TestNodeFillsNoMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	all := tasks("j", 0, local.ResultsKept+2)
	refs := func(n int) (some []*headroomv1.TaskRef) {
		for _, x := range all[:n] {
			some = append(some, x.GetRef())
		}
		return some
	}
	who := access.Caller{Role: "worker", Name: "worker/n01"}
	hello := &headroomv1.WorkerHello{Node: "n01", Slots: 1, Running: refs(local.ResultsKept + 2)}
	if err := access.CheckHello(who, hello); err == nil || !strings.Contains(err.Error(), "names 4098 attempts; the maximum is 4097") {
		t.Errorf("too many names: %v", err)
	}
	hello.Running = refs(local.ResultsKept + 1)
	testkit.Check(t, access.CheckHello(who, hello))
	for round := range 3 {
		var named []*headroomv1.TaskRef
		for _, x := range tasks(fmt.Sprintf("round-%d", round), 0, local.ResultsKept) {
			named = append(named, x.GetRef())
		}
		liar := b.worker("n01", 1, named...)
		var results []*headroomv1.TaskResult
		for _, ref := range named {
			results = append(results, &headroomv1.TaskResult{Ref: ref})
		}
		b.ended(b.now, liar, results)
		b.away(b.now, liar, true)
	}
	if len(b.orphans) != orphansEach || len(b.tasks) != 0 {
		t.Errorf("%d results and %d tasks of one node are kept", len(b.orphans), len(b.tasks))
	}
	honest := b.worker("n02", 1, tasks("k", 0, 1)[0].GetRef())
	b.done(honest, tasks("k", 0, 1)...)
	d := b.source("d1")
	b.place(b.now, d, &headroomv1.PlaceTasks{Tasks: tasks("k", 0, 1), Again: true})
	if results, _, _, _ := heard(d); results != 1 {
		t.Errorf("%d results of the other node", results)
	}
	b.now = b.now.Add(orphanFor + time.Second)
	b.tick(b.now)
	if len(b.orphans)+len(b.orphansOf) != 0 {
		t.Errorf("%d results kept, counted for %d nodes", len(b.orphans), len(b.orphansOf))
	}
}

// Results wait for a distributor that comes later or again, until it has them; those of before it was restarted too.
func TestResultsWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	all := tasks("j", 0, 3)
	w := b.worker("n01", 3, all[0].GetRef(), all[1].GetRef())
	b.done(w, all[0])
	d := b.source("d1")
	b.place(b.now, d, &headroomv1.PlaceTasks{Tasks: all, High: true, Again: true})
	if results, lost, _, _ := heard(d); results != 1 || lost != 1 || b.see().GetRunningHigh() != 1 {
		t.Errorf("%d results, %d lost, %v; want 1, 1, and one that runs", results, lost, b.see())
	}
	b.part(b.now, d)
	b.done(w, all[1])
	d = b.source("d1")
	if results, lost, _, _ := heard(d); results != 2 || lost != 1 {
		t.Errorf("on a new stream: %d results, %d lost", results, lost)
	}
	b.taken(b.now, d, []*headroomv1.TaskRef{all[0].GetRef(), all[2].GetRef()})
	b.hand(d, false, tasks("k", 0, 4)...)
	renewed := newPlaceSession("d1", 2, nil)
	if err := b.join(b.now, renewed); err != nil {
		t.Fatal(err)
	}
	if s := b.see(); s.GetWaitingLow() != 0 || s.GetRunningLow() != 3 {
		t.Errorf("what waited for the process of before: %v", s)
	}
	b.place(b.now, renewed, &headroomv1.PlaceTasks{Tasks: append(tasks("k", 0, 1), all[1]), Again: true})
	if results, lost, _, _ := heard(renewed); results != 1 || lost != 0 {
		t.Errorf("after a restart: %d results, %d lost", results, lost)
	}
	b.part(b.now, renewed)
	b.now = b.now.Add(distributorSilence)
	b.tick(b.now)
	if len(b.distributors) != 0 {
		t.Error("it is not forgotten")
	}
}

// A distributor that is silent gives its part of the window to the others and is forgotten, although nobody reports that its stream has
// ended: the request that would may be over.
func TestSilentDistributor(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	silent, other := b.source("d1"), b.source("d2")
	for range 1 + (workerSilence+distributorSilence)/time.Second {
		b.now = b.now.Add(time.Second)
		b.of(other, b.now)
		b.tick(b.now)
	}
	if _, _, _, s := heard(other); !over(silent.line) || s.GetWindow() != queueLeast {
		t.Errorf("its stream is over: %t; the other one has %v", over(silent.line), s)
	}
	if b.distributors["d1"] != nil || b.distributors["d2"] == nil {
		t.Errorf("%d distributors are known", len(b.distributors))
	}
}

// Beyond twice its window a distributor is refused, the other priority and another distributor are not; cancelled tasks have
// no result.
func TestWindow(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	w, d := b.worker("n01", 2), b.source("d1")
	_, _, _, s := heard(d)
	if s.GetWindow() != queueLeast || s.GetWindowHigh() != queueLeast {
		t.Fatalf("%v", s)
	}
	b.hand(d, false, tasks("j", 0, 2*queueLeast+5)...)
	if _, _, refused, _ := heard(d); refused != 5 {
		t.Errorf("%d refused", refused)
	}
	b.hand(d, true, tasks("k", 0, 1)...)
	other := b.source("d2")
	b.hand(other, false, tasks("l", 0, 1)...)
	_, _, refused, s := heard(d)
	if _, _, more, _ := heard(other); refused+more != 0 || s.GetWindow() != 0 || s.GetWindowHigh() != queueLeast/2-1 {
		t.Errorf("%d and %d refused, %v", refused, more, s)
	}
	b.cancel(b.now, d, &headroomv1.PlaceCancel{Job: "j"})
	running, kills := got(w)
	if s := b.see(); kills != 2 || s.GetWaitingLow() != 1 || s.GetRunningLow() != 2 {
		t.Errorf("%d stopped, %v", kills, s)
	}
	b.ended(b.now, w, []*headroomv1.TaskResult{{Ref: running[0].GetRef(), Error: "stopped", ExitCode: -1}, {Ref: running[1].GetRef()}})
	b.decide()
	if results, lost, _, _ := heard(d); results+lost != 0 || b.see().GetRunningHigh() != 1 {
		t.Errorf("%d results and %d lost of a cancelled job, %v", results, lost, b.see())
	}
}

// Reserved slots are spread over the nodes, and anew when nodes come and go.
func TestReserved(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Reserved{"[1 1 1 1]": {Slots: 4}, "[0 1 1 1]": {Part: 0.2}, "[0 0 0 0]": {}} {
		b := newBench(t, Config{Reserved: r})
		for i := range 4 {
			b.worker(fmt.Sprintf("n%d", i), 4)
		}
		var have []int
		total := 0
		for _, n := range b.sorted() {
			before := b.core.State().Reserved
			b.core.Reserve(n.worker, 0)
			have = append(have, before-b.core.State().Reserved)
			total += have[len(have)-1]
		}
		if fmt.Sprint(have) != want {
			t.Errorf("%+v: %v, want %s", r, have, want)
		}
	}
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	good := Config{Name: "m1", Group: "rack/r1", Reserved: Reserved{Part: 0.1}, W: 20}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"--name":    func(c *Config) { c.Name = "" },
		"--group":   func(c *Config) { c.Group = "" },
		"--w":       func(c *Config) { c.W = -1 },
		"from 0 to": func(c *Config) { c.Reserved = Reserved{Slots: slotsMost + 1} },
		"100 %":     func(c *Config) { c.Reserved = Reserved{Part: 1} },
		"-5% of":    func(c *Config) { c.Reserved = Reserved{Part: -0.05} },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The scheduler of a newer epoch takes the place of the one before, whatever it is called: what waited is dropped, what
// runs may be claimed, and the one before is refused from then on. Distributors without a lease stay.
func TestAnotherSchedulerIsActive(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	all := tasks("j", 0, 3)
	b.worker("n01", 1)
	plain := b.source("d9")
	of := func(name string, epoch uint64) (*placeSession, error) {
		s := newPlaceSession(name, epoch, nil)
		s.epoch = epoch
		return s, b.join(b.now, s)
	}
	first, err := of("s1", 7)
	if err != nil {
		t.Fatal(err)
	}
	b.hand(first, false, all...)
	second, err := of("s2", 8)
	if err != nil || !over(first.line) || b.distributors["s1"] != nil || over(plain.line) {
		t.Fatalf("%v; the first one's stream is over: %t", err, over(first.line))
	}
	if s := b.see(); s.GetWaitingLow() != 0 || s.GetRunningLow() != 1 {
		t.Errorf("%v", s)
	}
	b.hand(first, false, tasks("late", 0, 2)...)
	b.place(b.now, second, &headroomv1.PlaceTasks{Tasks: all[:1], Again: true})
	if s := b.see(); s.GetWaitingLow() != 0 || s.GetRunningLow() != 1 || len(b.unclaimed) != 0 {
		t.Errorf("after the late words of the first one: %v, %d unclaimed", s, len(b.unclaimed))
	}
	if _, err := of("s1", 7); err == nil {
		t.Error("the first one is admitted again")
	}
	if _, err := of("s1", 9); err != nil || b.distributors["s2"] != nil {
		t.Errorf("the first one is active again: %v", err)
	}
}
