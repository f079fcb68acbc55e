package streams

// Claim: a node's stream follows its certificate through ten ends: no heartbeat is refused, none
// is late by as much as would cost a lease, and the leader stays known.

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/listen"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
)

// coordinator leads, and refuses certificates that have ended at each message.
type coordinator struct {
	headroomv1connect.UnimplementedNodeServiceHandler

	mu      sync.Mutex
	refused int
}

func (c *coordinator) Exchange(ctx context.Context, x *connect.BidiStream[headroomv1.NodeMessage, headroomv1.CoordinatorMessage]) error {
	listen.Prove(ctx, listen.Guest{})
	for {
		if _, err := x.Receive(); err != nil {
			return nil
		}
		if !time.Now().Before(rpc.CallerOf(ctx).Ends) {
			c.mu.Lock()
			c.refused++
			c.mu.Unlock()
			return connect.NewError(connect.CodeUnauthenticated, errors.New("the certificate has ended"))
		}
		if err := x.Send(&headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Leader{Leader: &headroomv1.Leader{Self: true}}}); err != nil {
			return err
		}
	}
}

func TestStreamFollowsTheCertificate(t *testing.T) {
	t.Parallel()
	const addr, life, beat = "c1:1", 40 * time.Second, time.Second
	synctest.Test(t, func(t *testing.T) {
		certs, m, c := testkit.NewCertificates(t), &testkit.Memory{}, &coordinator{}
		mux := http.NewServeMux()
		mux.Handle(headroomv1connect.NewNodeServiceHandler(c, rpc.HandlerOptions()...))
		ctx, cancel := context.WithCancel(t.Context())
		l := rpc.SecureListener(m.Listen(addr), testkit.Need(secure.Open(certs.Files(secure.Server, "c1")))(t))
		over := make(chan error, 1)
		go func() { over <- rpc.Serve(ctx, l, mux) }()
		k := testkit.Need(secure.Open(certs.Renew(secure.Node, "n01", life)))(t)
		s := New([]string{addr}, func() (rpc.Peers, error) { return rpc.SecurePeersOver(m.Dial, k, secure.Server), nil }, func() error { return nil }, slog.New(slog.DiscardHandler))
		s.Ready()
		s.Believe(<-s.Certificates())
		s.Keep(ctx, []string{addr}, &headroomv1.Hello{})
		began, renewed := time.Now(), 0
		answered, gap, moved := began, time.Duration(0), 0
		tick := time.NewTicker(beat)
		for time.Since(began) < 11*life/2+life/2-2*beat { // the certificate before the last has ended
			select {
			case e := <-s.Told():
				s.Take(e)
				switch {
				case e.Msg != nil:
					gap, answered = max(gap, time.Since(answered)), time.Now()
				case rpc.Moved(e.Down):
					moved++
				case e.Down != nil:
					t.Errorf("after %v: %v", time.Since(began), e.Down)
				}
			case <-tick.C:
				s.Send(&headroomv1.NodeMessage{}, false)
				if n := int(time.Since(began) / (life / 2)); n > renewed && n <= 10 {
					renewed = n
					certs.Renew(secure.Node, "n01", life)
				}
			}
		}
		if s.Leader() == nil {
			t.Error("no leader is known")
		}
		tick.Stop()
		s.End()
		cancel()
		testkit.Check(t, <-over)
		if moved != 10 || c.refused > 0 || gap > 2*beat {
			t.Errorf("moved %d times, %d refusals, longest silence %v", moved, c.refused, gap)
		}
	})
}
