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
}

func newLoad(slots, tasks int) *load {
	r := rand.New(rand.NewPCG(1, 1))
	l := &load{m: &Machine[int]{}}
	l.m.AddSlots(slots, 1)
	l.m.AddJob(tasks)
	for range 4096 {
		l.times = append(l.times, 1+r.ExpFloat64())
	}
	return l
}

// fill gives all free slots to tasks.
func (l *load) fill() {
	for free := l.m.Free(); len(free) > 0 && l.next < l.m.Job(0).Tasks; free = l.m.Free() {
		slot := int(free[len(free)-1])
		if l.next%8 == 7 && l.m.State(l.next-1) == Running && l.m.Copies(l.next-1) == 1 {
			l.m.Start(l.next-1, slot, l.times[l.next%len(l.times)])
			continue
		}
		l.m.Start(l.next, slot, l.times[l.next%len(l.times)])
		l.next++
	}
}

// BenchmarkTasks is the whole life of a task on 10,000 slots, every eighth with a copy that loses.
func BenchmarkTasks(b *testing.B) {
	const slots = 10_000
	l := newLoad(slots, b.N+slots)
	l.fill()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		l.m.Next()
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
