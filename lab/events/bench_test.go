package events

import (
	"math/rand/v2"
	"testing"
)

// load keeps a machine busy: whenever a slot is free it starts the next task, and every eighth time a second copy.
type load struct {
	m     *Machine[int]
	times []float64
	next  int
	free  []int
	other []int // of each slot, the one with the other copy of its task
}

func newLoad(slots, tasks int) *load {
	r := rand.New(rand.NewPCG(1, 1))
	l := &load{m: NewMachine[int](tasks, slots), other: make([]int, slots)}
	for slot := range slots {
		l.free = append(l.free, slot)
	}
	for range 4096 {
		l.times = append(l.times, 1+r.ExpFloat64())
	}
	return l
}

// fill gives the free slots to tasks.
func (l *load) fill() {
	for ; len(l.free) > 0 && l.next < len(l.m.tasks); l.free = l.free[:len(l.free)-1] {
		slot, work := l.free[len(l.free)-1], l.times[l.next%len(l.times)]
		l.other[slot] = none
		if l.next%8 == 7 && l.m.Copies(l.next-1) == 1 {
			first := l.m.tasks[l.next-1].slot
			l.other[slot], l.other[first] = first, slot
			l.m.Start(l.next-1, slot, work)
			continue
		}
		l.m.Start(l.next, slot, work)
		l.next++
	}
}

// step takes the next event and frees the slots of its task.
func (l *load) step() (Event[int], bool) {
	e, ok := l.m.Next()
	if ok {
		if l.free = append(l.free, e.Slot); l.other[e.Slot] != none {
			l.free = append(l.free, l.other[e.Slot])
		}
	}
	return e, ok
}

// BenchmarkTasks is the whole life of a task on 10,000 slots, every eighth with a copy that loses.
func BenchmarkTasks(b *testing.B) {
	const slots = 10_000
	l := newLoad(slots, b.N+slots)
	l.fill()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		l.step()
		l.fill()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkSpeeds changes the speeds of 1,000 slots in use.
func BenchmarkSpeeds(b *testing.B) {
	l := newLoad(1000, 1000)
	l.fill()
	b.ReportAllocs()
	for i := range b.N {
		l.m.SetSpeed(i%1000, 0.5+float64(i%7)/10)
	}
}
