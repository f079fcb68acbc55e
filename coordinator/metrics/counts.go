package metrics

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"headroom/budget"
	"headroom/internal/each"
	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

// Counts are what only the server itself can count. Methods may be called while a
// scrape reads. They begin at 0 with the process: they are not replicated.
type Counts struct {
	grantLatency, commit, apply prometheus.Histogram
	policy, rpcDuration         *prometheus.HistogramVec
	estimate                    *prometheus.HistogramVec
	rpcRequests                 *prometheus.CounterVec

	mu                   sync.Mutex
	granted, notAdmitted uint64
	missed, changes      uint64
	stops, dropped       uint64
	verdicts             map[string]uint64 // on deadlines
	sprints              uint64
	moves                map[string]uint64
	leader               string // the last one seen
	over                 map[string]excess
}

// excess is how long and how far a domain was above its budget.
type excess struct {
	violation, shortfall time.Duration
	energy               float64 // J above the budget
}

// durations are buckets for what takes a network and a disk, in seconds: a commit
// takes milliseconds, the deadline is 5 s.
func durations() []float64 {
	return []float64{0.5e-3, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1, 2.5, 5}
}

// steps are buckets for what takes the processor alone, in seconds.
func steps() []float64 {
	return []float64{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 50e-3, 100e-3, 500e-3}
}

// parts are buckets for errors, as parts of what is true.
func parts() []float64 { return []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1} }

func options(name string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: all().Find(name).Help, Buckets: buckets}
}

// NewCounts have counted nothing. Every policy and every result is there with 0.
func NewCounts() *Counts {
	c := &Counts{
		grantLatency: prometheus.NewHistogram(options(grantLatency, durations())),
		commit:       prometheus.NewHistogram(options(commitDuration, durations())),
		apply:        prometheus.NewHistogram(options(applyDuration, steps())),
		policy:       prometheus.NewHistogramVec(options(policyDuration, steps()), all().Find(policyDuration).LabelNames()),
		rpcDuration:  prometheus.NewHistogramVec(options(rpcDuration, durations()), all().Find(rpcDuration).LabelNames()),
		estimate:     prometheus.NewHistogramVec(options(estimateError, parts()), all().Find(estimateError).LabelNames()),
		rpcRequests:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: rpcRequests, Help: all().Find(rpcRequests).Help}, all().Find(rpcRequests).LabelNames()),
		over:         map[string]excess{},
		moves:        map[string]uint64{}, verdicts: map[string]uint64{},
	}
	for _, p := range policies() {
		c.policy.WithLabelValues(p)
	}
	for _, p := range estimators() {
		c.estimate.WithLabelValues(p)
	}
	return c
}

// own are the metrics that fill themselves.
func (c *Counts) own() []prometheus.Collector {
	return []prometheus.Collector{c.grantLatency, c.commit, c.apply, c.policy, c.estimate, c.rpcDuration, c.rpcRequests}
}

func policies() []string {
	return each.Of(budget.Policies(), func(p budget.Policy) string { return string(p) })
}

// estimators are the policies by which finish times are foreseen and held against the truth.
func estimators() []string { return []string{string(progress.Learned), string(progress.Paper)} }

// Granted counts a lease that was sent after its heartbeat had waited for d.
func (c *Counts) Granted(d time.Duration) {
	c.grantLatency.Observe(d.Seconds())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted++
}

// NotAdmitted counts n nodes that were told that they get no lease.
func (c *Counts) NotAdmitted(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notAdmitted += uint64(n)
}

// Committed counts an entry that was committed after d and made that revision.
func (c *Counts) Committed(d time.Duration, revision uint64) {
	if h, ok := c.commit.(prometheus.ExemplarObserver); ok {
		h.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"revision": strconv.FormatUint(revision, 10)})
	}
}

// Applied counts an entry whose application took d.
func (c *Counts) Applied(d time.Duration) { c.apply.Observe(d.Seconds()) }

// Planned counts a plan by that policy that took d. An unknown policy is not counted.
func (c *Counts) Planned(policy string, d time.Duration) {
	if slices.Contains(policies(), policy) {
		c.policy.WithLabelValues(policy).Observe(d.Seconds())
	}
}

// Estimated counts how far off the finish times of a job by that policy were, as a part
// of its runtime. An unknown policy is not counted.
func (c *Counts) Estimated(policy string, part float64) {
	if slices.Contains(estimators(), policy) {
		c.estimate.WithLabelValues(policy).Observe(part)
	}
}

// Missed counts a tick that came too late.
func (c *Counts) Missed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed++
}

// Stopped counts an early stop of a job.
func (c *Counts) Stopped() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stops++
}

// Sprinted counts a sprint that the job loop has granted.
func (c *Counts) Sprinted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sprints++
}

// Moved counts a move of a job that is another than the one before, by its kind. An unknown
// kind is not counted.
func (c *Counts) Moved(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(moveKinds(), kind) {
		c.moves[kind]++
	}
}

// moveKinds are what may be done about a job.
func moveKinds() []string {
	return each.Of(arbiter.MoveKinds(), arbiter.MoveKind.String)
}

// Dropped counts n map tasks that will never run.
func (c *Counts) Dropped(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped += uint64(max(0, n))
}

// Judged counts the verdict on a job's deadline; one without a verdict is not counted.
func (c *Counts) Judged(verdict string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(verdicts(), verdict) {
		c.verdicts[verdict]++
	}
}

// verdicts are those on jobs' deadlines.
func verdicts() []string { return []string{"met", "missed"} }

// Led notes who leads; "" is nobody, which is no change by itself.
func (c *Counts) Led(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == "" || id == c.leader {
		return
	}
	if c.leader != "" {
		c.changes++
	}
	c.leader = id
}

// Violated counts that a domain drew so much above its budget for d.
func (c *Counts) Violated(domain string, above units.Power, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.over[domain]
	x.violation += d
	x.energy += above.Watts() * d.Seconds()
	c.over[domain] = x
}

// Short counts that a domain was charged more than its budget for d.
func (c *Counts) Short(domain string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.over[domain]
	x.shortfall += d
	c.over[domain] = x
}

// codes are the outcomes of calls.
func codes() []string {
	out := []string{codeOK}
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		out = append(out, c.String())
	}
	return out
}

const codeOK = "ok"

func codeOf(err error) string {
	switch {
	case err == nil:
		return codeOK
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled.String()
	}
	return connect.CodeOf(err).String()
}

// Interceptor counts calls to a server. It belongs before whatever refuses some of
// them. Methods are those that the server serves, so the label is bounded.
func (c *Counts) Interceptor() connect.Interceptor { return counting{c} }

type counting struct{ counts *Counts }

// WrapUnary implements connect.Interceptor.
func (i counting) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		began, method := time.Now(), r.Spec().Procedure
		res, err := next(ctx, r)
		i.counts.rpcDuration.WithLabelValues(method).Observe(time.Since(began).Seconds())
		i.counts.rpcRequests.WithLabelValues(method, codeOf(err)).Inc()
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (i counting) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (i counting) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, s connect.StreamingHandlerConn) error {
		err := next(ctx, s)
		i.counts.rpcRequests.WithLabelValues(s.Spec().Procedure, codeOf(err)).Inc()
		return err
	}
}
