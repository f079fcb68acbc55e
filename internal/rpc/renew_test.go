// Claims: connections follow a certificate that is renewed, before it ends: the new one is
// opened first, no call is cut, and streams that are cut can tell why; a thousand clients do
// not dial in one second; a certificate renewed after its end works within ten seconds; what
// cannot be proven replaces nothing.
package rpc_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
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

// strict refuses certificates that have ended, at each message, as the guards of the programs do.
type strict struct {
	headroomv1connect.UnimplementedNodeServiceHandler
	refused *atomic.Int64
}

func (s strict) still(ctx context.Context) error {
	listen.Prove(ctx, listen.Guest{})
	if c := rpc.CallerOf(ctx); !c.Shown || !time.Now().Before(c.Ends) {
		s.refused.Add(1)
		return connect.NewError(connect.CodeUnauthenticated, errors.New("the certificate has ended"))
	}
	return nil
}

func (s strict) Exchange(ctx context.Context, x *connect.BidiStream[headroomv1.NodeMessage, headroomv1.CoordinatorMessage]) error {
	for {
		if _, err := x.Receive(); err != nil {
			return nil
		}
		if err := s.still(ctx); err != nil {
			return err
		}
		if err := x.Send(&headroomv1.CoordinatorMessage{}); err != nil {
			return err
		}
	}
}

func (s strict) Release(ctx context.Context, r *connect.Request[headroomv1.ReleaseRequest]) (*connect.Response[headroomv1.ReleaseResponse], error) {
	if r.Msg.GetNode() == "slow" {
		time.Sleep(2 * time.Second)
	}
	return connect.NewResponse(&headroomv1.ReleaseResponse{}), s.still(ctx)
}

// network serves strict by TLS in memory until the test ends.
func network(t *testing.T, certs testkit.Certificates) (m *testkit.Memory, refused *atomic.Int64, stop func()) {
	t.Helper()
	m, refused = &testkit.Memory{}, &atomic.Int64{}
	k := testkit.Need(secure.Open(certs.Files(secure.Server, "c1")))(t)
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewNodeServiceHandler(strict{refused: refused}, rpc.HandlerOptions()...))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	l := rpc.SecureListener(m.Listen("c1:1"), k)
	go func() { done <- rpc.Serve(ctx, l, mux) }()
	return m, refused, func() {
		cancel()
		testkit.Check(t, <-done)
	}
}

// stream keeps a stream and beats at that interval; it returns how often the stream moved, the
// longest time between two answers, and the other ends.
func stream(ctx context.Context, p rpc.Peers, every time.Duration) (moved int, gap time.Duration, ends []error) {
	last := time.Now()
	for ctx.Err() == nil {
		once, cancel := context.WithCancel(ctx)
		x := headroomv1connect.NewNodeServiceClient(p.HTTP(), p.URL("c1:1"), p.Options()...).Exchange(once)
		unwatch := context.AfterFunc(once, func() { _ = x.CloseRequest() })
		inbox, broken := rpc.Inbox(once, 1, x.Receive)
		beat := time.NewTicker(every)
		err := x.Send(&headroomv1.NodeMessage{})
		for err == nil {
			select {
			case m := <-inbox:
				if m != nil { // else broken has why
					gap, last = max(gap, time.Since(last)), time.Now()
				}
			case <-beat.C:
				err = x.Send(&headroomv1.NodeMessage{})
			case err = <-broken:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		err = rpc.Reason(err, inbox, broken)
		beat.Stop()
		cancel()
		unwatch()
		_ = x.CloseResponse()
		switch {
		case ctx.Err() != nil:
		case rpc.Moved(err):
			moved++
		default:
			ends = append(ends, err)
			time.Sleep(time.Second)
		}
	}
	return moved, gap, ends
}

const life = 40 * time.Second

func TestConnectionsFollowTheCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		certs := testkit.NewCertificates(t)
		m, refused, stop := network(t, certs)
		k := testkit.Need(secure.Open(certs.Renew(secure.Node, "n01", life)))(t)
		p := rpc.SecurePeersOver(m.Dial, k, secure.Server)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if moved, gap, ends := stream(ctx, p, time.Second); moved != 10 || gap > 2*time.Second || len(ends) > 0 {
				t.Errorf("moved %d times, longest silence %v, other ends %v", moved, gap, ends)
			}
		})
		all.Go(func() { // calls that are always in progress
			c := headroomv1connect.NewNodeServiceClient(p.HTTP(), p.URL("c1:1"), p.Options()...)
			for ctx.Err() == nil {
				if _, err := c.Release(ctx, connect.NewRequest(&headroomv1.ReleaseRequest{Node: "slow"})); err != nil && ctx.Err() == nil {
					t.Errorf("a call: %v", err)
				}
			}
		})
		for range 10 {
			time.Sleep(life / 2)
			certs.Renew(secure.Node, "n01", life)
		}
		time.Sleep(life - 2*time.Second) // the one before the last has ended
		cancel()
		all.Wait()
		p.Close()
		stop()
		if n := refused.Load(); n > 0 || len(m.Dials()) > 12 { // the first two requests may have dialled both
			t.Errorf("%d refusals, dialled %d times", n, len(m.Dials()))
		}
	})
}

// Renewed too late, it is refused until then and works within ten seconds.
func TestCertificateRenewedAfterItsEndHeals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		certs := testkit.NewCertificates(t)
		m, refused, stop := network(t, certs)
		k := testkit.Need(secure.Open(certs.Renew(secure.Node, "n01", life)))(t)
		p := rpc.SecurePeersOver(m.Dial, k, secure.Server)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, gap, ends := stream(ctx, p, time.Second); gap < time.Minute || gap > life/2+time.Minute+10*time.Second || len(ends) == 0 {
				t.Errorf("longest silence %v, ends %v", gap, ends)
			}
		})
		time.Sleep(life/2 + life + time.Minute)
		if refused.Load() == 0 {
			t.Error("an ended certificate is good enough")
		}
		certs.Renew(secure.Node, "n01", time.Hour)
		time.Sleep(time.Minute)
		cancel()
		all.Wait()
		p.Close()
		stop()
	})
}

// A new certificate that the server refuses replaces no connection that works.
func TestUnprovenConnectionReplacesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		certs := testkit.NewCertificates(t)
		m, _, stop := network(t, certs)
		k := testkit.Need(secure.Open(certs.Renew(secure.Node, "n01", time.Hour)))(t)
		p := rpc.SecurePeersOver(m.Dial, k, secure.Server)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if moved, _, ends := stream(ctx, p, time.Second); moved != 1 || len(ends) > 0 {
				t.Errorf("moved %d times, other ends %v", moved, ends)
			}
		})
		time.Sleep(time.Second)
		certs.Renew(secure.Node, "n01", -time.Second)
		time.Sleep(5 * time.Minute)
		if len(m.Dials()) < 10 {
			t.Errorf("dialled %d times", len(m.Dials()))
		}
		certs.Renew(secure.Node, "n01", time.Hour)
		time.Sleep(time.Minute)
		cancel()
		all.Wait()
		p.Close()
		stop()
	})
}

// The certificates of a thousand nodes are renewed in the same moment.
func TestThousandClientsDoNotDialInOneSecond(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	synctest.Test(t, func(t *testing.T) {
		const nodes = 1000
		certs := testkit.NewCertificates(t)
		m, refused, stop := network(t, certs)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		files := certs.Renew(secure.Node, "n", life) // each node has its own, but here they are the same
		for i := range nodes {
			k := testkit.Need(secure.Open(files))(t)
			all.Go(func() {
				p := rpc.SecurePeersOver(m.Dial, k, secure.Server)
				defer p.Close()
				if moved, gap, ends := stream(ctx, p, 8*time.Second); moved != 1 || gap > 9*time.Second || len(ends) > 0 {
					t.Errorf("node %d moved %d times, longest silence %v, other ends %v", i, moved, gap, ends)
				}
			})
		}
		time.Sleep(life / 2)
		renewed := time.Now()
		certs.Renew(secure.Node, "n", time.Hour)
		time.Sleep(life)
		cancel()
		all.Wait()
		stop()
		perSecond := map[int]int{}
		for _, at := range m.Dials() {
			if at.After(renewed) {
				perSecond[int(at.Sub(renewed)/time.Second)]++
			}
		}
		for s, n := range perSecond {
			if n > nodes/8 {
				t.Errorf("%d dials in second %d", n, s)
			}
		}
		if refused.Load() > 0 || len(perSecond) < 10 {
			t.Errorf("%d refusals, dials in %d seconds", refused.Load(), len(perSecond))
		}
	})
}
