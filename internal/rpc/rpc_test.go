// Claims: one port speaks h2c and HTTP/1; Serve returns promptly with streams
// open; a refusal arrives with its hint and exit code; what was never sent is
// exit 3, what was sent and not answered is exit 7; long socket paths work.
package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what must not hang.
const patience = 10 * time.Second

// node answers heartbeats with themselves until the stream ends, and unary calls
// with whatever release says.
type node struct {
	headroomv1connect.UnimplementedNodeServiceHandler
	release func(context.Context) error
}

func (node) Exchange(_ context.Context, s *connect.BidiStream[headroomv1.NodeMessage, headroomv1.CoordinatorMessage]) error {
	for {
		if _, err := s.Receive(); err != nil {
			return nil
		}
		if err := s.Send(&headroomv1.CoordinatorMessage{}); err != nil {
			return err
		}
	}
}

func (n node) Release(ctx context.Context, _ *connect.Request[headroomv1.ReleaseRequest]) (*connect.Response[headroomv1.ReleaseResponse], error) {
	if err := n.release(ctx); err != nil {
		return nil, err
	}
	return connect.NewResponse(&headroomv1.ReleaseResponse{}), nil
}

// serve starts a server and returns its address; stop ends it and waits.
func serve(t *testing.T, release func(context.Context) error) (addr string, stop func()) {
	t.Helper()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewNodeServiceHandler(node{release: release}, rpc.HandlerOptions()...))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, l, mux) }()
	stop = func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
			done <- nil
		case <-time.After(patience):
			t.Error("Serve does not return")
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func client(t *testing.T, addr string) headroomv1connect.NodeServiceClient {
	t.Helper()
	h := rpc.NewClient()
	t.Cleanup(h.CloseIdleConnections)
	return headroomv1connect.NewNodeServiceClient(h, rpc.BaseURL(addr), rpc.ClientOptions()...)
}

func TestServeEndsWithOpenStreams(t *testing.T) {
	t.Parallel()
	addr, stop := serve(t, func(context.Context) error { return nil })
	s := client(t, addr).Exchange(t.Context())
	if err := s.Send(&headroomv1.NodeMessage{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	stop()
	if d := time.Since(began); d > patience/2 {
		t.Errorf("took %v", d)
	}
	if _, err := s.Receive(); err == nil {
		t.Error("the stream outlives the server")
	}
	_ = s.CloseRequest()
	_ = s.CloseResponse()
}

func TestServeSpeaksPlainJSON(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, func(context.Context) error { return nil })
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, rpc.BaseURL(addr)+"/headroom.v1.NodeService/Release", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != 1 || !strings.HasPrefix(string(body), "{") {
		t.Errorf("%s %s: %s, %v", res.Proto, res.Status, body, err)
	}
}

func TestRefusalsArrive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err        error
		exit       int
		code       string
		says, hint string
	}{
		"refused": {
			rpc.Refuse(connect.CodeFailedPrecondition, "infeasible", cli.ExitRefused, "too low", "use --force"),
			6, "infeasible", "too low", "use --force",
		},
		"not leader":  {rpc.NotLeader("c2", "127.0.0.1:7"), 3, "not-leader", "this server is not the leader; the leader is c2 at 127.0.0.1:7", "use --addr 127.0.0.1:7"},
		"no leader":   {rpc.NotLeader("", ""), 3, "no-leader", "no leader", "a majority"},
		"unavailable": {connect.NewError(connect.CodeUnavailable, errors.New("busy")), 3, "unavailable", "node release: busy", "retry"},
		"denied":      {connect.NewError(connect.CodePermissionDenied, errors.New("no")), 4, "denied", "node release: no", "use an identity"},
		"conflict":    {connect.NewError(connect.CodeAborted, errors.New("moved")), 5, "conflict", "node release: moved", "check the present"},
		"bad":         {connect.NewError(connect.CodeInvalidArgument, errors.New("bad")), 2, "usage", "node release: bad", ""},
		"internal":    {connect.NewError(connect.CodeInternal, errors.New("oops")), 1, "internal", "node release: oops", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, _ := serve(t, func(context.Context) error { return c.err })
			_, err := client(t, addr).Release(t.Context(), connect.NewRequest(&headroomv1.ReleaseRequest{}))
			e := rpc.AsCLI(err, "node release", addr)
			if e.Exit != c.exit || e.Code != c.code || e.Message != c.says || !strings.HasPrefix(e.Hint, c.hint) {
				t.Errorf("got %d %s %q %q", e.Exit, e.Code, e.Message, e.Hint)
			}
		})
	}
}

func TestLeaderOf(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, func(context.Context) error { return rpc.NotLeader("c2", "127.0.0.1:7402") })
	_, err := client(t, addr).Release(t.Context(), connect.NewRequest(&headroomv1.ReleaseRequest{}))
	if leader, ok := rpc.LeaderOf(err); !ok || leader != "127.0.0.1:7402" {
		t.Errorf("leader %q, %v", leader, ok)
	}
	if _, ok := rpc.LeaderOf(errors.New("other")); ok {
		t.Error("any error names a leader")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = client(t, addr).Release(t.Context(), connect.NewRequest(&headroomv1.ReleaseRequest{}))
	e := rpc.AsCLI(err, "node release", addr)
	if e.Exit != cli.ExitUnreachable || e.Message != "node release: cannot reach "+addr+": connection refused" || e.Hint == "" {
		t.Errorf("got %d %q %q from %v", e.Exit, e.Message, e.Hint, err)
	}
}

func TestSentAndNotAnswered(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	addr, _ := serve(t, wait)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := client(t, addr).Release(ctx, connect.NewRequest(&headroomv1.ReleaseRequest{}))
	if e := rpc.AsCLI(err, "node release", addr); e.Exit != cli.ExitUnknown || !strings.Contains(e.Hint, "--request-id") {
		t.Errorf("deadline: %d %q from %v", e.Exit, e.Message, err)
	}
}

func TestServerGoneMeanwhile(t *testing.T) {
	t.Parallel()
	gone := func(context.Context) error { panic(http.ErrAbortHandler) }
	addr, _ := serve(t, gone)
	_, err := client(t, addr).Release(t.Context(), connect.NewRequest(&headroomv1.ReleaseRequest{}))
	if e := rpc.AsCLI(err, "node release", addr); e.Exit == cli.ExitOK || e.Exit == cli.ExitUnreachable {
		t.Errorf("%d %q from %v", e.Exit, e.Message, err)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client(t, "127.0.0.1:1").Release(ctx, connect.NewRequest(&headroomv1.ReleaseRequest{}))
	if e := rpc.AsCLI(err, "x", "y"); e.Exit != cli.ExitInterrupted || !errors.Is(e, context.Canceled) {
		t.Errorf("%d %q from %v", e.Exit, e.Message, err)
	}
	if rpc.AsCLI(nil, "x", "y") != nil {
		t.Error("no error becomes one")
	}
}

func TestListenRefusesMalformed(t *testing.T) {
	t.Parallel()
	_, err := rpc.Listen("7401")
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage {
		t.Errorf("%v", err)
	}
}

func TestUnixSocketWithLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "powerd.sock")
	for range 2 { // the second time over the first one's remains
		l, err := rpc.ListenUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("socket %v, %v", info.Mode(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- rpc.Serve(ctx, l, http.NotFoundHandler()) }()
		h := rpc.NewUnixClient(path)
		res, err := h.Get(rpc.UnixURL + "/")
		if err != nil || res.StatusCode != http.StatusNotFound {
			t.Errorf("%v, %v", res, err)
		} else {
			_ = res.Body.Close()
		}
		if _, err := rpc.ListenUnix(path); err == nil {
			t.Error("a second server takes over a living socket")
		}
		h.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("socket after close: %v", err)
		}
	}
}

func TestListenUnixKeepsOtherFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.ListenUnix(path); err == nil {
		t.Error("a file is replaced by a socket")
	}
}

// A server that hangs up while the request is being written leaves its outcome
// unknown; nobody has interrupted anything, though Connect calls it canceled.
func TestHungUpIsNotInterrupted(t *testing.T) {
	t.Parallel()
	err := connect.NewError(connect.CodeCanceled, fmt.Errorf("write tcp 127.0.0.1:2->127.0.0.1:1: %w", syscall.EPIPE))
	if e := rpc.AsCLI(err, "status", "127.0.0.1:1"); e.Exit != cli.ExitUnknown || !strings.Contains(e.Message, "broken pipe") {
		t.Errorf("%+v, want exit code %d", e, cli.ExitUnknown)
	}
}
