package scheduler

import (
	"context"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"headroom/internal/rpc"
	"headroom/scheduler/access"
)

// gateway serves the scheduler's RPC ports for the whole process: with the services of the active
// scheduler, and on standby with a refusal that names the active one.
type gateway struct {
	guard  *access.Guard
	refuse *connect.ErrorWriter

	mu     sync.Mutex
	active *activeServices // nil on standby
	// name and address are those of the active scheduler while this one is on standby, as far as known.
	name, address string
}

// activeServices are the services of one tenure.
type activeServices struct {
	lease *tenure
	mux   http.Handler
	over  context.Context //nolint:containedctx // of the tenure, which ends its calls
	calls sync.WaitGroup
}

func newGateway(guard *access.Guard) *gateway {
	return &gateway{guard: guard, refuse: connect.NewErrorWriter(rpc.HandlerOptions()...)}
}

// serve serves with mux until ctx ends, and returns once its calls are over.
func (g *gateway) serve(ctx context.Context, l *tenure, mux http.Handler) error {
	a := &activeServices{lease: l, mux: mux, over: ctx}
	g.mu.Lock()
	g.active, g.name, g.address = a, "", ""
	g.mu.Unlock()
	<-ctx.Done()
	g.mu.Lock()
	g.active = nil
	g.mu.Unlock()
	a.calls.Wait()
	return nil
}

// standBy notes which scheduler is active.
func (g *gateway) standBy(name, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.name, g.address = name, address
}

// activeOne returns which scheduler is active while this one is on standby.
func (g *gateway) activeOne() (name, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.name, g.address
}

// enter returns the services, if this scheduler is active. Call leave once the call is over.
func (g *gateway) enter() (a *activeServices, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active == nil {
		return nil, nil
	}
	g.active.calls.Add(1)
	return g.active, g.active.calls.Done
}

// ServeHTTP implements http.Handler. Every answer carries the epoch of the lease. A caller that has
// seen a newer one is refused: this scheduler has not noticed yet that it was replaced.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, leave := g.enter()
	if a != nil {
		defer leave()
	}
	if a == nil || !a.lease.held() || a.lease.Epoch() != 0 && rpc.SchedulerEpoch(r.Header) > a.lease.Epoch() {
		_, err := g.guard.Admit(r.Context(), r.URL.Path)
		if err == nil {
			err = rpc.Standby(g.activeOne())
		}
		if g.refuse.Write(w, r, err) != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
		return
	}
	rpc.SetSchedulerEpoch(w.Header(), a.lease.Epoch())
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.over, cancel)()
	a.mux.ServeHTTP(w, r.WithContext(ctx))
}
