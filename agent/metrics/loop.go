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

// Loop is what only powerd's loop can count. Its methods may be called while a
// scrape reads; what is called in every turn costs some ten nanoseconds and makes
// no garbage.
type Loop struct {
	step, settle prometheus.Histogram
	limited      []atomic.Int64  // nanoseconds, in the order of limiters()
	throttled    []atomic.Uint64 // in the order of throttleKinds()

	mu     sync.Mutex
	drifts map[string]uint64 // by control, so bounded by those that a machine has
	writes map[failure]uint64
}

// Reason is why a write did not hold.
type Reason string

// Reasons of writes that did not hold.
const (
	// Locked: firmware holds the control until the next reboot.
	Locked Reason = "locked"
	// NotTaken: written without an error, and something else reads back.
	NotTaken Reason = "not-taken"
	// Refused: the kernel, systemd or the BMC said no, or the value is never written.
	Refused Reason = "refused"
	// IO: it could not be written or read back, or not be recorded before.
	IO Reason = "io"
)

// reasons are all of them.
func reasons() []Reason { return []Reason{Locked, NotTaken, Refused, IO} }

// failure is a way in which writes of a control fail.
type failure struct {
	control string
	why     Reason
}

// stepBuckets are for one turn of the loop, in seconds: tens of microseconds as a
// rule, a whole period when something is wrong.
func stepBuckets() []float64 {
	return []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3}
}

// settleBuckets are for meeting a new cap, in seconds: the goal is 1 s.
func settleBuckets() []float64 {
	return []float64{0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10}
}

const (
	// nativeFactor is how much wider each bucket of the native histogram is than the
	// one before: eight to each doubling.
	nativeFactor = 1.1
	// nativeMost bounds its buckets: eight to each doubling from 1 us to 1 s. Beyond,
	// they become wider; nothing is ever reset.
	nativeMost = 160
)

// NewLoop is a loop that has counted nothing.
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

// ObserveStep counts one turn of the loop that took d.
func (l *Loop) ObserveStep(d time.Duration) { l.step.Observe(d.Seconds()) }

// ObserveSettle counts one new cap, which the measured power met after d. of is the
// lease that the cap came with, nil where it came with none.
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

// AddLimited counts time in which the node was held back; by is as in status
// ("cap", "thermal", "sprint", "local", "fail-safe"), others are not counted.
func (l *Loop) AddLimited(by string, d time.Duration) {
	if i := slices.Index(limiters(), by); i >= 0 && d > 0 {
		l.limited[i].Add(int64(d))
	}
}

// SetThrottled takes how often heat slowed a processor down since powerd started:
// by the counters of cores, by those of packages, and by the kernel's events.
func (l *Loop) SetThrottled(cores, packages, events uint64) {
	for i, n := range [...]uint64{cores, packages, events} {
		l.throttled[i].Store(n)
	}
}

// Drifted counts that a control was found at another value than was written.
func (l *Loop) Drifted(control string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drifts[control]++
}

// WriteFailed counts a write of a control that did not hold.
func (l *Loop) WriteFailed(control string, why Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[failure{control, why}]++
}

// wrong is a copy of what went wrong so far.
func (l *Loop) wrong() (drifts map[string]uint64, writes map[failure]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.drifts), maps.Clone(l.writes)
}
