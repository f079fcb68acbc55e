package master

// The laws, in a world of two masters of a group, workers and a distributor without goroutines: masters crash and are cut off from
// each other, streams break with what they carry, workers crash and answer twice. No attempt is begun twice, no node runs more
// than it has slots, and in the end each task is done.

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch/pigeon"
)

const worldTasks = 24

// world is what there is.
type world struct {
	t       *rapid.T
	now     time.Time
	masters [2]*group // nil while crashed
	cut     bool      // between the masters
	workers []*worldWorker
	d       worldSource
	begun   map[key]int
}

type worldWorker struct {
	name    string
	slots   int
	at      int // which master is asked
	session *workSession
	running map[key]*headroomv1.TaskRef
	outbox  []*headroomv1.TaskResult
}

// worldSource is a distributor that keeps the rules.
type worldSource struct {
	sessions [2]*placeSession
	seen     [2]*headroomv1.GroupState
	tasks    [worldTasks]worldTask
}

type worldTask struct {
	attempt uint32
	high    bool
	at      int  // master that has it; -1: none
	again   bool // this attempt has been handed over
	done    int
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: time.Unix(1e9, 0), begun: map[key]int{}}
	for i := range w.masters {
		w.start(i)
	}
	for i := range 3 {
		w.workers = append(w.workers, &worldWorker{name: fmt.Sprintf("n%d", i), slots: i + 1, running: map[key]*headroomv1.TaskRef{}})
	}
	for i := range w.d.tasks {
		w.d.tasks[i] = worldTask{attempt: 1, high: i%3 == 0, at: -1}
	}
	return w
}

func (w *world) start(i int) {
	w.masters[i] = newGroup(Config{Name: fmt.Sprintf("m%d", i+1), Group: "r1", Peer: "other", Reserved: Reserved{Slots: 1}, W: 3, Logger: slog.New(slog.DiscardHandler)}, w.now)
}

func (w *world) crash(i int) {
	w.masters[i] = nil
	w.d.sessions[i], w.d.seen[i] = nil, nil
	for _, x := range w.workers {
		if x.at == i {
			x.session = nil
		}
	}
}

// pass lets time pass: who can hear each other does, and who is not connected connects.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	a, b := w.masters[0], w.masters[1]
	if a != nil && b != nil && !w.cut {
		wa, wb := wordOf(a.view(w.now)), wordOf(b.view(w.now))
		a.hearPeer(w.now, wb)
		b.hearPeer(w.now, wa)
	}
	for i, g := range w.masters {
		if g == nil {
			continue
		}
		if s := w.d.sessions[i]; s != nil && !over(s.line) {
			g.of(s, w.now)
		}
		g.tick(w.now)
		g.decide()
	}
	for _, x := range w.workers {
		w.connect(x)
	}
	w.distribute()
}

func over(l *line) bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// connect opens a worker's stream where there is none, and says that it is there.
func (w *world) connect(x *worldWorker) {
	if x.session != nil && !over(x.session.line) {
		w.masters[x.at].ended(w.now, x.session, nil)
		return
	}
	w.breakWorker(x)
	for range w.masters {
		x.at = (x.at + 1) % len(w.masters)
		g := w.masters[x.at]
		if g == nil {
			continue
		}
		s := newWorkSession(x.name, nil)
		var refs []*headroomv1.TaskRef
		for _, r := range x.running {
			refs = append(refs, r)
		}
		for _, r := range x.outbox {
			refs = append(refs, r.GetRef())
		}
		if g.hello(w.now, s, &headroomv1.WorkerHello{Slots: uint32(x.slots), Running: refs}) == nil {
			x.session = s
			g.ended(w.now, s, x.outbox)
			g.decide()
			return
		}
	}
}

// breakWorker breaks the stream of a worker, with what it carries.
func (w *world) breakWorker(x *worldWorker) {
	if x.session != nil {
		w.masters[x.at].away(w.now, x.session, false)
		x.session = nil
	}
}

// read lets a worker take what it was sent.
func (w *world) read(x *worldWorker) {
	if x.session == nil || over(x.session.line) {
		return
	}
	items := x.session.box.take(w.now)
	for _, item := range items {
		if item.kill != nil {
			if r := x.running[keyOf(item.kill)]; r != nil {
				delete(x.running, keyOf(r))
				x.outbox = append(x.outbox, &headroomv1.TaskResult{Ref: r, ExitCode: -1, Error: "stopped"})
			}
			continue
		}
		r := item.task.GetRef()
		if w.begun[keyOf(r)]++; w.begun[keyOf(r)] > 1 {
			w.t.Fatalf("attempt %v is begun twice", r)
		}
		if x.running[keyOf(r)] = r; len(x.running) > x.slots {
			w.t.Fatalf("%s runs %d tasks on %d slots", x.name, len(x.running), x.slots)
		}
	}
	x.session.box.sent(items)
	w.tell(x)
}

// end ends one of the tasks that a worker runs.
func (w *world) end(x *worldWorker) {
	keys := make([]string, 0, len(x.running))
	refs := map[string]*headroomv1.TaskRef{}
	for k, r := range x.running {
		keys = append(keys, fmt.Sprint(k))
		refs[fmt.Sprint(k)] = r
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	r := refs[keys[0]]
	delete(x.running, keyOf(r))
	x.outbox = append(x.outbox, &headroomv1.TaskResult{Ref: r})
	w.tell(x)
}

// tell sends the results that a worker keeps: again and again, as it does on each new stream.
func (w *world) tell(x *worldWorker) {
	x.outbox = x.outbox[max(0, len(x.outbox)-20):]
	if x.session != nil && !over(x.session.line) {
		w.masters[x.at].ended(w.now, x.session, x.outbox)
		w.masters[x.at].decide()
	}
}

func (w *world) ref(i int) *headroomv1.TaskRef {
	return &headroomv1.TaskRef{Job: "j", Phase: "map", Index: uint32(i), Attempt: w.d.tasks[i].attempt, Proof: "p"}
}

// hand hands a task over.
func (w *world) hand(m, i int) {
	x := &w.d.tasks[i]
	w.masters[m].place(w.now, w.d.sessions[m], &headroomv1.PlaceTasks{Tasks: []*headroomv1.Task{{Ref: w.ref(i)}}, High: x.high, Again: x.again})
	x.at, x.again = m, true
}

// distribute is what the distributor does: connect, hear, and hand over.
func (w *world) distribute() {
	d := &w.d
	for m, g := range w.masters {
		if g == nil {
			continue
		}
		if s := d.sessions[m]; s != nil && !over(s.line) {
			w.hear(m)
			continue
		}
		w.breakSource(m)
		s := newPlaceSession("d1", 1, nil)
		if g.join(w.now, s) != nil {
			continue
		}
		d.sessions[m] = s
		w.hear(m)
		for i := range d.tasks {
			if d.tasks[i].at == m && d.tasks[i].done == 0 {
				w.hand(m, i)
			}
		}
	}
	active := -1
	for m, s := range d.seen {
		if s.GetActive() && (active < 0 || s.GetActiveMs() > d.seen[active].GetActiveMs()) {
			active = m
		}
	}
	if active < 0 {
		return
	}
	for i := range d.tasks {
		if x := &d.tasks[i]; x.done == 0 && (x.at < 0 || !d.seen[x.at].GetActive()) {
			w.hand(active, i)
		}
	}
	w.masters[active].decide()
}

func (w *world) breakSource(m int) {
	if s := w.d.sessions[m]; s != nil {
		w.masters[m].part(w.now, s)
	}
	w.d.sessions[m], w.d.seen[m] = nil, nil
}

// hear takes what a master has sent.
func (w *world) hear(m int) {
	d := &w.d
	items := d.sessions[m].box.take(w.now)
	taken := &headroomv1.PlaceTaken{}
	for _, item := range items {
		switch {
		case item.state != nil:
			d.seen[m] = item.state
		case item.result != nil:
			taken.Refs = append(taken.Refs, item.result.GetRef())
			d.tasks[item.result.GetRef().GetIndex()].done++
		case item.lost != nil:
			taken.Refs = append(taken.Refs, item.lost)
			if x := &d.tasks[item.lost.GetIndex()]; x.attempt == item.lost.GetAttempt() && x.at == m {
				x.attempt, x.again, x.at = x.attempt+1, false, -1
			}
		case item.refused != nil:
			if x := &d.tasks[item.refused.GetIndex()]; x.attempt == item.refused.GetAttempt() && x.at == m {
				x.at = -1 // and asked about again: it was handed over, though this master keeps nothing of it
			}
		}
	}
	d.sessions[m].box.sent(items)
	w.masters[m].taken(w.now, d.sessions[m], taken.GetRefs())
}

func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		which := func() *worldWorker { return w.workers[rapid.IntRange(0, len(w.workers)-1).Draw(t, "worker")] }
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				w.pass(time.Duration(rapid.SampledFrom([]int{10, 250, 250, 1000, 3000}).Draw(t, "ms")) * time.Millisecond)
			},
			"read":  func(*rapid.T) { w.read(which()) },
			"end":   func(*rapid.T) { w.end(which()) },
			"twice": func(*rapid.T) { w.tell(which()) },
			"crash": func(t *rapid.T) {
				if i := rapid.IntRange(0, 1).Draw(t, "master"); w.masters[i] == nil {
					w.start(i)
				} else {
					w.crash(i)
				}
			},
			"partition":    func(*rapid.T) { w.cut = !w.cut },
			"break worker": func(*rapid.T) { w.breakWorker(which()) },
			"kill worker": func(*rapid.T) {
				x := which()
				w.breakWorker(x)
				clear(x.running)
				x.outbox = nil
			},
			"break distributor": func(t *rapid.T) { w.breakSource(rapid.IntRange(0, 1).Draw(t, "master")) },
			"":                  func(*rapid.T) { w.check() },
		})
		w.cut = false
		for i := range w.masters {
			if w.masters[i] == nil {
				w.start(i)
			}
		}
		for range 400 {
			w.pass(250 * time.Millisecond)
			for _, x := range w.workers {
				w.read(x)
				w.end(x)
			}
			if !slices.ContainsFunc(w.d.tasks[:], func(x worldTask) bool { return x.done == 0 }) {
				return
			}
		}
		t.Fatalf("not done: %+v\n%v\n%v", w.d.tasks, w.masters[0].view(w.now), w.masters[1].view(w.now))
	})
}

// check compares the books of the masters.
func (w *world) check() {
	for _, g := range w.masters {
		if g == nil {
			continue
		}
		here, unclaimed := [2]int{}, 0
		onNode := map[*node]int{}
		for _, x := range g.tasks {
			if x.from != nil {
				here[pigeon.Kind(x.high)]++
			} else {
				unclaimed++
			}
			if x.on != nil {
				onNode[x.on]++
			}
		}
		if d := g.distributors["d1"]; d != nil && d.here != here {
			w.t.Fatalf("%v tasks of the distributor are here, counted %v", here, d.here)
		}
		if unclaimed != len(g.unclaimed) {
			w.t.Fatalf("%d tasks without a distributor, counted %d", unclaimed, len(g.unclaimed))
		}
		for _, n := range g.nodes {
			if n.running != onNode[n] {
				w.t.Fatalf("%s runs %d, counted %d", n.name, onNode[n], n.running)
			}
		}
		if s := g.core.State(); s.RunningHigh+s.RunningLow > len(g.tasks) {
			w.t.Fatalf("%+v of %d tasks", s, len(g.tasks))
		}
	}
}
