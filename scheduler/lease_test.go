// Claims (two schedulers of one cluster): a scheduler acts only while it holds the lease, which it
// counts from when it sent the request; once lost it acts no more in that tenure; a standby names
// the active one and takes over; with coordinators of an older version it acts without a lease.
package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/scheduler/access"
)

// granter is the coordinators' side of the lease, in a bubble.
type granter struct {
	mu     sync.Mutex
	holder string // process
	name   string
	epoch  uint64
	err    error
	slow   time.Duration
	asked  int
}

func (g *granter) ask(ctx context.Context, r *headroomv1.HoldSchedulerRequest) (*headroomv1.HoldSchedulerResponse, error) {
	g.mu.Lock()
	slow := g.slow
	g.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	switch {
	case g.err != nil:
		return nil, g.err
	case r.GetRelease() == g.epoch && r.GetRelease() != 0:
		g.holder = ""
		return &headroomv1.HoldSchedulerResponse{}, nil
	case g.holder == "":
		g.holder, g.name = r.GetProcess(), r.GetAddress()
		g.epoch++
	}
	held := g.holder == r.GetProcess()
	a := &headroomv1.HoldSchedulerResponse{Held: held, Epoch: g.epoch, Name: g.name, Address: g.name}
	if held {
		a.LeaseMs, a.Key = 5000, []byte("0123456789abcdef0123456789abcdef")
	}
	return a, nil
}

func (g *granter) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// asker is a scheduler that asks a granter.
func asker(g *granter, address string) *leases {
	guard := access.New(true, "", slog.New(slog.DiscardHandler))
	began := time.Now()
	return &leases{
		self: &headroomv1.HoldSchedulerRequest{Address: address}, ask: g.ask, gateway: newGateway(guard), logger: slog.New(slog.DiscardHandler),
		boot: func() time.Duration { return time.Since(began) },
	}
}

func TestLeaseIsCountedFromItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &granter{slow: time.Second}
		k := asker(g, "a:1")
		l := k.acquire(t.Context(), nil)
		if l.Epoch() != 1 || !l.held() || len(l.key) != 32 {
			t.Fatalf("epoch %d", l.Epoch())
		}
		g.set(func() { g.err = errors.New("no coordinator") })
		lost := make(chan error)
		go func() { lost <- k.keep(t.Context(), l) }()
		time.Sleep(4*time.Second - 1) // the answer took a second
		if !l.held() {
			t.Error("lost too early")
		}
		time.Sleep(time.Nanosecond)
		if l.held() {
			t.Error("still held 5 s after its request")
		}
		g.set(func() { g.err = nil })
		if err := <-lost; !errors.Is(err, errLost) {
			t.Errorf("%v", err)
		}
		if err := k.renew(t.Context(), l); err != nil || l.held() {
			t.Errorf("a lost tenure goes on: %v", err)
		}
	})
}

func TestStandbyTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &granter{}
		a, b := asker(g, "a:1"), asker(g, "b:1")
		l := a.acquire(t.Context(), nil)
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- a.keep(ctx, l) }()
		stood, next := make(chan struct{}), make(chan *tenure)
		go func() { next <- b.acquire(t.Context(), func() { close(stood) }) }()
		<-stood
		time.Sleep(20 * time.Second)
		if name, address := b.gateway.activeOne(); name != "a:1" || address != "a:1" || !l.held() {
			t.Errorf("the standby names %q at %q", name, address)
		}
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
		a.release(ctx, l) // although ctx is over
		if m := <-next; m.Epoch() != 2 || m.process == l.process {
			t.Errorf("epoch %d", m.Epoch())
		}

		// Somebody else got it while a was away: a hears that at its next renewal.
		if err := a.renew(t.Context(), l); err != nil || l.held() {
			t.Errorf("replaced: %v", err)
		}
		if _, address := a.gateway.activeOne(); address != "b:1" {
			t.Errorf("it names %q", address)
		}
	})
}

// Coordinators that know no lease yet are upgraded while the scheduler acts.
func TestCoordinatorsWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []string{"unimplemented", "old-rules"} {
			g := &granter{err: &cli.Error{Code: code}}
			k := asker(g, "a:1")
			l := k.acquire(t.Context(), nil)
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan error)
			go func() { over <- k.keep(ctx, l) }()
			time.Sleep(30 * time.Second)
			if !l.held() || l.Epoch() != 0 {
				t.Errorf("%s: epoch %d", code, l.Epoch())
			}
			g.set(func() { g.err = nil })
			time.Sleep(30 * time.Second)
			if !l.held() || l.Epoch() != 1 {
				t.Errorf("%s: after the upgrade: epoch %d", code, l.Epoch())
			}
			stop()
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
	})
}

// The ports answer on standby, too: with who is active.
func TestGateway(t *testing.T) {
	t.Parallel()
	gw := newGateway(access.New(true, "", slog.New(slog.DiscardHandler)))
	port := testkit.Need(rpc.Listen("127.0.0.1:0"))(t)
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- rpc.Serve(serving, port, gw) }()
	defer func() { stop(); testkit.Check(t, <-served) }()
	peers := rpc.PlainPeers()
	defer peers.Close()
	client := headroomv1connect.NewSchedulerServiceClient(peers.HTTP(), peers.URL(port.Addr().String()), peers.Options()...)
	list := func(epoch uint64) (http.Header, error) {
		r := connect.NewRequest(&headroomv1.ListRequest{})
		rpc.SetSchedulerEpoch(r.Header(), epoch)
		a, err := client.List(t.Context(), r)
		if err != nil {
			return nil, err
		}
		return a.Header(), nil
	}
	_, err := list(0)
	if address, ok := rpc.LeaderOf(err); !ok || address != "" {
		t.Errorf("nobody is active: %v", err)
	}
	gw.standBy("s2", "b:1")
	if _, err = list(0); err == nil {
		t.Fatal("a standby answers")
	}
	if address, _ := rpc.LeaderOf(err); address != "b:1" || rpc.AsCLI(err, "list", "a:1").Exit != cli.ExitUnreachable {
		t.Errorf("%v", err)
	}

	l := &tenure{boot: func() time.Duration { return 0 }}
	l.epoch.Store(7)
	l.end.Store(1)
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewSchedulerServiceHandler(answering{}))
	ctx, end := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- gw.serve(ctx, l, mux) }()
	for {
		if a, _ := gw.enter(); a != nil {
			a.calls.Done()
			break
		}
		runtime.Gosched()
	}
	if h, err := list(7); err != nil || rpc.SchedulerEpoch(h) != 7 {
		t.Errorf("active: %v, %v", h, err)
	}
	if _, err := list(8); err == nil {
		t.Error("it answers somebody who has seen a newer scheduler")
	}
	l.end.Store(0)
	if _, err := list(0); err == nil {
		t.Error("it answers without a lease")
	}
	end()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

type answering struct {
	headroomv1connect.UnimplementedSchedulerServiceHandler
}

func (answering) List(context.Context, *connect.Request[headroomv1.ListRequest]) (*connect.Response[headroomv1.ListResponse], error) {
	return connect.NewResponse(&headroomv1.ListResponse{}), nil
}
