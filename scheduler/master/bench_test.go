package master

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

// BenchmarkTasks is a task from distributor to worker and back over loopback: 10 workers of 10 slots whose tasks take no time, one
// distributor that has up to 1000 tasks in progress. The workers and the distributor are in the same process. It tells the p99 of
// decisions, from a message's arrival until all that follows is decided, and the processor time of all three for a task, which
// other load on the machine changes little.
func BenchmarkTasks(b *testing.B) {
	m := serve(b, Config{Name: "m1", Group: "rack/r1"})
	for i := range 10 {
		work(b, fmt.Sprintf("n%02d", i), 10, true, m.address)
	}
	testkit.Eventually(b, patience, "workers", func() bool { return m.see(b).GetState().GetWorkers() == 10 })
	s := connectTo(b, m.address)
	const window, batch = 1000, 100
	sent, began, before := 0, time.Now(), cpu(b)
	b.ResetTimer()
	for done := 0; done < b.N; done = s.results() {
		for sent < b.N && sent-done < window {
			n := min(batch, b.N-sent)
			s.place(tasks("j", sent, sent+n), false)
			sent += n
		}
		<-s.came
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "tasks/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/task")
	var h dto.Metric
	testkit.Check(b, m.delays.Write(&h))
	var upTo float64
	for _, x := range h.GetHistogram().GetBucket() {
		if upTo = x.GetUpperBound(); float64(x.GetCumulativeCount()) >= 0.99*float64(h.GetHistogram().GetSampleCount()) {
			break
		}
	}
	b.ReportMetric(1e6*upTo, "p99-us")
	s.cancel() // before the workers: what comes after the end is of no interest
}

// BenchmarkDecide is what the owner does for 100 tasks, without streams: it takes them, gives them to workers, takes their results and
// forgets them. It tells the processor time of one task.
func BenchmarkDecide(b *testing.B) {
	now := time.Unix(1e9, 0)
	g := newGroup(Config{Name: "m1", Group: "rack/r1", Logger: slog.New(slog.DiscardHandler)}, now)
	var workers []*workSession
	for i := range 10 {
		s := newWorkSession(fmt.Sprintf("n%02d", i), nil)
		testkit.Check(b, g.hello(now, s, &headroomv1.WorkerHello{Slots: 10}))
		workers = append(workers, s)
	}
	d := newPlaceSession("d1", 1, nil)
	testkit.Check(b, g.join(now, d))
	all := tasks("j", 0, 100)
	refs := make([]*headroomv1.TaskRef, 0, len(all))
	for _, t := range all {
		refs = append(refs, t.GetRef())
	}
	before, n := cpu(b), 0
	for b.Loop() {
		g.place(now, d, &headroomv1.PlaceTasks{Tasks: all})
		g.decide()
		for _, s := range workers {
			items := s.box.take(now)
			for _, x := range items {
				g.ended(now, s, []*headroomv1.TaskResult{{Ref: x.task.GetRef()}})
				n++
			}
			s.box.sent(items)
		}
		g.taken(now, d, refs)
		d.box.sent(d.box.take(now))
	}
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(n), "cpu-ns/task")
}

// cpu is the processor time that this process has used.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	testkit.Check(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
