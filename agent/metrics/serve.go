package metrics

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"headroom/internal/scrape"
)

// Path is the URL path of the metrics.
const Path = scrape.Path

// Listen opens metrics.listen. The error is a *cli.Error.
func Listen(addr string) (net.Listener, error) { return scrape.Listen(addr, "powerd.yaml") }

// Serve answers Prometheus on l until ctx ends, with what c and the process tell.
func Serve(ctx context.Context, l net.Listener, c *Collector, log *slog.Logger) error {
	return scrape.Serve(ctx, l, newHandler(c, log))
}

func newHandler(c *Collector, log *slog.Logger) http.Handler {
	return scrape.Handler(scrape.Gatherer(c), log)
}
