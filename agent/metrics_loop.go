package agent

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// loopMetrics is what only the loop itself can count. Its methods cost some
// nanoseconds, make no garbage and may be called while a scrape reads. The zero
// value is ready.
type loopMetrics struct {
	step    histogram[stepBuckets]
	settle  histogram[settleBuckets]
	limited [limitersMax]atomic.Int64 // nanoseconds, in the order of limiters()
}

// limitersMax is the number of limiters().
const limitersMax = 5

// ObserveStep counts one turn of the loop that took d.
func (m *loopMetrics) ObserveStep(d time.Duration) { m.step.observe(d) }

// ObserveSettle counts one new cap, which the measured power met after d.
func (m *loopMetrics) ObserveSettle(d time.Duration) { m.settle.observe(d) }

// AddLimited counts time in which the node was held back; by is as in status
// ("cap", "thermal", "sprint", "local", "fail-safe"), others are not counted.
func (m *loopMetrics) AddLimited(by string, d time.Duration) {
	if i := slices.Index(limiters(), by); i >= 0 && d > 0 {
		m.limited[i].Add(int64(d))
	}
}

// bounds are the upper ends of a histogram's buckets.
type bounds interface{ upper() []time.Duration }

// stepBuckets are for one turn of the loop: tens of microseconds as a rule, a
// whole period when something is wrong.
type stepBuckets struct{}

func (stepBuckets) upper() []time.Duration {
	const us, ms = time.Microsecond, time.Millisecond
	return []time.Duration{50 * us, 100 * us, 250 * us, 500 * us, 1 * ms, 2500 * us, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms}
}

// settleBuckets are for meeting a new cap: the goal is 1 s.
type settleBuckets struct{}

func (settleBuckets) upper() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{50 * ms, 100 * ms, 250 * ms, 500 * ms, 750 * ms, time.Second, 1500 * ms, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second}
}

// bucketsMax is the most buckets of any histogram, the one without end included.
const bucketsMax = 13

// histogram counts durations. Invariant: counts[i] are those above the bound
// before i and at most bound i; the one after the last bound has the rest.
type histogram[B bounds] struct {
	counts [bucketsMax]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (h *histogram[B]) observe(d time.Duration) {
	var b B
	i, _ := slices.BinarySearch(b.upper(), d)
	h.counts[i].Add(1)
	h.sum.Add(int64(max(0, d)))
}

// view is a copy whose count is that of its buckets, whatever happens meanwhile.
func (h *histogram[B]) view() *histogramView {
	var b B
	v := &histogramView{upper: b.upper(), sum: time.Duration(h.sum.Load())}
	for i := range len(v.upper) + 1 {
		v.count += h.counts[i].Load()
		v.below = append(v.below, v.count)
	}
	return v
}

// histogramView is a histogram at one moment; below is cumulative.
type histogramView struct {
	upper []time.Duration
	below []uint64
	sum   time.Duration
	count uint64
}

func (v *histogramView) append(b []byte, name string) []byte {
	line := func(suffix, le, value string) {
		b = append(b, name...)
		b = append(b, suffix...)
		if le != "" {
			b = append(b, `{le="`+le+`"}`...)
		}
		b = append(b, ' ')
		b = append(b, value...)
		b = append(b, '\n')
	}
	for i, n := range v.below {
		le := "+Inf"
		if i < len(v.upper) {
			le = strconv.FormatFloat(v.upper[i].Seconds(), 'g', -1, 64)
		}
		line("_bucket", le, strconv.FormatUint(n, 10))
	}
	line("_sum", "", strconv.FormatFloat(v.sum.Seconds(), 'g', -1, 64))
	line("_count", "", strconv.FormatUint(v.count, 10))
	return b
}
