package access

// Claims: whoever the coordinators deny is refused by the scheduler too, on connections
// that are open and after a restart without coordinators; and until it hears of them.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
)

// denier is a coordinator that tells who is denied.
type denier struct {
	headroomv1connect.UnimplementedClusterServiceHandler
	denied []*headroomv1.Denial
}

func (d denier) ListDenied(context.Context, *connect.Request[headroomv1.ListDeniedRequest]) (*connect.Response[headroomv1.ListDeniedResponse], error) {
	return connect.NewResponse(&headroomv1.ListDeniedResponse{Denied: d.denied}), nil
}

func TestDeniedCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	certs, dir := testkit.NewCertificates(t), t.TempDir()
	open := func(role, name string) (*secure.Keeper, rpc.Caller) {
		f := certs.Files(role, name)
		k := testkit.Need(secure.Open(f))(t)
		pair := testkit.Need(tls.LoadX509KeyPair(f.Cert, f.Key))(t)
		leaf := testkit.Need(x509.ParseCertificate(pair.Certificate[0]))(t)
		return k, rpc.Caller{Identity: secure.Identity{Role: role, Name: name}, Shown: true, Ends: leaf.NotAfter, Certificate: leaf}
	}
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewClusterServiceHandler(denier{denied: []*headroomv1.Denial{
		{Identity: "submitter/eve", AtUs: time.Now().Add(time.Hour).UnixMicro(), Actor: "admin/ann", Reason: "left"},
	}}))
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- rpc.Serve(ctx, l, mux) }()
	defer func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}()

	server := func(coordinators ...string) *Denied {
		k, _ := open(secure.Scheduler, "s-"+time.Now().Format("150405.000000000"))
		g := New(false, "", slog.New(slog.DiscardHandler))
		return &Denied{filepath.Join(dir, DeniedFile), coordinators, rpc.PlainPeers(), k, g, slog.New(slog.DiscardHandler)}
	}
	_, eve := open(secure.Submitter, "eve")
	_, mia := open(secure.Submitter, "mia")
	admitted := func(s *Denied, c rpc.Caller) error {
		_, err := s.Guard.Admit(rpc.WithCaller(t.Context(), c), headroomv1connect.SchedulerServiceSubmitProcedure)
		return err
	}

	s := server("127.0.0.1:1", l.Addr().String())
	if err := errors.Join(s.Load(), admitted(s, eve), admitted(s, mia)); err != nil {
		t.Errorf("before anybody is denied: %v", err)
	}
	worker := make(chan struct{}, 1)
	defer s.Guard.Listen(worker)()
	testkit.Check(t, s.update(t.Context()))
	if len(worker) != 1 {
		t.Error("workers are not told")
	}
	if err := admitted(s, eve); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("denied, and admitted: %v", err)
	}
	if err := admitted(s, mia); err != nil {
		t.Errorf("not denied, and refused: %v", err)
	}
	again := server("127.0.0.1:1")
	testkit.Check(t, again.Load())
	if err := admitted(again, eve); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("after a restart: %v", err)
	}
	if err := again.update(t.Context()); err == nil {
		t.Error("nobody answered, and nothing is said")
	}
	if all := again.Guard.Denials.All(); !slices.ContainsFunc(all, func(d secure.Denial) bool { return d.Identity == "submitter/eve" }) {
		t.Errorf("forgotten: %v", all)
	}
}
