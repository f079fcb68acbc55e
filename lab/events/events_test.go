// Claims: events come in the order of their times, then of rank, then as they were scheduled, whatever was moved or removed
// between; the first copy of a task ends it and frees the slots of the others; a slot's speed stretches what is left;
// no slot time is lost or counted twice; nothing is allocated once the machine has its size.
package events

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"headroom/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

func TestQueueIsInOrder(t *testing.T) {
	t.Parallel()
	type waiting struct {
		at    float64
		rank  uint8
		order int
		id    ID
	}
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		var all []waiting
		for order := range rapid.IntRange(1, 200).Draw(t, "steps") {
			at := float64(rapid.IntRange(0, 9).Draw(t, "at"))
			switch pick := rapid.IntRange(0, 5).Draw(t, "what"); {
			case pick < 3 || len(all) == 0:
				rank := uint8(rapid.IntRange(0, 2).Draw(t, "rank"))
				all = append(all, waiting{at, rank, order, q.Push(at, rank, order)})
			case pick == 3:
				i := rapid.IntRange(0, len(all)-1).Draw(t, "moved")
				q.Move(all[i].id, at)
				all[i].at = at
			case pick == 4:
				i := rapid.IntRange(0, len(all)-1).Draw(t, "removed")
				q.Remove(all[i].id)
				all = slices.Delete(all, i, i+1)
			default:
				first := 0
				for i, w := range all {
					f := all[first]
					if w.at < f.at || w.at == f.at && (w.rank < f.rank || w.rank == f.rank && w.order < f.order) {
						first = i
					}
				}
				at, got, ok := q.Pop()
				if !ok || at != all[first].at || got != all[first].order {
					t.Fatalf("popped %d of %v, want %+v", got, at, all[first])
				}
				all = slices.Delete(all, first, first+1)
			}
			if q.Len() != len(all) {
				t.Fatalf("%d wait, want %d", q.Len(), len(all))
			}
		}
	})
}

// The paper's first example of GRASS: a copy of a straggler at 1 ends at 3, and both slots are free.
func TestFirstCopyEndsTask(t *testing.T) {
	t.Parallel()
	var m Machine[string]
	m.AddSlots(2, 1)
	j := m.AddJob(9)
	m.Start(0, 0, 6)
	m.Start(1, 1, 1)
	m.Schedule(3, 1, "after the end")
	if e, ok := m.Next(); !ok || !e.Ended || e.Task != 1 || e.Slot != 1 || m.Now() != 1 {
		t.Fatalf("%+v at %v", e, m.Now())
	}
	m.Start(0, 1, 2)
	if c := m.Copy(0); c.Left != 5 || m.Copies(0) != 2 || !slices.Equal(slices.Collect(m.Slots(0)), []int{1, 0}) {
		t.Errorf("%+v, %d copies", c, m.Copies(0))
	}
	if e, ok := m.Next(); !ok || e.Task != 0 || e.Slot != 1 || m.Now() != 3 || len(m.Free()) != 2 || m.State(0) != Done {
		t.Errorf("%+v at %v, free %v", e, m.Now(), m.Free())
	}
	if e, ok := m.Next(); !ok || e.Ended || e.Own != "after the end" || m.Now() != 3 {
		t.Errorf("%+v at %v", e, m.Now())
	}
	if got := *m.Job(j); got != (Job{Tasks: 9, Waiting: 7, Done: 2, Useful: 3, Lost: 3}) {
		t.Errorf("%+v", got)
	}
	if e, ok := m.Next(); ok {
		t.Errorf("%+v after the last", e)
	}
}

// A job that holds parts of slots is a task on a slot of that speed; at speed 0 it pauses.
func TestSpeedStretches(t *testing.T) {
	t.Parallel()
	var m Machine[int]
	slot := m.AddSlots(1, 2.5)
	m.AddJob(1)
	m.Start(0, slot, 100)
	for i, speed := range []float64{0, 5, 10} {
		m.Schedule(float64(10*i+10), 1, i)
		if e, ok := m.Next(); !ok || e.Own != i {
			t.Fatalf("%+v", e)
		}
		m.SetSpeed(slot, speed)
	}
	if e, ok := m.Next(); !ok || !e.Ended || m.Now() != 32.5 { // 25 until 10, none until 20, 50 until 30, 25 more at 10 a second
		t.Errorf("%+v at %v", e, m.Now())
	}
	m.AddJob(1)
	m.SetSpeed(slot, 0)
	m.Start(1, slot, 1)
	if at, ok := m.until(); ok {
		t.Errorf("a paused task ends at %v", at)
	}
	m.Drop(1)
	if m.Busy(slot) || m.State(1) != Dropped || m.Job(1).Dropped != 1 || m.Job(1).Lost != 0 {
		t.Errorf("%+v", *m.Job(1))
	}
}

// Whatever a simulation does, the books add up: each task is in one state, and slots are in use as long as copies ran.
func TestBooksAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m Machine[int]
		slots, tasks := rapid.IntRange(1, 5).Draw(t, "slots"), rapid.IntRange(1, 8).Draw(t, "tasks")
		m.AddSlots(slots, 1)
		j := m.AddJob(tasks)
		busy, last := 0.0, 0.0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			task, slot := rapid.IntRange(0, tasks-1).Draw(t, "task"), rapid.IntRange(0, slots-1).Draw(t, "slot")
			x := float64(rapid.IntRange(0, 8).Draw(t, "x")) / 2
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				if !m.Busy(slot) && m.State(task) <= Running {
					m.Start(task, slot, x)
				}
			case 2:
				if m.Busy(slot) {
					m.Kill(slot)
				}
			case 3:
				m.SetSpeed(slot, x)
			case 4:
				m.Drop(task)
			default:
				used := float64(slots - len(m.Free()))
				m.Next()
				busy += used * (m.Now() - last)
				if m.Now() < last || math.IsInf(m.Now(), 0) {
					t.Fatalf("from %v to %v", last, m.Now())
				}
				last = m.Now()
			}
			check(t, &m, j, slots)
		}
		for slot := range slots {
			if m.Busy(slot) {
				m.Kill(slot)
			}
		}
		if got := m.Job(j).Useful + m.Job(j).Lost; math.Abs(got-busy) > 1e-9 {
			t.Fatalf("%v s in the books, slots were in use for %v s", got, busy)
		}
	})
}

// check holds the books of a job against the tasks and the slots.
func check(t *rapid.T, m *Machine[int], job, slots int) {
	var want Job
	j := *m.Job(job)
	want.Tasks, want.Useful, want.Lost = j.Tasks, j.Useful, j.Lost
	counts := []*int{&want.Waiting, &want.Running, &want.Done, &want.Dropped}
	for task := range j.Tasks {
		*counts[m.State(task)]++
		want.Copies += m.Copies(task)
		for slot := range m.Slots(task) {
			if m.Copy(slot).Task != task {
				t.Fatalf("slot %d of task %d runs task %d", slot, task, m.Copy(slot).Task)
			}
		}
		if (m.Copies(task) > 0) != (m.State(task) == Running) {
			t.Fatalf("task %d is in state %d with %d copies", task, m.State(task), m.Copies(task))
		}
	}
	if j != want || len(m.Free()) != slots-want.Copies {
		t.Fatalf("%+v, want %+v; free %v", j, want, m.Free())
	}
}

// The same calls give the same events.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	story := func() (events []Event[int]) {
		r := rand.New(rand.NewPCG(5, 5))
		l := newLoad(50, 2000)
		for l.fill(); ; l.fill() {
			e, ok := l.m.Next()
			if !ok {
				return events
			}
			l.m.SetSpeed(r.IntN(50), 0.5+r.Float64())
			events = append(events, e)
		}
	}
	a, b := story(), story()
	if len(a) != 2000 || !slices.Equal(a, b) {
		t.Errorf("%d and %d events, or not the same", len(a), len(b))
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	l := newLoad(100, 10_000)
	for range 1000 {
		l.fill()
		l.m.Next()
	}
	if got := testing.AllocsPerRun(1000, func() { l.fill(); l.m.Next(); l.m.SetSpeed(7, 1.5); l.m.SetSpeed(7, 1) }); got != 0 {
		t.Errorf("%v allocations a task", got)
	}
}

// A call that makes no sense panics at once.
func TestMisusePanics(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(m *Machine[int]){
		"busy slot":     func(m *Machine[int]) { m.Start(1, 0, 1) },
		"done task":     func(m *Machine[int]) { m.Next(); m.Start(0, 1, 1) },
		"kill nothing":  func(m *Machine[int]) { m.Kill(1) },
		"copy of none":  func(m *Machine[int]) { m.Copy(1) },
		"dropped start": func(m *Machine[int]) { m.Drop(1); m.Start(1, 1, 1) },
	} {
		var m Machine[int]
		m.AddSlots(2, 1)
		m.AddJob(2)
		m.Start(0, 0, 1)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call(&m)
		}()
	}
}
