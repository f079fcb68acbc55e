package pigeon

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkTask is a task's whole way: a distributor hands it to one of ten groups, whose master of 100 workers places and ends it.
func BenchmarkTask(b *testing.B) {
	const groups, workers, job = 10, 100, 50
	d := NewDistributor[int](DistributorOptions{Spread: Balanced, Random: rand.New(rand.NewPCG(1, 1))})
	var masters []*Master[ID]
	for range groups {
		d.Window(d.Join(), 1<<40, 1<<40)
		m := NewMaster[ID](MasterOptions{W: 20})
		for i := range workers {
			m.Join(1, i%20/19)
		}
		masters = append(masters, m)
	}
	tasks := make([]int, job)
	var ids, running []ID
	b.ReportAllocs()
	for done := 0; done < b.N; done += job {
		ids, _ = d.Submit(tasks, done%2 == 0, ids[:0])
		for s, more := d.Next(); more; s, more = d.Next() {
			masters[s.Group].Place(s.ID, s.High)
		}
		for _, m := range masters {
			running = running[:0]
			for s, more := m.Next(); more; s, more = m.Next() {
				running = append(running, s.ID)
			}
			for _, id := range running {
				task, _ := m.End(id)
				d.Result(task)
			}
		}
	}
}
