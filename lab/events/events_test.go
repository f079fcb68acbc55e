// Claims: events come in the order of their times, then of rank, then as they were scheduled, whatever was moved or removed
// between, in seconds and in durations; work ends when its rates imply; the first copy of a task ends it and frees the slots
// of the others; a slot's speed stretches what is left; nothing is allocated once the
// machine has its size.
package events

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

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
		var q Queue[float64, int]
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
			waits := 0
			for id, order := range q.All() {
				if i := slices.IndexFunc(all, func(w waiting) bool { return w.id == id }); i < 0 || all[i].order != order {
					t.Fatalf("event %d waits", order)
				}
				waits++
			}
			if q.Len() != len(all) || waits != len(all) {
				t.Fatalf("%d and %d wait, want %d", q.Len(), waits, len(all))
			}
		}
	})
}

// Events in the past happen now, and time stops at the last one; a clock of durations behaves alike.
func TestClock(t *testing.T) {
	t.Parallel()
	var c Clock[time.Duration, string]
	c.Schedule(5, 2, "second")
	first := c.Schedule(9, 1, "first")
	c.Cancel(c.Schedule(1, 0, "cancelled"))
	c.Move(first, 5)
	c.Schedule(Never[time.Duration](), 0, "never")
	if e, ok := c.Before(4); ok {
		t.Errorf("%s at %v", e, c.Now())
	}
	c.Advance(5)
	c.Schedule(3, 3, "past")
	for _, want := range []string{"first", "second", "past"} {
		if e, ok := c.Next(); !ok || e != want || c.Now() != 5 {
			t.Errorf("%s at %v, want %s", e, c.Now(), want)
		}
	}
	if e, ok := c.Next(); ok {
		t.Errorf("%s at %v", e, c.Now())
	}
}

// Work at changing rates ends when the sum of its parts is done, whatever the unit of time.
func TestWork(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seconds := Work[float64]{Left: 100, Rate: 1}
		durations := Work[time.Duration]{Left: 100, Rate: 1}
		now, done := 0, 0.0
		for range rapid.IntRange(0, 5).Draw(t, "changes") {
			took, rate := rapid.IntRange(0, 20).Draw(t, "s"), float64(rapid.IntRange(0, 4).Draw(t, "rate"))/2
			now, done = now+took, done+float64(took)*seconds.Rate
			seconds.SetRate(float64(now), rate)
			durations.SetRate(time.Duration(now)*time.Second, rate)
		}
		left := max(0, 100-done)
		if math.Abs(seconds.LeftAt(float64(now))-left) > 1e-9 || math.Abs(durations.LeftAt(time.Duration(now)*time.Second)-left) > 1e-9 {
			t.Fatalf("%v and %v left, want %v", seconds, durations, left)
		}
		switch want := float64(now) + left/seconds.Rate; {
		case left > 0 && seconds.Rate == 0:
			if seconds.Ends() != Never[float64]() || durations.Ends() != Never[time.Duration]() {
				t.Fatalf("paused, ends at %v and %v", seconds.Ends(), durations.Ends())
			}
		case left > 0 && (math.Abs(seconds.Ends()-want) > 1e-9 || math.Abs(durations.Ends().Seconds()-want) > 1e-8):
			t.Fatalf("ends at %v and %v, want %v", seconds.Ends(), durations.Ends(), want)
		}
	})
}

// The paper's first example of GRASS: a copy of a straggler at 1 ends at 3, and both slots are free.
func TestFirstCopyEndsTask(t *testing.T) {
	t.Parallel()
	m := NewMachine[string](9, 2)
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
	if e, ok := m.Next(); !ok || e.Task != 0 || e.Slot != 1 || m.Now() != 3 || m.Free != 2 || !m.Ended(0) {
		t.Errorf("%+v at %v, %d free", e, m.Now(), m.Free)
	}
	if e, ok := m.Next(); !ok || e.Ended || e.Own != "after the end" || m.Now() != 3 {
		t.Errorf("%+v at %v", e, m.Now())
	}
	if m.Done != 2 || m.Running != 0 {
		t.Errorf("%d done, %d running", m.Done, m.Running)
	}
	if e, ok := m.Next(); ok {
		t.Errorf("%+v after the last", e)
	}
}

// Whatever a simulation does, the books add up: each task has its copies, and each copy its slot.
func TestBooksAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots, tasks := rapid.IntRange(1, 5).Draw(t, "slots"), rapid.IntRange(1, 8).Draw(t, "tasks")
		m := NewMachine[int](tasks, slots)
		last := 0.0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			task, slot := rapid.IntRange(0, tasks-1).Draw(t, "task"), rapid.IntRange(0, slots-1).Draw(t, "slot")
			x := float64(rapid.IntRange(0, 8).Draw(t, "x")) / 2
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				if !m.Busy(slot) && !m.Ended(task) {
					m.Start(task, slot, x)
				}
			case 2:
				if m.Busy(slot) {
					m.Kill(slot)
				}
			case 3:
				m.SetSpeed(slot, x)
			default:
				m.Next()
				if m.Now() < last || math.IsInf(m.Now(), 0) {
					t.Fatalf("from %v to %v", last, m.Now())
				}
				last = m.Now()
			}
			check(t, m)
		}
	})
}

// check holds the books against the tasks and the slots.
func check(t *rapid.T, m *Machine[int]) {
	done, running, copies := 0, 0, 0
	for task := range m.tasks {
		copies += m.Copies(task)
		if m.Copies(task) > 0 {
			running++
		}
		if m.Ended(task) {
			done++
		}
		for slot := range m.Slots(task) {
			if m.Copy(slot).Task != task {
				t.Fatalf("slot %d of task %d runs task %d", slot, task, m.Copy(slot).Task)
			}
		}
	}
	if m.Done != done || m.Running != running || m.Free != len(m.slots)-copies {
		t.Fatalf("%d done, %d running, %d free; want %d, %d, %d", m.Done, m.Running, m.Free, done, running, len(m.slots)-copies)
	}
}

// The same calls give the same events.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	story := func() (events []Event[int]) {
		r := rand.New(rand.NewPCG(5, 5))
		l := newLoad(50, 2000)
		for l.fill(); ; l.fill() {
			e, ok := l.step()
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
		l.step()
	}
	if got := testing.AllocsPerRun(1000, func() { l.fill(); l.step(); l.m.SetSpeed(7, 1.5); l.m.SetSpeed(7, 1) }); got != 0 {
		t.Errorf("%v allocations a task", got)
	}
}

// A call that makes no sense panics at once.
func TestMisusePanics(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(m *Machine[int]){
		"busy slot":    func(m *Machine[int]) { m.Start(1, 0, 1) },
		"done task":    func(m *Machine[int]) { m.Next(); m.Start(0, 1, 1) },
		"kill nothing": func(m *Machine[int]) { m.Kill(1) },
	} {
		m := NewMachine[int](2, 2)
		m.Start(0, 0, 1)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call(m)
		}()
	}
}
