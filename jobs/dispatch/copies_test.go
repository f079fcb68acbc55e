package dispatch

// Copies of stragglers, jobs that end at their bound: event by event.

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/jobs/speculation"
	"headroom/units"
)

// copying is a driver whose core copies by a policy, with a node of two slots each for the names.
func copying(t testing.TB, p speculation.Policy, nodes ...string) *driver {
	k := newDriver(t)
	k.c.Speculate(Speculation{Policy: p})
	for _, n := range nodes {
		k.c.Hello(k.now, n, 2, nil)
	}
	return k
}

// promise is a job of 4 tasks that may use all slots, due in a minute.
func promise(id string, minTasks float64) Plan {
	p := plan(id, "low", 4, 9)
	p.MinTasks, p.Deadline = minTasks, start.Add(time.Minute)
	return p
}

// straggle runs the job j until its task 0 runs far longer than the three others, which have
// ended after a second.
func (k *driver) straggle() {
	k.t.Helper()
	k.pass(time.Second)
	for i := 1; i < 4; i++ {
		k.finish("j", PhaseMap, i, "")
	}
	k.pass(4 * time.Second)
}

// pass lets time pass in half seconds; the connected workers speak.
func (k *driver) pass(d time.Duration) {
	for ; d > 0; d -= 500 * time.Millisecond {
		k.now = k.now.Add(min(d, 500*time.Millisecond))
		for _, n := range k.c.nodes() {
			if k.c.workers[n].connected {
				k.c.Alive(k.now, n)
			}
		}
		k.step(0)
	}
}

// attempts are the running attempts of a map task of job j by their nodes.
func (k *driver) attempts(index int) map[string]Ref {
	all := make(map[string]Ref)
	for r, node := range k.running {
		if r.Job == "j" && r.Phase == PhaseMap && r.Index == index {
			all[node] = r
		}
	}
	return all
}

// view is job j.
func (k *driver) view() JobView { return k.c.view(k.now, k.c.jobs["j"]) }

// straggler is a driver where task 0 of job j runs on one node and a copy of it on the other.
func straggler(t *testing.T, p Plan) (k *driver, original, copied Ref) {
	t.Helper()
	k = copying(t, speculation.Ours, "n1", "n2")
	p.ID = "j"
	k.add(p)
	k.step(0)
	k.straggle()
	on := k.attempts(0)
	if len(on) != 2 {
		t.Fatalf("task 0 runs as %v: %s", on, k.on())
	}
	original, copied = on["n1"], on["n2"]
	if original.Attempt > copied.Attempt {
		original, copied = copied, original
	}
	if v := k.view(); v.Running != 1 || v.Held != 2 || v.Copies != 1 || v.RunningOn["n2"] != 1 || !strings.Contains(v.Speculation, "map task 0 runs on "+k.running[original]+" and needs") {
		t.Fatalf("%+v", v)
	}
	return k, original, copied
}

func TestFirstCopyWins(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]bool{"the copy": true, "the original": false} {
		k, winner, loser := straggler(t, promise("j", 1))
		nodes := []string{"n1", "n2"}
		if second {
			winner, loser = loser, winner
			nodes = []string{"n2", "n1"}
		}
		k.now = k.now.Add(time.Second)
		k.c.Result(k.now, nodes[0], winner, "")
		actions := k.step(0)
		if !slices.Contains(actions, Action(Kill{nodes[1], loser})) {
			t.Errorf("%s: the loser runs on: %v", name, actions)
		}
		e := k.ended["j"]
		if e.State != Done || e.Done != 4 || e.Outcome != "4 of 4 tasks done" || e.Wasted.Copies <= 0 || e.Wasted.Total() != e.Wasted.Copies || e.Work < 4*time.Second {
			t.Errorf("%s: ended as %+v", name, e)
		}
		if got := len(k.c.workers[nodes[1]].running); got != 1 {
			t.Errorf("%s: the loser's slot is free before it has ended: %d", name, got)
		}
		k.c.Result(k.now, nodes[1], loser, "") // it was quicker than its kill
		k.step(0)
		if got := len(k.c.workers[nodes[1]].running); got != 0 || k.view().Done != 4 {
			t.Errorf("%s: late: %d slots used, %+v", name, got, k.view())
		}
	}
}

// A copy that fails or is lost leaves the other one running; a failure counts, a kill does not.
func TestOneCopyFails(t *testing.T) {
	t.Parallel()
	p := promise("j", 1)
	p.MaxAttempts = 2
	k, original, copied := straggler(t, p)
	k.c.Result(k.now, "n2", copied, "exit status 1")
	delete(k.running, copied)
	k.step(0)
	if v := k.view(); v.Running != 1 || v.Held < 1 || k.c.jobs["j"].maps[0].failures != 1 || v.Wasted.Failed <= 0 {
		t.Fatalf("%+v", v)
	}
	k.c.Gone(k.now, "n1")
	delete(k.running, original)
	k.step(0)
	for n, r := range k.attempts(0) { // it runs elsewhere, and has not failed too often
		k.c.Result(k.now, n, r, "")
	}
	k.step(0)
	if e := k.ended["j"]; e.State != Done {
		t.Errorf("ended as %+v; running %s", e, k.on())
	}
}

// A task that has failed as often as it may is dropped when its last copy is gone, not before.
func TestLastCopyDecides(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		floor float64
		end   func(k *driver, original Ref)
		want  State
	}{
		"it succeeds":      {1, func(k *driver, r Ref) { k.c.Result(k.now, k.running[r], r, "") }, Done},
		"it fails":         {1, func(k *driver, r Ref) { k.c.Result(k.now, k.running[r], r, "again") }, Failed},
		"it is lost":       {1, func(k *driver, r Ref) { k.c.Gone(k.now, k.running[r]) }, Failed},
		"it may be missed": {0.75, func(k *driver, r Ref) { k.c.Result(k.now, k.running[r], r, "again") }, Done},
	} {
		p := promise("j", x.floor)
		p.MaxAttempts = 1
		k, original, copied := straggler(t, p)
		k.c.Result(k.now, k.running[copied], copied, "exit status 1")
		delete(k.running, copied)
		k.pass(2 * time.Second)
		if v := k.view(); v.State != Running || v.Held != 1 || v.Dropped != 0 {
			t.Fatalf("%s: %+v", name, v)
		}
		x.end(k, original)
		k.step(0)
		if e := k.ended["j"]; e.State != x.want {
			t.Errorf("%s: ended as %+v", name, e)
		}
	}
}

// A restarted scheduler takes over both copies, and the first to end counts.
func TestRestartWithCopies(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"the copy": "n2", "the original": "n1"} {
		k, original, copied := straggler(t, promise("j", 1))
		p := k.c.jobs["j"].Plan
		k.c = New(shared("high", "mid", "low"), 2, draws)
		k.c.Speculate(Speculation{Policy: speculation.Ours})
		testkit.Check(t, k.c.Add(k.now, p, Past{Started: start, Done: []int{1, 2, 3}}))
		k.c.HoldUntil(k.now.Add(2 * time.Second))
		k.c.Hello(k.now, "n1", 2, []Ref{original})
		k.c.Hello(k.now, "n2", 2, []Ref{copied})
		if actions := k.step(0); len(actions) != 0 || k.view().Copies != 1 || k.view().Held != 2 {
			t.Fatalf("%s: %v, %+v", name, actions, k.view())
		}
		winner, other, loser := original, "n2", copied
		if first == "n2" {
			winner, other, loser = copied, "n1", original
		}
		k.c.Result(k.now, first, winner, "")
		if actions := k.step(0); !slices.Contains(actions, Action(Kill{other, loser})) || k.ended["j"].State != Done {
			t.Errorf("%s: %v", name, actions)
		}
	}
}

// A cancelled job's copies are all stopped; so are those of a job that is killed for a higher class, before it goes back.
func TestAllCopiesAreStopped(t *testing.T) {
	t.Parallel()
	k, original, copied := straggler(t, promise("j", 1))
	k.c.Cancel(k.now, "j", "cancelled")
	actions := k.step(0)
	if !slices.Contains(actions, Action(Kill{"n1", original})) || !slices.Contains(actions, Action(Kill{"n2", copied})) || k.ended["j"].Wasted.Killed <= 0 {
		t.Errorf("cancelled: %v", actions)
	}

	k = copying(t, speculation.Ours)
	k.c = New(dispatcher(buffers.P, "high", "mid", "low"), 1, draws)
	k.c.Speculate(Speculation{Policy: speculation.Ours})
	k.c.Hello(k.now, "n1", 2, nil)
	k.c.Hello(k.now, "n2", 2, nil)
	k.add(promise("j", 1))
	k.step(0)
	k.straggle()
	before := k.attempts(0)
	k.add(plan("h", "high", 1, 1))
	actions = k.step(0)
	for n, r := range before {
		if !slices.Contains(actions, Action(Kill{n, r})) {
			t.Errorf("%v runs on for a higher class: %v", r, actions)
		}
	}
	for n, r := range before {
		if k.c.jobs["j"].run.Over || len(before) != 2 {
			t.Fatalf("the job is back while %v runs: %v", r, before)
		}
		k.c.Stopped(k.now, n, r)
		k.step(0)
	}
	if v := k.view(); !v.Run.Over || v.Held != 0 || v.Running != 0 || v.Done != 0 || v.Wasted.Killed < 8*time.Second {
		t.Errorf("%+v", v)
	}
}

// Without a promise nothing is copied, unless a share says so; a share bounds the copies of those with one.
func TestWhoIsCopied(t *testing.T) {
	t.Parallel()
	none, one := 0, 1
	for name, x := range map[string]struct {
		policy  speculation.Policy
		promise bool
		copies  *int
		want    int
	}{
		"a promise":                {speculation.Ours, true, nil, 1},
		"no promise":               {speculation.Ours, false, nil, 0},
		"a share of copies":        {speculation.Ours, false, &one, 1},
		"a promise without copies": {speculation.Ours, true, &none, 0},
		"no policy":                {speculation.None, true, &one, 0},
		"never told":               {"", true, nil, 0},
		"greedy":                   {speculation.GS, true, nil, 1},
		"saving slots":             {speculation.RAS, true, nil, 1},
		"grass":                    {speculation.GRASS, true, nil, 1},
		"late":                     {speculation.LATE, true, nil, 1},
		"mantri":                   {speculation.Mantri, true, nil, 1},
	} {
		k := copying(t, x.policy, "n1", "n2")
		p := promise("j", 1)
		if !x.promise {
			p.Deadline = time.Time{}
		}
		k.add(p)
		k.c.Share([]Share{{Job: "j", Slots: 4, Copies: x.copies}})
		k.step(0)
		k.straggle()
		v := k.view()
		if got := len(k.attempts(0)) - 1; got != x.want || v.Copies != x.want {
			t.Errorf("%s: %d copies, %+v", name, got, v)
		}
		if wants := x.want == 0 && x.policy == speculation.Ours; wants && (v.CopiesWanted != 1 || !v.CopiesKnown || v.CopiesSave <= 0) || x.policy == "" && v.CopiesKnown {
			t.Errorf("%s: wants %d copies, which save %v", name, v.CopiesWanted, v.CopiesSave)
		}
	}
}

// Of a task that is late twice over two copies run and count, as they do against the share.
func TestSecondCopyCounts(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{1: 1, 2: 2} {
		k := copying(t, speculation.Ours, "n1", "n2", "n3")
		k.add(promise("j", 1))
		k.c.Share([]Share{{Job: "j", Slots: 4, Copies: &most}})
		k.step(0)
		k.straggle()
		k.pass(10 * time.Second)
		if v, got := k.view(), len(k.attempts(0))-1; got != want || v.Copies != want || v.Held-v.Running != want {
			t.Errorf("at most %d: %d copies run, %+v", most, got, v)
		}
	}
}

// A capped node's task is copied before it is late, to a node with a higher cap and to none with a lower one.
func TestCapsAreKnownBeforeTasksStraggle(t *testing.T) {
	t.Parallel()
	half := Cap{Cap: 100 * units.Watt, Max: 200 * units.Watt}
	tenth := Cap{Cap: 20 * units.Watt, Max: 200 * units.Watt}
	for name, x := range map[string]struct {
		own, other Cap
		want       bool
	}{
		"the other node is quick":   {tenth, Cap{Cap: 200 * units.Watt, Max: 200 * units.Watt}, true},
		"the other one is as bad":   {tenth, tenth, false},
		"the other one is worse":    {half, tenth, false},
		"neither of them is capped": {Cap{Cap: 1, Max: 1}, Cap{Cap: 1, Max: 1}, false},
	} {
		k := copying(t, speculation.Ours, "n1", "n2")
		p := promise("j", 1)
		p.Tasks = 5
		k.add(p)
		k.step(0)
		k.pass(10 * time.Second)
		for i := range 4 { // the fifth then begins where a slot is free
			for n, r := range k.attempts(i) {
				k.c.Result(k.now, n, r, "")
				delete(k.running, r)
			}
		}
		k.step(0)
		k.pass(time.Second)
		on := slices.Collect(maps.Keys(k.attempts(4)))
		if len(on) != 1 {
			t.Fatalf("%s: %s", name, k.on())
		}
		other := map[string]string{"n1": "n2", "n2": "n1"}[on[0]]
		k.c.SetCap(on[0], x.own)
		k.c.SetCap(other, x.other)
		k.pass(time.Second)
		if got := len(k.attempts(4)) == 2; got != x.want {
			t.Errorf("%s: copied %v, want %v: %s", name, got, x.want, k.view().Speculation)
		}
	}
}

// A job with an error bound ends once its floor's tasks are done: what waits is dropped and what runs is killed, recorded
// before that; its summary has the error. Its reduce task runs over what is done.
func TestErrorBoundEndsTheJob(t *testing.T) {
	t.Parallel()
	k := copying(t, speculation.Ours, "n1", "n2")
	p := plan("j", "low", 10, 4)
	p.MinTasks, p.ErrorBound, p.Reduce = 0.55, true, true // 5.5 tasks: 6
	k.add(p)
	k.step(0)
	var last []Action
	for k.view().Done < 6 {
		k.now = k.now.Add(time.Second)
		for _, r := range sortedRefs(refs(k.running))[:1] {
			k.c.Result(k.now, k.running[r], r, "")
			delete(k.running, r)
		}
		last = k.step(0)
	}
	drop := slices.IndexFunc(last, func(a Action) bool { _, is := a.(DropTasks); return is })
	kill := slices.IndexFunc(last, func(a Action) bool { _, is := a.(Kill); return is })
	if drop < 0 || kill < drop || len(last[drop].(DropTasks).Indexes) != 4 || !strings.Contains(last[drop].(DropTasks).Why, "6 of 10 tasks done, 6 required") {
		t.Fatalf("%v", last)
	}
	k.want("jr0@" + k.running[sortedRefs(refs(k.running))[0]])
	if got := len(k.c.Outputs("j")); got != 6 {
		t.Errorf("%d outputs", got)
	}
	k.finish("j", PhaseReduce, 0, "")
	if e := k.ended["j"]; e.State != Done || e.Done != 6 || e.Tasks != 10 || e.Outcome != "6 of 10 tasks done, 4 dropped (at least 6 required), error 40 %" || e.Wasted.Killed <= 0 {
		t.Errorf("ended as %+v", e)
	}
}

func refs(running map[Ref]string) map[Ref]bool {
	all := make(map[Ref]bool)
	for r := range running {
		all[r] = true
	}
	return all
}

func TestTailIsThatOfTheTraces(t *testing.T) {
	t.Parallel()
	if want := math.Pow(2, 1/1.259) - 1; math.Abs(tailLeft-want) > 1e-12 {
		t.Errorf("%v, want %v", tailLeft, want)
	}
}

// At its deadline a job ends with what is done, if that is its floor; else once it is; one that needs all tasks goes on.
func TestDeadlineEndsTheJob(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		floor        float64
		before, late int // tasks that end before the deadline and after it
		want         string
	}{
		"enough":             {0.5, 3, 0, "3 of 4 tasks done, 1 dropped (at least 2 required), error 25 %"},
		"just enough":        {0.5, 2, 0, "2 of 4 tasks done, 2 dropped (at least 2 required), error 50 %"},
		"the floor is later": {0.75, 2, 1, "3 of 4 tasks done, 1 dropped (at least 3 required), error 25 %"},
		"all are needed":     {1, 3, 1, "4 of 4 tasks done"},
	} {
		k := copying(t, speculation.None, "n1", "n2")
		k.add(promise("j", x.floor))
		k.step(0)
		k.pass(time.Second)
		for i := range x.before {
			k.finish("j", PhaseMap, i, "")
		}
		k.pass(start.Add(time.Minute - time.Millisecond).Sub(k.now))
		if k.ended["j"].State != Queued {
			t.Fatalf("%s: ended before its deadline: %+v", name, k.ended["j"])
		}
		k.pass(10 * time.Second)
		for i := range x.late {
			if k.ended["j"].State == Done {
				t.Fatalf("%s: ended below its floor: %+v", name, k.ended["j"])
			}
			k.finish("j", PhaseMap, x.before+i, "")
		}
		if e := k.ended["j"]; e.State != Done || e.Outcome != x.want {
			t.Errorf("%s: ended as %+v", name, e)
		}
	}
}

// A task that cannot end by the deadline leaves its slot to others, unless it is needed.
func TestHopelessTasksWait(t *testing.T) {
	t.Parallel()
	for floor, want := range map[float64]int{0.5: 2, 0.75: 3} {
		k := copying(t, speculation.Ours, "n1")
		p := promise("j", floor)
		p.Deadline = k.now.Add(15 * time.Second)
		k.add(p)
		k.step(0)
		k.pass(10 * time.Second)
		k.finish("j", PhaseMap, k.someIndex(), "") // 10 s each, and 5 s are left
		k.finish("j", PhaseMap, k.someIndex(), "")
		k.pass(time.Second)
		if v := k.view(); v.Done+v.Running != want {
			t.Errorf("floor %v: %d done, %d running", floor, v.Done, v.Running)
		}
	}
}

// someIndex is a map task that runs.
func (k *driver) someIndex() int { return sortedRefs(refs(k.running))[0].Index }

// Inputs of other sizes are expected to take other times: a large one that runs long is no straggler.
func TestSizesCount(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int{100: 2, 1000: 1} {
		k := copying(t, speculation.Ours, "n1", "n2")
		p := promise("j", 1)
		p.Sizes = []int64{size, 100, 100, 100}
		k.add(p)
		k.step(0)
		k.straggle()
		if got := len(k.attempts(0)); got != want {
			t.Errorf("size %d: %d attempts, want %d", size, got, want)
		}
	}
}

// Jobs that run one policy all through teach when to switch; which do follows from their seeds.
func TestSomeJobsAreSamples(t *testing.T) {
	t.Parallel()
	counts, samples := make(map[speculation.Policy]int), 0
	k := copying(t, speculation.Ours, "n1", "n2")
	k.c.Speculate(Speculation{Policy: speculation.Ours, Xi: 0.5})
	for i := range 200 {
		p := promise(fmt.Sprintf("j%d", i), 0.5)
		p.ErrorBound = true
		k.add(p)
		k.step(0)
		j := k.c.jobs[p.ID]
		policy := j.est.policy
		counts[policy]++
		for j.state == Running {
			k.pass(500 * time.Millisecond)
			for _, r := range sortedRefs(refs(k.running)) {
				k.c.Result(k.now, k.running[r], r, "")
				delete(k.running, r)
			}
			k.step(0)
		}
		if x := k.ended[p.ID].Sample; x != nil {
			samples++
			if x.Greedy != (policy == speculation.GS) || x.Size != 2 || x.Result <= 0 || x.Tasks != 4 || x.ByDeadline {
				t.Errorf("%+v", x)
			}
		}
	}
	if n := counts[speculation.GS] + counts[speculation.RAS]; n != samples {
		t.Errorf("%d samples of %d jobs that ran one policy", samples, n)
	}
	if n := counts[speculation.GS] + counts[speculation.RAS]; n < 70 || n > 130 || counts[speculation.GS] < 30 || counts[speculation.RAS] < 30 {
		t.Errorf("policies %v", counts)
	}
}
