package agent

// Claims: a server whose certificate is denied is let go at once and not spoken to again,
// after a restart of powerd too, and as soon as a full disk has room; the others stay.

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/statedir"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
)

// teller is a coordinator that tells nodes what it is given, and counts their streams.
type teller struct {
	headroomv1connect.UnimplementedNodeServiceHandler
	addr string
	tell chan *headroomv1.Denials
	open atomic.Int64
	ever atomic.Int64
	last atomic.Pointer[headroomv1.Heartbeat]
}

func (s *teller) Exchange(ctx context.Context, x *connect.BidiStream[headroomv1.NodeMessage, headroomv1.CoordinatorMessage]) error {
	if _, err := x.Receive(); err != nil {
		return err
	}
	s.ever.Add(1)
	s.open.Add(1)
	defer s.open.Add(-1)
	go func() {
		for {
			m, err := x.Receive()
			if err != nil {
				return
			}
			if h := m.GetHeartbeat(); h != nil {
				s.last.Store(h)
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-s.tell:
			if err := x.Send(&headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Denied{Denied: m}}); err != nil {
				return err
			}
		}
	}
}

func TestDeniedServerIsLetGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, pair, err := secure.NewAuthority("lab", time.Now(), time.Hour)
	if err = errors.Join(err, pair.Write(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))); err != nil {
		t.Fatal(err)
	}
	files := func(role, name string) secure.Files {
		f := secure.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
		p, err := a.Issue(secure.Identity{Role: role, Name: name}, time.Now(), time.Hour)
		if err = errors.Join(err, p.Write(f.Cert, f.Key)); err != nil {
			t.Fatal(err)
		}
		return f
	}
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	defer over.Wait()
	defer cancel()
	serve := func(name string) *teller {
		k, err := secure.Open(files(secure.Server, name))
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &teller{addr: l.Addr().String(), tell: make(chan *headroomv1.Denials)}
		mux := http.NewServeMux()
		mux.Handle(headroomv1connect.NewNodeServiceHandler(s))
		over.Go(func() { _ = rpc.Serve(ctx, rpc.SecureListener(l, k), mux) })
		return s
	}
	c1, c2 := serve("c1"), serve("c2")
	own := files(secure.Node, "n01")
	cfg := newLab(t).config(c1.addr, c2.addr)
	cfg.TLS = secure.Config{CA: own.CA, Cert: own.Cert, Key: own.Key}
	d := &fullDisk{Disk: statedir.OS{Dir: cfg.StateDir}, full: map[string]bool{statedir.DeniedFile: true}}
	defer runOn(t, cfg, d)()
	waitFor(t, "both have a stream", func() bool { return c1.open.Load() == 1 && c2.open.Load() == 1 })

	// Who is no server is left out, and nobody else is denied by it.
	c2.tell <- &headroomv1.Denials{Denied: []*headroomv1.Denial{
		{Identity: "node/n01", AtUs: time.Now().Add(time.Hour).UnixMicro()},
		{Identity: "server/c1", AtUs: time.Now().Add(time.Hour).UnixMicro()},
		{Identity: "what is this"},
	}}
	waitFor(t, "c1 is let go", func() bool { return c1.open.Load() == 0 })
	had := c1.ever.Load()
	// With the disk full it is said, and stored once there is room, though nobody tells it again.
	file := filepath.Join(cfg.StateDir, statedir.DeniedFile)
	waitFor(t, "the full disk is said", func() bool { return hasItem(c2.last.Load(), "denied-not-stored") })
	if _, err := os.Stat(file); err == nil {
		t.Error("stored on a full disk")
	}
	d.set(statedir.DeniedFile, false)
	waitFor(t, "the denial is stored", func() bool {
		all, err := secure.ReadDenials(file)
		return err == nil && len(all) == 1 && all[0].Identity == "server/c1"
	})
	if c2.open.Load() != 1 {
		t.Error("the other server was let go too")
	}

	peers, err := cfg.Peers() // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	defer peers.Close()
	for _, s := range []*teller{c1, c2} {
		client := headroomv1connect.NewNodeServiceClient(peers.HTTP(), peers.URL(s.addr), peers.Options()...)
		_, err := client.Release(t.Context(), connect.NewRequest(&headroomv1.ReleaseRequest{}))
		if reached := connect.CodeOf(err) == connect.CodeUnimplemented; reached != (s == c2) {
			t.Errorf("%s: %v", s.addr, err)
		}
	}
	if c1.ever.Load() != had {
		t.Error("the denied server got another stream")
	}
}
