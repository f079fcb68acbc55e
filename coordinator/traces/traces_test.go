// Claims: a real OTLP receiver gets every span with its parent, its facts and who
// sends it; what is off costs nothing; a collector that is not there holds up nobody
// and is told of once; nothing is sent in the clear over a network.
package traces

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a collector: what it has got, by the name of the span.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	spans  map[string]*otlp.Span
	sender map[string]string
	faults []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{spans: map[string]*otlp.Span{}, sender: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	var m collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &m)
	}
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.faults = append(r.faults, req.URL.Path+" "+req.Header.Get("Content-Type"))
	}
	for _, from := range m.GetResourceSpans() {
		for _, a := range from.GetResource().GetAttributes() {
			r.sender[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans[s.GetName()] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func fact(s *otlp.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().String()
		}
	}
	return ""
}

func TestReceiverGetsSpans(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	tr, err := Start(Config{Endpoint: r.URL + "/v1/traces", Sample: 1}, "c1", "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, tick := tr.Begin(t.Context(), "tick")
	_, commit := tr.Begin(ctx, "commit")
	commit.Number("headroom.entry_bytes", 77).End(errors.New("the disk is full"))
	tr.Past(ctx, "exchange", 3*time.Second).Text("headroom.node", "n03").End(nil)
	tick.End(nil)
	tr.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) > 0 || len(r.spans) != 3 {
		t.Fatalf("%d spans, faults %q", len(r.spans), r.faults)
	}
	if r.sender["service.name"] != "headroom-coordinator" || r.sender["service.instance.id"] != "c1" || r.sender["service.version"] != "1.2.3" {
		t.Errorf("sent by %v", r.sender)
	}
	top, below, beside := r.spans["tick"], r.spans["commit"], r.spans["exchange"]
	if !bytes.Equal(below.GetParentSpanId(), top.GetSpanId()) || !bytes.Equal(below.GetTraceId(), top.GetTraceId()) {
		t.Error("the commit is not below the tick")
	}
	if below.GetStatus().GetMessage() != "the disk is full" || below.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR || !strings.Contains(fact(below, "headroom.entry_bytes"), "77") {
		t.Errorf("the commit says %v", below)
	}
	if len(beside.GetParentSpanId()) > 0 || len(beside.GetLinks()) != 1 || !bytes.Equal(beside.GetLinks()[0].GetSpanId(), top.GetSpanId()) {
		t.Errorf("the exchange stands at %v", beside)
	}
	if lasted := time.Duration(beside.GetEndTimeUnixNano() - beside.GetStartTimeUnixNano()); lasted < 3*time.Second || !strings.Contains(fact(beside, "headroom.node"), "n03") {
		t.Errorf("the exchange lasted %v: %v", lasted, beside)
	}
}

func TestOffCostsNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts the allocations of the whole process
	tr, err := Start(Config{}, "c1", "", nil)
	if err != nil || tr != nil {
		t.Fatalf("%v, %v", tr, err)
	}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		inner, span := tr.Begin(ctx, "tick")
		span.Text("a", "b").Number("c", 1).End(nil)
		tr.Past(inner, "exchange", time.Second).Text("a", "b").End(nil)
		tr.Carry(inner, nil)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	tr.Close()
	mux := http.NewServeMux()
	if tr.Handler(mux) != http.Handler(mux) {
		t.Error("requests go through something")
	}
}

// A trace goes on in another server: what one carries the other takes up.
func TestTraceGoesOn(t *testing.T) {
	t.Parallel()
	sent, got := tracetest.NewInMemoryExporter(), tracetest.NewInMemoryExporter()
	keep := func(e *tracetest.InMemoryExporter) *Tracer {
		return Over(&lasting{e}, 1, "c1", "", slog.New(slog.DiscardHandler))
	}
	one, two := keep(sent), keep(got)
	h := two.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, span := two.Begin(r.Context(), "change")
		span.End(nil)
	}))
	ctx, span := one.Begin(t.Context(), "forward")
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	one.Carry(ctx, r.Header)
	h.ServeHTTP(httptest.NewRecorder(), r)
	span.End(nil)
	one.Close()
	two.Close()
	if a, b := sent.GetSpans(), got.GetSpans(); len(a) != 1 || len(b) != 1 || b[0].Parent.SpanID() != a[0].SpanContext.SpanID() {
		t.Errorf("sent %v, got %v", a, b)
	}
}

// lasting keeps its spans when it is shut down.
type lasting struct{ *tracetest.InMemoryExporter }

func (lasting) Shutdown(context.Context) error { return nil }

func TestNoCollector(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	endpoint := r.URL + "/v1/traces"
	r.Close()
	var log bytes.Buffer
	tr, err := Start(Config{Endpoint: endpoint, Sample: 1}, "c1", "", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, span := tr.Begin(t.Context(), "tick")
		span.End(nil)
		if err := tr.provider.ForceFlush(t.Context()); err != nil {
			t.Errorf("somebody was told: %v", err)
		}
	}
	tr.Close()
	if n := strings.Count(log.String(), "traces not sent"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for endpoint, good := range map[string]bool{
		"": true, "http://127.0.0.1:4318/v1/traces": true, "http://[::1]:4318/v1/traces": true, "http://localhost/v1/traces": true, "https://otel.example:4318/v1/traces": true,
		"http://10.0.0.9:4318/v1/traces": false, "127.0.0.1:4318": false, "ftp://127.0.0.1/": false, "http://": false, "::": false,
	} {
		if err := (Config{Endpoint: endpoint, Sample: 1}).Check(); (err == nil) != good {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for _, sample := range []float64{0, -1, 1.1} {
		if err := (Config{Endpoint: "http://127.0.0.1:4318/v1/traces", Sample: sample}).Check(); err == nil {
			t.Errorf("a share of %v is taken", sample)
		}
	}
}
