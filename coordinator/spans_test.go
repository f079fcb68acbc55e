// Claims: with tracing on, a tick, the commit below it, each heartbeat it answers, a
// change and a request that is passed on to the leader are spans, those of one request
// one trace over both servers.
package coordinator

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator/traces"
	"headroom/internal/rpc"
	"headroom/units"
)

// kept is an exporter that keeps its spans when it is shut down.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return nil }

func TestSpans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.leader()
		store := tracetest.NewInMemoryExporter()
		var tracers []*traces.Tracer
		c.fit = func(s *server) {
			s.traces = traces.Over(kept{store}, 1, s.cfg.ID, Version, slog.New(slog.DiscardHandler))
			tracers = append(tracers, s.traces)
		}
		for _, id := range c.every() {
			c.kill(id)
			c.start(id)
		}
		defer func() { // once is enough; a second time does nothing
			for _, x := range tracers {
				x.Close()
			}
		}()
		c.leader()
		c.addNodes(2)
		c.allHeld(30 * time.Second)

		// On the unix socket of a server that does not lead.
		leader := c.leader().cfg.ID
		follower := c.server("c1").server
		if leader == "c1" {
			follower = c.server("c2").server
		}
		r := httptest.NewRequest(http.MethodPost, "http://rpc-"+leader+headroomv1connect.ClusterServiceSetBudgetProcedure, strings.NewReader(`{"domain":"site/lab","budgetUw":"600000000","change":{"requestId":"a"}}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		follower.forwarder().forward(follower.handler()).ServeHTTP(w, r.WithContext(rpc.WithCaller(t.Context(), rpc.Caller{Local: true})))
		if w.Code != http.StatusOK {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		for _, x := range tracers {
			x.Close()
		}

		spans := map[string]tracetest.SpanStub{}
		nodes := map[string]bool{}
		for _, s := range store.GetSpans() {
			if s.Name == "commit" {
				s.Name += " of " + nameOf(store.GetSpans(), s)
			}
			spans[s.Name] = s
			for _, a := range s.Attributes {
				if a.Key == "headroom.node" {
					nodes[a.Value.AsString()] = true
				}
			}
		}
		for _, name := range []string{"tick", "commit of tick", "exchange", "forward", "change", "commit of change"} {
			if _, ok := spans[name]; !ok {
				t.Errorf("there is no span %q", name)
			}
		}
		if len(nodes) != 2 {
			t.Errorf("exchanges of %v", nodes)
		}
		if spans["change"].Parent.SpanID() != spans["forward"].SpanContext.SpanID() || spans["commit of change"].SpanContext.TraceID() != spans["forward"].SpanContext.TraceID() {
			t.Error("the change at the leader is not in the trace of the server that passed it on")
		}
	})
}

// nameOf is the name of the span that s is below.
func nameOf(all tracetest.SpanStubs, s tracetest.SpanStub) string {
	for _, x := range all {
		if x.SpanContext.SpanID() == s.Parent.SpanID() {
			return x.Name
		}
	}
	return "nothing"
}
