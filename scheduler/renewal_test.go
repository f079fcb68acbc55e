package scheduler

// Claim: the streams that the scheduler, its distributor and a worker keep follow the certificate
// through ten ends: nothing is refused, no second passes without a message for long, and no
// stream is missed by its owner.

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
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
	"headroom/scheduler/distributor"
	"headroom/scheduler/leader"
	"headroom/scheduler/local"
)

// beats are the messages that the other end of a stream heard.
type beats struct {
	headroomv1connect.UnimplementedJobServiceHandler
	headroomv1connect.UnimplementedMasterServiceHandler
	headroomv1connect.UnimplementedWorkerServiceHandler

	mu               sync.Mutex
	last             time.Time
	gap              time.Duration // the longest between two messages
	streams, refused int
	tries            int // of workers
}

// serve answers each message of a stream, until the certificate that it began with ends.
func serve[In, Out any](ctx context.Context, b *beats, x *connect.BidiStream[In, Out], answer *Out) error {
	listen.Prove(ctx, listen.Guest{})
	b.mu.Lock()
	b.streams++
	b.mu.Unlock()
	for {
		if _, err := x.Receive(); err != nil {
			return nil
		}
		b.mu.Lock()
		b.gap, b.last = max(b.gap, time.Since(b.last)), time.Now()
		ended := !time.Now().Before(rpc.CallerOf(ctx).Ends)
		if ended {
			b.refused++
		}
		b.mu.Unlock()
		if ended {
			return connect.NewError(connect.CodeUnauthenticated, errors.New("the certificate has ended"))
		}
		if err := x.Send(answer); err != nil {
			return err
		}
	}
}

func (b *beats) Direct(ctx context.Context, x *connect.BidiStream[headroomv1.SchedulerMessage, headroomv1.DirectorMessage]) error {
	return serve(ctx, b, x, &headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Leader{Leader: &headroomv1.Leader{Self: true}}})
}

func (b *beats) Place(ctx context.Context, x *connect.BidiStream[headroomv1.PlaceMessage, headroomv1.GroupMessage]) error {
	return serve(ctx, b, x, &headroomv1.GroupMessage{})
}

func (b *beats) Work(ctx context.Context, x *connect.BidiStream[headroomv1.WorkerMessage, headroomv1.WorkMessage]) error {
	b.mu.Lock()
	b.tries++
	early := b.tries%2 == 0
	b.mu.Unlock()
	if listen.Prove(ctx, listen.Guest{}); early {
		return connect.NewError(connect.CodeAlreadyExists, errors.New("the old stream is not over yet"))
	}
	return serve(ctx, b, x, &headroomv1.WorkMessage{})
}

func TestStreamsFollowTheCertificate(t *testing.T) {
	t.Parallel()
	const addr, life = "other:1", 40 * time.Second
	for name, c := range map[string]struct {
		own, other string // roles
		run        func(ctx context.Context, t *testing.T, p rpc.Peers, logger *slog.Logger) error
	}{
		"director": {secure.Scheduler, secure.Server, func(ctx context.Context, _ *testing.T, p rpc.Peers, logger *slog.Logger) error {
			events := make(inbox)
			d := director{leader: leader.New([]string{addr}, p), inbox: events, engines: &engines{}, logger: logger, soon: make(chan struct{}), led: make(chan struct{}, 1)}
			go func() {
				for {
					select {
					case e := <-events:
						e.(viewEvent).reply <- view{} //nolint:forcetypeassert // it asks for nothing else
					case <-ctx.Done():
						return
					}
				}
			}()
			defer p.Close()
			return d.run(ctx)
		}},
		"distributor": {secure.Scheduler, secure.Master, func(ctx context.Context, t *testing.T, p rpc.Peers, logger *slog.Logger) error {
			d := testkit.Need(distributor.New(distributor.Config{Name: "own", Incarnation: 1, Groups: []distributor.Group{{Name: "r1", Masters: []string{addr}}}, Peers: p, Logger: logger}))(t)
			return d.Run(ctx)
		}},
		"worker": {secure.Worker, secure.Scheduler, func(ctx context.Context, t *testing.T, p rpc.Peers, logger *slog.Logger) error {
			return testkit.Need(local.New(local.Config{Node: "own", Schedulers: []string{addr}, Peers: p, Slots: 1, Dir: t.TempDir(), Logger: logger}))(t).Run(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				certs, m, b := testkit.NewCertificates(t), &testkit.Memory{}, &beats{last: time.Now()}
				mux := http.NewServeMux()
				mux.Handle(headroomv1connect.NewJobServiceHandler(b, rpc.HandlerOptions()...))
				mux.Handle(headroomv1connect.NewMasterServiceHandler(b, rpc.HandlerOptions()...))
				mux.Handle(headroomv1connect.NewWorkerServiceHandler(b, rpc.HandlerOptions()...))
				ctx, cancel := context.WithCancel(t.Context())
				over := make(chan error, 2)
				l := rpc.SecureListener(m.Listen(addr), testkit.Need(secure.Open(certs.Files(c.other, "other")))(t))
				go func() { over <- rpc.Serve(ctx, l, mux) }()
				var log bytes.Buffer
				p := rpc.SecurePeersOver(m.Dial, testkit.Need(secure.Open(certs.Renew(c.own, "own", life)))(t), c.other)
				go func() { over <- c.run(ctx, t, p, slog.New(slog.NewTextHandler(&log, nil))) }()
				for range 10 {
					time.Sleep(life / 2)
					certs.Renew(c.own, "own", life)
				}
				time.Sleep(life - 2*time.Second) // the one before the last has ended
				cancel()
				if err := errors.Join(<-over, <-over); err != nil {
					t.Error(err)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.streams != 11 || b.refused > 0 || b.gap > 2*time.Second || strings.Count(log.String(), "level=WARN") != strings.Count(log.String(), "tasks have no cgroup") {
					t.Errorf("%d streams, %d refusals, longest silence %v\n%s", b.streams, b.refused, b.gap, log.String())
				}
			})
		})
	}
}
