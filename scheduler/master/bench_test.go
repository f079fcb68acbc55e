package master

import (
	"fmt"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"headroom/internal/testkit"
)

// BenchmarkTasks is a task from distributor to worker and back over loopback: 10 workers of 10 slots whose tasks take no time, one
// distributor that has up to 1000 tasks under way. The workers and the distributor are in the same process. It tells the p99 of
// decisions, from a message's arrival until all that follows is decided.
func BenchmarkTasks(b *testing.B) {
	m := serve(b, Config{Name: "m1", Group: "rack/r1"}, nil)
	for i := range 10 {
		work(b, fmt.Sprintf("n%02d", i), 10, true, m.address)
	}
	testkit.Eventually(b, patience, "workers", func() bool { return m.see(b).GetState().GetWorkers() == 10 })
	s := connectTo(b, "d1", 1, m.address)
	const window, batch = 1000, 100
	sent, began := 0, time.Now()
	b.ResetTimer()
	for done := 0; done < b.N; done, _ = s.counts() {
		for sent < b.N && sent-done < window {
			n := min(batch, b.N-sent)
			s.place(tasks("j", sent, sent+n), false, false)
			sent += n
		}
		<-s.came
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "tasks/s")
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
