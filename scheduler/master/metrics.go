package master

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/scrape"
)

// The metrics.
const (
	metricActive  = "headroom_master_active"
	metricSlots   = "headroom_master_slots"
	metricTasks   = "headroom_master_tasks"
	metricTotal   = "headroom_master_tasks_total"
	metricDelay   = "headroom_master_decision_seconds"
	metricWorkers = "headroom_master_workers"
)

// MetricsTable returns what a master tells Prometheus.
func MetricsTable() scrape.Table {
	return scrape.Table{
		scrape.Gauge(metricActive, "1 if this master of the group is active, 0 if it is on standby."),
		scrape.Gauge(metricWorkers, "Number of connected workers."),
		scrape.Gauge(metricSlots, "Number of slots of the workers.", scrape.Of("kind", "all, usable under the caps, or reserved for high priority")),
		scrape.Gauge(metricTasks, "Number of tasks at this master.", scrape.Of("priority", "high or low"), scrape.Of("state", "running or waiting")),
		scrape.Counter(metricTotal, "Number of tasks since the start; failed ones count as ended too.", scrape.Of("what", "taken, refused, begun, ended, failed or lost")),
		scrape.Histogram(metricDelay, "Time in seconds from the arrival of a message until all decisions that follow from it are made."),
	}
}

// newDelays returns the histogram of how long decisions take.
func newDelays() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: metricDelay, Help: MetricsTable().Find(metricDelay).Help,
		Buckets: []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 250e-3},
	})
}

// collector exports a master's metrics.
type collector struct {
	*Master
	scrape.Descs
}

// gatherWait bounds asking the owner.
const gatherWait = time.Second

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	c.Descs.Describe(ch)
	c.delays.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gatherWait)
	defer cancel()
	type look struct {
		state  *headroomv1.GroupState
		counts counts
	}
	l, err := ask(ctx, c.Master, func(g *group) look { return look{g.state(time.Now(), nil), g.counts} })
	if err != nil {
		return // the owner has ended
	}
	p, s := c.Points(ch), l.state
	p.Add(metricActive, scrape.OneIf(s.GetActive()))
	p.Add(metricWorkers, float64(s.GetWorkers()))
	p.Add(metricSlots, float64(s.GetSlots()), "all")
	p.Add(metricSlots, float64(s.GetUsable()), "usable")
	p.Add(metricSlots, float64(s.GetReserved()), "reserved")
	p.Add(metricTasks, float64(s.GetRunningHigh()), "high", "running")
	p.Add(metricTasks, float64(s.GetRunningLow()), "low", "running")
	p.Add(metricTasks, float64(s.GetWaitingHigh()), "high", "waiting")
	p.Add(metricTasks, float64(s.GetWaitingLow()), "low", "waiting")
	for what, n := range map[string]uint64{
		"taken": l.counts.taken, "refused": l.counts.refused, "begun": l.counts.begun, "ended": l.counts.ended, "failed": l.counts.failed, "lost": l.counts.lost,
	} {
		p.Add(metricTotal, float64(n), what)
	}
	c.delays.Collect(ch)
}

// serveMetrics answers Prometheus until ctx ends.
func (m *Master) serveMetrics(ctx context.Context) error {
	return scrape.Serve(ctx, m.cfg.Metrics, scrape.Handler(scrape.Gatherer(collector{m, MetricsTable().Descs()}), m.cfg.Logger))
}
