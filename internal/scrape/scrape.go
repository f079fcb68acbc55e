// Package scrape answers Prometheus, for every program that tells metrics.
//
// The one idea: one answer stands for a second, whoever asks how often. So a
// scrape cannot be used as a probe, and what is asked is asked at most once for
// each of those seconds. A Table says what a program tells: the page that lists
// its metrics and the scrapes are both made of it.
//
// Guarantees: a slow or hostile client holds a connection for seconds; so many are
// held and answered and no more; what cannot be told does not keep the rest from
// being told. The registry is its own: nothing is registered with Prometheus'
// default one, and nothing in that is served.
package scrape

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
	// AnswerAge is how long one answer stands: power at a higher rate would give away
	// what a processor computes (PLATYPUS), whoever asks how often.
	AnswerAge = time.Second
	// Most scrapes are answered at a time: a pair of Prometheus servers, and a person.
	Most = 4
	// Wait bounds making an answer, which takes milliseconds as a rule.
	Wait = 5 * time.Second
	// clientWait bounds a client that sends or reads slowly.
	clientWait = 10 * time.Second
	// clientsMost are held at a time.
	clientsMost = 16
)

// Listen opens metrics.listen of the configuration file config. The error is a *cli.Error.
func Listen(addr, config string) (net.Listener, error) {
	l, err := rpc.Listen(addr)
	if err != nil {
		return nil, &cli.Error{
			Code: "metrics", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("metrics.listen: %v", err),
			Hint: "choose another port in " + config + ", or leave metrics.listen empty",
		}
	}
	return l, nil
}

// Serve answers Prometheus on l with h until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, h)
	return rpc.ServeBriefly(ctx, l, mux, clientWait, clientsMost)
}

// Gatherer gives what c and the process tell; an answer may be a second old.
func Gatherer(c prometheus.Collector) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	own.MustRegister(c, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &slow{from: own, turn: make(chan struct{}, 1)}
}

// Handler answers scrapes with what g gives, in whichever format the client asks for.
func Handler(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog: complaints{log}, ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: Most, Timeout: Wait,
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

// Gather is an answer that may be a second old. It is not to be changed.
func (s *slow) Gather() ([]*dto.MetricFamily, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.madeAt.IsZero() || time.Since(s.madeAt) >= AnswerAge {
		s.answer, s.err = s.from.Gather()
		s.madeAt = time.Now() // not before: it may have waited for the loop
	}
	return s.answer, s.err
}
