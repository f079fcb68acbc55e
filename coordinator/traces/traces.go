// Package traces sends spans of a server to an OpenTelemetry collector: of ticks, of the
// heartbeats they answer, of changes and of requests forwarded to the leader.
//
// The one idea: it is off by default, and off is a nil *Tracer, whose methods do nothing: no
// goroutine, no allocation, no clock read. Only this package imports OpenTelemetry.
//
// Spans are sent in the background, in batches. If the collector does not answer, the spans
// recorded meanwhile are dropped, and the log has two lines: one when that begins and one when
// it ends. It never delays a tick.
package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"headroom/internal/secure"
)

const (
	// exportWait bounds one attempt to send a batch.
	exportWait = 5 * time.Second
	// closeWait bounds sending the remaining spans at the end: a stop must not hang.
	closeWait = 2 * time.Second
)

// Config is the otel section of coordinator.yaml.
type Config struct {
	// Endpoint is the URL that traces are posted to as OTLP over HTTP; empty: off.
	Endpoint string `yaml:"endpoint"`
	// Sample is the share of ticks, heartbeats and requests that is recorded, above 0 and at most 1.
	Sample float64 `yaml:"sample"`
}

// Check refuses an invalid endpoint, and one that would send in the clear over a network.
func (c Config) Check() error {
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("otel.endpoint: %q is no URL like http://127.0.0.1:4318/v1/traces", c.Endpoint)
	case u.Scheme == "http" && !secure.Loopback(hostPort(u)):
		return fmt.Errorf("otel.endpoint: %s is no loopback address: use https, or a collector on this machine", u.Host)
	case !(c.Sample > 0 && c.Sample <= 1):
		return fmt.Errorf("otel.sample is %v; it must be above 0 and at most 1", c.Sample)
	}
	return nil
}

func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":80"
	}
	return u.Host
}

// Tracer records spans. Nil records none. It is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Start starts sending spans as the server of that name; nil if the configuration
// has no endpoint. The collector need not be running yet.
func Start(c Config, server, version string, logger *slog.Logger) (*Tracer, error) {
	if c.Endpoint == "" {
		return nil, nil //nolint:nilnil // nil is a tracer that is off
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(c.Endpoint), otlptracehttp.WithTimeout(exportWait),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return Over(exporter, c.Sample, server, version, logger), nil
}

// Over returns a tracer that sends through an exporter.
func Over(exporter sdk.SpanExporter, sample float64, server, version string, logger *slog.Logger) *Tracer {
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&quiet{SpanExporter: exporter, logger: logger}),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(sample))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "headroom-coordinator"), attribute.String("service.version", version), attribute.String("service.instance.id", server))),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("headroom/coordinator")}
}

// Close sends the remaining spans, for at most two seconds, and ends the tracer.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what the collector does not accept is dropped and logged by quiet
}

// quiet logs when sending starts to fail and when it works again; OpenTelemetry
// would log each failure, to its own logger.
type quiet struct {
	sdk.SpanExporter

	logger  *slog.Logger
	failing atomic.Bool
}

// ExportSpans sends one batch.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !q.failing.Swap(true):
		q.logger.Warn("traces not sent, dropping them", slog.Any("error", err))
	case err == nil && q.failing.Swap(false):
		q.logger.Info("sending traces again")
	}
	return nil
}

// Span is one timed operation. The zero value records nothing.
type Span struct{ span trace.Span }

// Begin starts a span under the one in ctx, if any.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.tracer.Start(ctx, name)
	return ctx, Span{s}
}

// Past records a root span that ends now and lasted for d, with a link
// to the one in ctx.
func (t *Tracer) Past(ctx context.Context, name string, d time.Duration) Span {
	if t == nil {
		return Span{}
	}
	_, s := t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)), trace.WithTimestamp(time.Now().Add(-d)))
	return Span{s}
}

// Text adds an attribute to the span.
func (s Span) Text(key, value string) Span {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
	return s
}

// Number adds an attribute to the span.
func (s Span) Number(key string, value uint64) Span {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(key, int64(value)))
	}
	return s
}

// End ends the span, with the operation's error or nil.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Handler continues the trace of requests that carry one (W3C Trace Context).
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))))
	})
}

// Carry writes the trace in ctx to the header of a request.
func (t *Tracer) Carry(ctx context.Context, h http.Header) {
	if t != nil {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}
