package dispatch

import (
	"fmt"
	"testing"
	"time"

	"headroom/jobs/speculation"
)

// BenchmarkChoose is one decision on copies and waiting tasks of a job with a deadline, as a slot gets free on one of 100 nodes.
func BenchmarkChoose(b *testing.B) {
	k := newDriver(b)
	k.c.Speculate(Speculation{Policy: speculation.Ours})
	for n := range 100 {
		k.c.Hello(k.now, fmt.Sprintf("n%03d", n), 10, nil)
	}
	p := plan("j", "low", 10_000, 1000)
	p.Deadline = k.now.Add(time.Hour)
	k.add(p)
	k.step(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		if k.c.jobs["j"].state != Running {
			b.Fatal("the job has ended: more iterations than tasks")
		}
		k.now = k.now.Add(10 * time.Millisecond)
		ref := sortedRefs(refs(k.running))[0]
		for _, n := range k.c.nodes() {
			k.c.Alive(k.now, n)
		}
		k.c.Result(k.now, k.running[ref], ref, "")
		delete(k.running, ref)
		b.StartTimer()
		k.step(0)
	}
}
