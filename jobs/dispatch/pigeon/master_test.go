// Claims: whatever joins, leaves, is capped, placed, cancelled and ended in whatever order, a master loses and doubles no task; a
// reserved slot never runs a low-priority task; a high-priority task never waits while a slot may run it; of every W tasks that slots
// take while both wait, one is low; no task starts beyond a worker's usable slots; queues keep their bound.
package pigeon

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// modelWorker is what a test knows of a worker.
type modelWorker struct{ slots, reserved, usable, inLow, inReserved int }

// modelTask is what it knows of a task.
type modelTask struct {
	high, running, reserved bool
	worker                  Worker
	name                    int
}

type masterModel struct {
	*rapid.T
	m       *Master[int]
	w, most int
	workers map[Worker]*modelWorker
	tasks   map[ID]*modelTask
	ended   []ID
	names   int
	row     int // high-priority starts in a row while low ones waited
}

func TestMasterLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := &masterModel{
			T: t, w: rapid.IntRange(0, 4).Draw(t, "W"), most: rapid.IntRange(0, 12).Draw(t, "most"),
			workers: map[Worker]*modelWorker{}, tasks: map[ID]*modelTask{},
		}
		x.m = NewMaster[int](MasterOptions{W: x.w, WaitMost: x.most})
		t.Repeat(map[string]func(*rapid.T){
			"": x.check, "join": x.join, "leave": x.leave, "usable": x.usable, "place": x.place, "end": x.end, "end again": x.endAgain,
			"cancel": x.cancel, "adopt": x.adopt,
		})
	})
}

func (x *masterModel) pickWorker(t *rapid.T) Worker {
	if len(x.workers) == 0 {
		t.Skip("no worker")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(x.workers))).Draw(t, "worker")
}

func (x *masterModel) pickTask(t *rapid.T, running bool) ID {
	var some []ID
	for id, k := range x.tasks {
		if k.running == running {
			some = append(some, id)
		}
	}
	if len(some) == 0 {
		t.Skip("no task")
	}
	slices.Sort(some)
	return rapid.SampledFrom(some).Draw(t, "task")
}

func (x *masterModel) join(t *rapid.T) {
	slots := rapid.IntRange(0, 4).Draw(t, "slots")
	reserved := rapid.IntRange(0, slots).Draw(t, "reserved")
	w := x.m.Join(slots, reserved)
	if x.workers[w] != nil {
		t.Fatalf("worker %d is there twice", w)
	}
	x.workers[w] = &modelWorker{slots: slots, reserved: reserved, usable: slots}
	x.drain(t)
}

func (x *masterModel) leave(t *rapid.T) {
	w := x.pickWorker(t)
	var want []int
	for id, k := range x.tasks {
		if k.running && k.worker == w {
			want = append(want, k.name)
			delete(x.tasks, id)
			x.ended = append(x.ended, id)
		}
	}
	got := x.m.Leave(w, nil)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("lost %v, want %v", got, want)
	}
	delete(x.workers, w)
	x.drain(t)
}

func (x *masterModel) usable(t *rapid.T) {
	w := x.pickWorker(t)
	x.workers[w].usable = rapid.IntRange(0, x.workers[w].slots).Draw(t, "usable")
	x.m.Usable(w, x.workers[w].usable)
	x.drain(t)
}

func (x *masterModel) place(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "tasks") {
		isHigh := rapid.Bool().Draw(t, "high")
		x.names++
		id, ok := x.m.Place(x.names, isHigh)
		if want := x.most == 0 || x.count(func(k *modelTask) bool { return !k.running && k.high == isHigh }) < x.most; ok != want {
			t.Fatalf("placed %v, want %v", ok, want)
		}
		if !ok {
			continue
		}
		if x.tasks[id] != nil || slices.Contains(x.ended, id) {
			t.Fatalf("ID %x was used before", id)
		}
		x.tasks[id] = &modelTask{high: isHigh, name: x.names}
	}
	x.drain(t)
}

func (x *masterModel) adopt(t *rapid.T) {
	w := x.pickWorker(t)
	x.names++
	k := &modelTask{high: rapid.Bool().Draw(t, "high"), running: true, worker: w, name: x.names}
	k.reserved = k.high && x.workers[w].inReserved < x.workers[w].reserved
	x.tasks[x.m.Adopt(x.names, k.high, w)] = k
	*x.slot(k)++
}

func (x *masterModel) slot(k *modelTask) *int {
	if k.reserved {
		return &x.workers[k.worker].inReserved
	}
	return &x.workers[k.worker].inLow
}

func (x *masterModel) end(t *rapid.T) {
	id := x.pickTask(t, true)
	k := x.tasks[id]
	if got, ok := x.m.End(id); !ok || got != k.name {
		t.Fatalf("ended %d %v, want %d", got, ok, k.name)
	}
	*x.slot(k)--
	delete(x.tasks, id)
	x.ended = append(x.ended, id)
	x.drain(t)
}

// endAgain ends what has ended, or what has not begun.
func (x *masterModel) endAgain(t *rapid.T) {
	if len(x.ended) == 0 {
		x.ended = append(x.ended, x.pickTask(t, false))
		defer func() { x.ended = nil }()
	}
	if got, ok := x.m.End(rapid.SampledFrom(x.ended).Draw(t, "ended")); ok {
		t.Fatalf("ended %d twice", got)
	}
}

func (x *masterModel) cancel(t *rapid.T) {
	if len(x.tasks) == 0 {
		t.Skip("no task")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(x.tasks))).Draw(t, "task")
	k := x.tasks[id]
	w, running, ok := x.m.Cancel(id)
	if !ok || running != k.running || running && w != k.worker {
		t.Fatalf("cancelled: worker %d, running %v, %v; want %+v", w, running, ok, *k)
	}
	if !running {
		delete(x.tasks, id)
		x.ended = append(x.ended, id)
	}
}

func (x *masterModel) count(is func(*modelTask) bool) (n int) {
	for _, k := range x.tasks {
		if is(k) {
			n++
		}
	}
	return n
}

// drain starts what can start, and checks each.
func (x *masterModel) drain(t *rapid.T) {
	for s, more := x.m.Next(); more; s, more = x.m.Next() {
		k := x.tasks[s.ID]
		if k == nil || k.running || k.name != s.Task || k.high != s.High {
			t.Fatalf("started %+v, which is %+v", s, k)
		}
		if s.Reserved && !s.High {
			t.Fatalf("low-priority task %d on a reserved slot", s.Task)
		}
		bothWait := x.count(func(k *modelTask) bool { return !k.running && k.high }) > 0 && x.count(func(k *modelTask) bool { return !k.running && !k.high }) > 0
		x.fair(t, s, bothWait)
		k.running, k.worker, k.reserved = true, s.Worker, s.Reserved
		w := x.workers[s.Worker]
		*x.slot(k)++
		if w.inLow+w.inReserved > w.usable || w.inReserved > w.reserved || !k.reserved && w.inLow > w.slots-w.reserved {
			t.Fatalf("worker %d has %+v", s.Worker, *w)
		}
	}
	x.forget()
}

// forget starts the count of a row anew once no low-priority task waits.
func (x *masterModel) forget() {
	if x.count(func(k *modelTask) bool { return !k.running && !k.high }) == 0 {
		x.row = 0
	}
}

// fair checks the weights.
func (x *masterModel) fair(t *rapid.T, s Start[int], bothWait bool) {
	switch {
	case !bothWait:
		x.row = 0
	case s.Reserved:
	case !s.High && x.w == 0:
		t.Fatalf("low-priority task %d before one of high priority", s.Task)
	case !s.High && x.row != x.w-1:
		t.Fatalf("low-priority task %d after %d of high priority, W %d", s.Task, x.row, x.w)
	case !s.High:
		x.row = 0
	default:
		if x.row++; x.w > 0 && x.row >= x.w {
			t.Fatalf("%d high-priority tasks in a row, W %d", x.row, x.w)
		}
	}
}

func (x *masterModel) check(t *rapid.T) {
	var want State
	for _, w := range x.workers {
		want.Workers++
		want.Slots += w.slots
		want.Usable += w.usable
		want.Reserved += w.reserved
		free := w.inLow+w.inReserved < w.usable
		mayLow := free && w.inLow < min(w.slots-w.reserved, w.usable-w.reserved)
		mayHigh := mayLow || free && w.inReserved < w.reserved
		if s := x.m.State(); mayHigh && s.WaitingHigh > 0 || mayLow && s.WaitingLow > 0 {
			t.Fatalf("%+v wait, but a worker has %+v", s, *w)
		}
	}
	want.RunningHigh = x.count(func(k *modelTask) bool { return k.running && k.high })
	want.RunningLow = x.count(func(k *modelTask) bool { return k.running && !k.high })
	want.WaitingHigh = x.count(func(k *modelTask) bool { return !k.running && k.high })
	want.WaitingLow = x.count(func(k *modelTask) bool { return !k.running && !k.high })
	if got := x.m.State(); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
}

// Withdrawn slots are taken from low-priority tasks first, and nothing is killed.
func TestCapTakesLowFirst(t *testing.T) {
	t.Parallel()
	m := NewMaster[string](MasterOptions{})
	w := m.Join(3, 1)
	m.Usable(w, 1)
	for _, task := range []string{"low", "low", "high"} {
		m.Place(task, task == "high")
	}
	if s, ok := m.Next(); !ok || !s.High || !s.Reserved {
		t.Fatalf("%+v %v", s, ok)
	}
	if s, ok := m.Next(); ok {
		t.Fatalf("started %+v beyond the cap", s)
	}
	m.Usable(w, 3)
	for range 2 {
		if s, ok := m.Next(); !ok || s.High {
			t.Fatalf("%+v %v", s, ok)
		}
	}
	m.Usable(w, 0)
	if s := m.State(); s.RunningLow != 2 || s.RunningHigh != 1 || s.Usable != 0 {
		t.Errorf("%+v", s)
	}
}

// The life of a task allocates nothing once the master has its size.
func TestMasterAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts the allocations of the whole process
	m := NewMaster[int](MasterOptions{W: 3})
	for range 10 {
		m.Join(4, 1)
	}
	r := rand.New(rand.NewPCG(1, 1))
	var running []ID
	round := func() {
		for range 8 {
			m.Place(1, r.IntN(2) == 0)
		}
		for s, more := m.Next(); more; s, more = m.Next() {
			running = append(running, s.ID)
		}
		for _, id := range running {
			m.End(id)
		}
		running = running[:0]
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}
