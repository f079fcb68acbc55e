package metrics

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
)

// Loop holds the counts of powerd's loop. Its methods may be called during a scrape. Those
// called in every step take about ten nanoseconds and do not allocate.
type Loop struct {
	step, settle prometheus.Histogram
	limited      []atomic.Int64  // nanoseconds, in the order of limiters()
	throttled    []atomic.Uint64 // in the order of throttleKinds()

	mu     sync.Mutex
	drifts map[string]uint64 // by control, so bounded by those that a machine has
	writes map[failure]uint64
}

// Reason is the reason of a failed write.
type Reason string

// Reasons of failed writes.
const (
	// Locked: firmware has locked the control until the next reboot.
	Locked Reason = "locked"
	// NotTaken: the write succeeded, but another value reads back.
	NotTaken Reason = "not-taken"
	// Refused: the kernel, systemd or the BMC refused, or the value is never written.
	Refused Reason = "refused"
	// IO: the write, the read-back, or the record before the write failed.
	IO Reason = "io"
)

// reasons returns all reasons.
func reasons() []Reason { return []Reason{Locked, NotTaken, Refused, IO} }

// failure is a control and the reason of a failed write.
type failure struct {
	control string
	why     Reason
}

// stepBuckets are in seconds: a step usually takes tens of microseconds, and a whole
// period when something is wrong.
func stepBuckets() []float64 {
	return []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3}
}

// settleBuckets are in seconds; the goal for meeting a new cap is 1 s.
func settleBuckets() []float64 {
	return []float64{0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10}
}

const (
	// nativeFactor is the growth of the buckets of the native histogram: eight for each
	// doubling.
	nativeFactor = 1.1
	// nativeMost bounds its buckets: eight for each doubling from 1 us to 1 s. Beyond that
	// they become wider; nothing is reset.
	nativeMost = 160
)

// NewLoop returns a Loop with all counts 0.
func NewLoop() *Loop {
	return &Loop{
		step: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: controlStep, Help: all().Find(controlStep).Help, Buckets: stepBuckets(),
			NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeMost, NativeHistogramMaxExemplars: -1,
		}),
		settle:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: controlSettle, Help: all().Find(controlSettle).Help, Buckets: settleBuckets()}),
		limited: make([]atomic.Int64, len(limiters())), throttled: make([]atomic.Uint64, len(throttleKinds())),
		drifts: map[string]uint64{}, writes: map[failure]uint64{},
	}
}

// ObserveStep counts one step that took d.
func (l *Loop) ObserveStep(d time.Duration) { l.step.Observe(d.Seconds()) }

// ObserveSettle counts one new cap that measured power met after d. of is the lease of
// the cap, nil without one.
func (l *Loop) ObserveSettle(d time.Duration, of *headroomv1.Stamp) {
	settle, ok := l.settle.(prometheus.ExemplarObserver)
	if of == nil || !ok {
		l.settle.Observe(d.Seconds())
		return
	}
	settle.ObserveWithExemplar(d.Seconds(), prometheus.Labels{
		"incarnation": strconv.FormatUint(of.GetEpoch().GetIncarnation(), 10),
		"epoch":       strconv.FormatUint(of.GetEpoch().GetTerm(), 10),
		"seq":         strconv.FormatUint(of.GetSeq(), 10),
	})
}

// AddLimited counts time in which the node was limited by a cause of limiters; others are
// not counted.
func (l *Loop) AddLimited(by string, d time.Duration) {
	if i := slices.Index(limiters(), by); i >= 0 && d > 0 {
		l.limited[i].Add(int64(d))
	}
}

// SetThrottled sets the thermal throttle events since powerd started, by the counters of
// cores, those of packages, and the kernel's events.
func (l *Loop) SetThrottled(cores, packages, events uint64) {
	for i, n := range [...]uint64{cores, packages, events} {
		l.throttled[i].Store(n)
	}
}

// Drifted counts that another program changed a control.
func (l *Loop) Drifted(control string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drifts[control]++
}

// WriteFailed counts a failed write of a control.
func (l *Loop) WriteFailed(control string, why Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[failure{control, why}]++
}

// wrong returns copies of the counts of drifts and failures.
func (l *Loop) wrong() (drifts map[string]uint64, writes map[failure]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.drifts), maps.Clone(l.writes)
}
