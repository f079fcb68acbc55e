package coordinator

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"

	"connectrpc.com/connect"

	"headroom/coordinator/access"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/traces"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
)

// forwarder serves the unix socket, and forwards requests for other servers.
type forwarder struct {
	id         string
	configured []ServerConfig
	machine    *statemachine.Machine
	peers      rpc.Peers
	traces     *traces.Tracer
	logger     *slog.Logger
}

// forward serves the unix socket. A caller there has no certificate for
// another server. So a request for another server's address, which is what a
// client sends after it has learned the leader, is forwarded by this server in the
// caller's name.
func (f *forwarder) forward(own http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := f.serverAt(r.Host)
		if !ok {
			own.ServeHTTP(w, r)
			return
		}
		who, err := access.Local(rpc.CallerOf(r.Context()).UID)
		if err != nil {
			own.ServeHTTP(w, r) // which refuses it in the caller's protocol
			return
		}
		r.Header.Set(access.ForwardedHeader, string(who.Role)+"/"+who.Name)
		ctx, span := f.traces.Begin(r.Context(), "forward")
		defer func() { span.Text("headroom.to", peer).Text("url.path", r.URL.Path).End(nil) }()
		f.traces.Carry(ctx, r.Header)
		target, err := url.Parse(f.peers.URL(peer))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		proxy := &httputil.ReverseProxy{
			Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
			Transport: f.peers.Transport(), FlushInterval: -1, ErrorHandler: f.unforwarded(peer),
		}
		proxy.ServeHTTP(w, r)
	})
}

// unforwarded answers a call that the other server did not answer, so that
// the caller can tell whether it may have been carried out.
func (f *forwarder) unforwarded(peer string) func(http.ResponseWriter, *http.Request, error) {
	answer := connect.NewErrorWriter(rpc.HandlerOptions()...)
	return func(w http.ResponseWriter, r *http.Request, err error) {
		f.logger.Warn("call not forwarded", slog.String("to", peer), slog.Any("error", err))
		refusal := rpc.Refuse(connect.CodeUnknown, "unknown", cli.ExitUnknown, fmt.Sprintf("%s did not answer: %v", peer, err), "retry with the same --request-id")
		if rpc.NotSent(err) {
			refusal = rpc.NotLeader("", "") // nothing was done, and the next leader is unknown
		}
		if answer.Write(w, r, refusal) != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
}

// serverAt returns another server's RPC address, and false for any other address: this
// server is no proxy to the rest of the network.
func (f *forwarder) serverAt(host string) (string, bool) {
	for _, p := range f.configured {
		if p.RPC == host && p.ID != f.id {
			return p.RPC, true
		}
	}
	found := ""
	f.machine.View(func(st *ledger.State) {
		for id, p := range st.Servers {
			if p.RPC == host && id != f.id {
				found = p.RPC
			}
		}
	})
	return found, found != ""
}
