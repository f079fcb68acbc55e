package scheduler

import (
	"context"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/listen"
	"headroom/internal/scrape"
	"headroom/scheduler/distributor"
)

// MetricsConfig is the metrics section.
type MetricsConfig struct {
	// Listen is host:port; empty: no metrics.
	Listen string `yaml:"listen"`
}

// Ports with bounded connections, as labels of metrics.
const (
	portRPC   = "rpc"
	portYarn  = "yarn-hooks"
	portSpark = "spark-hooks"
)

// The metrics.
const (
	active     = "headroom_scheduler_active"
	turnedOut  = "headroom_connections_turned_out_total"
	admissions = "headroom_scheduler_admissions_total"
	wasted     = "headroom_scheduler_wasted_seconds_total"

	groupTasks   = "headroom_scheduler_group_tasks"
	groupMasters = "headroom_scheduler_group_masters"
)

func metricsTable() scrape.Table {
	return scrape.Table{
		scrape.Gauge(active, "1 if this scheduler is the active one, 0 on standby."),
		scrape.Counter(turnedOut,
			"Number of connections closed before they authenticated, because of a failed handshake or too many at once; absent for ports without TLS.",
			scrape.Of("port", "")),
		scrape.Counter(admissions,
			"Number of admission decisions about jobs with a deadline; a queued job counts again when it is decided.",
			scrape.Of("decision", "admitted, queued or refused")),
		scrape.Counter(wasted,
			"Wasted slot time in seconds: jobs that missed their deadlines, losing copies, failed or killed attempts, and jobs that failed or were cancelled.",
			scrape.Of("reason", "missed, killed, failed or copy")),
		scrape.Gauge(groupTasks,
			"Number of tasks of a group that are outstanding at its master, or that wait for its window; absent without groups.",
			scrape.Of("group", ""), scrape.Of("state", "outstanding or waiting")),
		scrape.Gauge(groupMasters,
			"Number of masters of a group by state; absent without groups.",
			scrape.Of("group", ""), scrape.Of("state", "active, standby or lost")),
	}
}

// counts collects refused connections of the scheduler's ports, and results of its jobs.
type counts struct {
	ports map[string]net.Listener // by label
	tally *tally
	// groups returns the groups that masters dispatch to; nil for none.
	groups func() []*headroomv1.DispatchGroup
	scrape.Descs
}

// Collect implements prometheus.Collector.
func (c counts) Collect(ch chan<- prometheus.Metric) {
	p := c.Points(ch)
	for name, port := range c.ports {
		if n, bounded := listen.Count(port); bounded {
			p.Add(turnedOut, float64(n), name)
		}
	}
	c.tallied(p)
	if c.groups != nil {
		c.grouped(p)
	}
}

func (c counts) tallied(p scrape.Points) {
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	for decision, n := range c.tally.decisions {
		p.Add(admissions, float64(n), decision)
	}
	for reason, d := range c.tally.wasted {
		p.Add(wasted, d.Seconds(), reason)
	}
}

func (c counts) grouped(p scrape.Points) {
	for _, g := range c.groups() {
		p.Add(groupTasks, float64(g.GetOutstanding()), g.GetName(), "outstanding")
		p.Add(groupTasks, float64(g.GetWaiting()), g.GetName(), "waiting")
		states := map[string]int{distributor.StateActive: 0, distributor.StateStandby: 0, distributor.StateLost: 0}
		for _, m := range g.GetMasters() {
			states[m.GetState()]++
		}
		for state, n := range states {
			p.Add(groupMasters, float64(n), g.GetName(), state)
		}
	}
}

// current collects what the acting server counts, or only that this scheduler is on standby.
type current struct {
	*process
	ctx context.Context //nolint:containedctx // of the metrics server: a collector is given none
	scrape.Descs
}

// Collect implements prometheus.Collector.
func (c current) Collect(ch chan<- prometheus.Metric) {
	s, p := c.acting.Load(), c.Points(ch)
	if s == nil {
		p.Add(active, 0)
		return
	}
	p.Add(active, 1)
	counts{s.ports, s.tally, func() []*headroomv1.DispatchGroup { return s.groups(c.ctx) }, c.Descs}.Collect(ch)
}

// serveMetrics serves Prometheus until ctx ends.
func (p *process) serveMetrics(ctx context.Context) error {
	l, err := scrape.Listen(p.cfg.Metrics.Listen, "scheduler.yaml")
	if err != nil {
		return err
	}
	return scrape.Serve(ctx, l, scrape.Handler(scrape.Gatherer(current{p, ctx, metricsTable().Descs()}), p.logger))
}
