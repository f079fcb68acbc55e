package scheduler

import (
	"context"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"headroom/internal/listen"
	"headroom/internal/scrape"
)

// MetricsConfig is the metrics section.
type MetricsConfig struct {
	// Listen is host:port; empty: no metrics.
	Listen string `yaml:"listen"`
}

// Ports whose connections are bounded, as metrics call them.
const (
	portRPC   = "rpc"
	portYarn  = "yarn-hooks"
	portSpark = "spark-hooks"
)

// turnedOut is the metric of what the ports have turned out.
const turnedOut = "headroom_connections_turned_out_total"

func metricsTable() scrape.Table {
	return scrape.Table{scrape.Counter(turnedOut,
		"Connections that were closed because they had not proved who they are: strangers, or a flood of them; absent for ports in the clear.",
		scrape.Of("port", ""))}
}

// portCounts collects what the scheduler's ports have turned out.
type portCounts struct {
	ports map[string]net.Listener // by what they are called
	scrape.Descs
}

// Collect implements prometheus.Collector.
func (c portCounts) Collect(ch chan<- prometheus.Metric) {
	p := c.Points(ch)
	for name, port := range c.ports {
		if n, bounded := listen.Count(port); bounded {
			p.Add(turnedOut, float64(n), name)
		}
	}
}

// serveMetrics answers Prometheus until ctx ends.
func (s *Server) serveMetrics(ctx context.Context) error {
	l, err := scrape.Listen(s.cfg.Metrics.Listen, "scheduler.yaml")
	if err != nil {
		return err
	}
	return scrape.Serve(ctx, l, scrape.Handler(scrape.Gatherer(portCounts{s.ports, metricsTable().Descs()}), s.logger))
}
