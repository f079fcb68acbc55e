// Claims: what the loop counts costs it no garbage, is whole however it is counted
// while a scrape reads, and is never reset; a settled cap names its lease.
package metrics

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func written(t *testing.T, h prometheus.Histogram) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram()
}

// Not parallel: it counts what the whole process sets aside.
func TestCountingMakesNoGarbage(t *testing.T) {
	l := NewLoop()
	l.Drifted("package-0")
	n := testing.AllocsPerRun(1000, func() {
		l.ObserveStep(40 * time.Microsecond)
		l.AddLimited("cap", time.Millisecond)
		l.SetThrottled(1, 2, 3)
		l.Drifted("package-0")
	})
	if n != 0 {
		t.Errorf("%v objects made in one turn", n)
	}
}

// The native histogram keeps to its bound and forgets nothing.
func TestStepsAreNativeAndBounded(t *testing.T) {
	t.Parallel()
	l := NewLoop()
	most := 0
	for i := range 10_000 {
		l.ObserveStep(time.Duration(i*i) * 137 * time.Nanosecond)
		if i%500 == 0 {
			h := written(t, l.step)
			most = max(most, len(h.GetPositiveDelta()))
		}
	}
	h := written(t, l.step)
	if h.GetSampleCount() != 10_000 || h.Schema == nil || len(h.GetBucket()) != len(stepBuckets()) {
		t.Errorf("%d turns, schema %v, %d classic buckets", h.GetSampleCount(), h.Schema, len(h.GetBucket()))
	}
	if most == 0 || most > 2*nativeMost {
		t.Errorf("%d native buckets, the bound is %d", most, nativeMost)
	}
}

// However many turns are counted while a scrape reads, its buckets are cumulative
// and its count never falls.
func TestHistogramIsWhole(t *testing.T) {
	t.Parallel()
	l := NewLoop()
	stop := make(chan struct{})
	var counting sync.WaitGroup
	counting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				l.ObserveStep(time.Duration(i%400) * time.Millisecond)
			}
		}
	})
	last := uint64(0)
	for range 200 {
		h := written(t, l.step)
		below := uint64(0)
		for _, b := range h.GetBucket() {
			if b.GetCumulativeCount() < below {
				t.Errorf("bucket %v holds %d, the one before %d", b.GetUpperBound(), b.GetCumulativeCount(), below)
			}
			below = b.GetCumulativeCount()
		}
		if h.GetSampleCount() < below || h.GetSampleCount() < last {
			t.Errorf("count %d, last bucket %d, count before %d", h.GetSampleCount(), below, last)
		}
		last = h.GetSampleCount()
	}
	close(stop)
	counting.Wait()
}

func TestASettledCapNamesItsLease(t *testing.T) {
	t.Parallel()
	l := NewLoop()
	l.ObserveSettle(time.Second, stamp())
	l.ObserveSettle(9*time.Second, nil)
	var found []string
	for _, b := range written(t, l.settle).GetBucket() {
		if e := b.GetExemplar(); e != nil {
			for _, l := range e.GetLabel() {
				found = append(found, l.GetName()+"="+l.GetValue())
			}
			if b.GetUpperBound() != 1 {
				t.Errorf("exemplar in the bucket up to %v: a bound belongs to its own bucket", b.GetUpperBound())
			}
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, []string{"epoch=7", "incarnation=1", "seq=90211"}) {
		t.Errorf("labels of exemplars %v", found)
	}
}

func BenchmarkObserveStep(b *testing.B) {
	l := NewLoop()
	b.ReportAllocs()
	for b.Loop() {
		l.ObserveStep(40 * time.Microsecond)
	}
}
