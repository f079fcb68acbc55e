package scheduler

import (
	"context"
	"maps"
	"net"
	"slices"

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

// portCounts collects what the scheduler's ports have turned out.
type portCounts struct {
	ports     map[string]net.Listener // by what they are called
	turnedOut *prometheus.Desc
}

func newPortCounts(ports map[string]net.Listener) portCounts {
	return portCounts{ports, prometheus.NewDesc("headroom_connections_turned_out_total",
		"Connections that were closed because they had not proved who they are: strangers, or a flood of them; absent for ports in the clear.", []string{"port"}, nil)}
}

// Describe implements prometheus.Collector.
func (c portCounts) Describe(ch chan<- *prometheus.Desc) { ch <- c.turnedOut }

// Collect implements prometheus.Collector.
func (c portCounts) Collect(ch chan<- prometheus.Metric) {
	for _, name := range slices.Sorted(maps.Keys(c.ports)) {
		if n, bounded := listen.Count(c.ports[name]); bounded {
			ch <- prometheus.MustNewConstMetric(c.turnedOut, prometheus.CounterValue, float64(n), name)
		}
	}
}

// serveMetrics answers Prometheus until ctx ends.
func (s *Server) serveMetrics(ctx context.Context) error {
	l, err := scrape.Listen(s.cfg.Metrics.Listen, "scheduler.yaml")
	if err != nil {
		return err
	}
	return scrape.Serve(ctx, l, scrape.Handler(scrape.Gatherer(newPortCounts(s.ports)), s.logger))
}
