package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// Path is where Prometheus asks.
const Path = "/metrics"

const (
	// answerAge is how long one answer stands: power at a higher rate would give away
	// what a processor computes (PLATYPUS), whoever asks how often.
	answerAge = time.Second
	// scrapesMost are answered at a time: a pair of Prometheus servers, and a person.
	scrapesMost = 4
	// scrapeWait bounds making an answer, which takes milliseconds while the loop turns.
	scrapeWait = 5 * time.Second
	// clientWait bounds a client that sends or reads slowly.
	clientWait = 10 * time.Second
	// clientsMost are held at a time.
	clientsMost = 16
)

// Listen opens metrics.listen. The error is a *cli.Error.
func Listen(addr string) (net.Listener, error) {
	l, err := rpc.Listen(addr)
	if err != nil {
		return nil, &cli.Error{
			Code: "metrics", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("metrics.listen: %v", err),
			Hint: "choose another port in powerd.yaml, or leave metrics.listen empty",
		}
	}
	return l, nil
}

// Serve answers Prometheus on l until ctx ends, with what c and the process tell.
func Serve(ctx context.Context, l net.Listener, c *Collector, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, newHandler(c, log))
	return rpc.ServeBriefly(ctx, l, mux, clientWait, clientsMost)
}

// newHandler answers scrapes in whichever format the client asks for. What cannot
// be told does not keep the rest from being told.
func newHandler(c *Collector, log *slog.Logger) http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(c, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(newSlow(own), promhttp.HandlerOpts{
		ErrorLog: complaints{log}, ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesMost, Timeout: scrapeWait,
		EnableOpenMetrics:  true, // for exemplars
		DisableCompression: true, // an answer is some ten kilobytes, a compressor a megabyte of memory
	})
}

// complaints are promhttp's errors. They come with each scrape, so they are no
// more than a help for finding one that is missing.
type complaints struct{ log *slog.Logger }

// Println takes one error.
func (c complaints) Println(v ...any) {
	c.log.Debug("metrics not told", slog.String("error", fmt.Sprint(v...)))
}

// slow is a gatherer whose answer stands for a second.
type slow struct {
	from prometheus.Gatherer
	turn chan struct{} // held by whoever looks at the fields below

	answer []*dto.MetricFamily
	err    error
	madeAt time.Time
}

func newSlow(from prometheus.Gatherer) *slow { return &slow{from: from, turn: make(chan struct{}, 1)} }

// Gather is an answer that may be a second old. It is not to be changed.
func (s *slow) Gather() ([]*dto.MetricFamily, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.madeAt.IsZero() || time.Since(s.madeAt) >= answerAge {
		s.answer, s.err = s.from.Gather()
		s.madeAt = time.Now() // not before: it may have waited for the loop
	}
	return s.answer, s.err
}
