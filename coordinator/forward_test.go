// Claims: what cannot be passed on to the leader is answered in words, and a caller
// can tell whether it may have been carried out.
package coordinator

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

func TestLeaderThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // takes the call, and hangs up without a word
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadAtLeast(c, make([]byte, 64), 64)
			_ = c.Close()
		}
	}()
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for addr, want := range map[string]int{nobody: cli.ExitUnreachable, l.Addr().String(): cli.ExitUnknown} {
		s := newServer(Config{ID: "c1", Servers: []ServerConfig{{ID: "c1"}, {ID: "c2", RPC: addr}}}, slog.New(slog.DiscardHandler))
		own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Host = addr
			s.forwarder().forward(http.NotFoundHandler()).ServeHTTP(w, r.WithContext(rpc.WithCaller(r.Context(), rpc.Caller{Local: true})))
		}))
		client := headroomv1connect.NewClusterServiceClient(own.Client(), own.URL)
		_, err := client.SetBudget(context.WithoutCancel(t.Context()), connect.NewRequest(&headroomv1.SetBudgetRequest{}))
		if got := rpc.AsCLI(err, "budget set", addr); err == nil || got.Exit != want {
			t.Errorf("%s: %v, exit code %d, want %d", addr, err, got.Exit, want)
		}
		own.Close()
	}
}
