// Claims: a server's certificate counts for members of the group only; what was
// denied stays so across restarts, restores and snapshots; a generation of the brake
// that nobody signed is a hint, and can be passed over.
package coordinator

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/consensus"
	"headroom/coordinator/access"
	"headroom/coordinator/denials"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/streams"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/ledger"
	"headroom/units"
)

// A certificate of a server that never was a member speaks for nobody: it may only
// ask whether it is one. Nor does it get near the log.
func TestOnlyMembersSpeakAsServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.leader()
		c.seated("c1", "c2", "c3")
		s := c.leader().server
		asAdmin := http.Header{access.ForwardedHeader: {"admin/root"}}
		for procedure, open := range map[string]bool{
			headroomv1connect.ClusterServiceChangeProcedure: false, headroomv1connect.ClusterServiceListTokensProcedure: false,
			headroomv1connect.ClusterServiceGetStatusProcedure: false, headroomv1connect.MemberServiceLastWordsProcedure: false,
			headroomv1connect.MemberServiceDescribeServerProcedure: true,
		} {
			if _, err := s.guard.Admit(rpc.WithCaller(t.Context(), shown("server", "c9")), procedure, asAdmin); (err == nil) != open {
				t.Errorf("%s as server/c9: %v", procedure, err)
			}
			if _, err := s.guard.Admit(rpc.WithCaller(t.Context(), shown("server", "c2")), procedure, asAdmin); err != nil {
				t.Errorf("%s as server/c2: %v", procedure, err)
			}
		}
		for id, good := range map[string]bool{"c1": true, "c2": true, "c9": false} {
			if err := s.vet(secure.Identity{Role: secure.Server, Name: id}); (err == nil) != good {
				t.Errorf("%s at the log: %v", id, err)
			}
		}
		// Before the log is open nobody is let near it.
		if newServer(s.cfg, slog.New(slog.DiscardHandler)).vet(secure.Identity{Role: secure.Server, Name: "c2"}) == nil {
			t.Error("let in before the members are known")
		}
	})
}

// certificateOf is one for an identity, as a connection shows it.
func certificateOf(t *testing.T, who secure.Identity) *x509.Certificate {
	t.Helper()
	a, _, err := secure.NewAuthority("lab", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue(who, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func denyIt(s *server, identity string) error {
	_, err := (clusterService{s}).Change(context.Background(), connect.NewRequest(&headroomv1.ChangeRequest{
		Change: &headroomv1.Change{Reason: "stolen"}, What: &headroomv1.ChangeRequest_Deny{Deny: &headroomv1.Denial{Identity: identity}},
	}))
	return err
}

// What an administrator denies is refused by every server, on streams that are open
// too, and what denies nobody is refused.
func TestDeniedCallersAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		l := c.leader().server
		c.seated("c1", "c2", "c3")
		who := shown("operator", "mia")
		who.Certificate = certificateOf(t, who.Identity)
		call := func(s *server) error {
			_, err := s.guard.Admit(rpc.WithCaller(t.Context(), who), headroomv1connect.ClusterServiceGetStatusProcedure, http.Header{})
			return err
		}
		if err := call(l); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"", "mia", "root/x"} {
			if denyIt(l, bad) == nil {
				t.Errorf("%q was denied", bad)
			}
		}
		time.Sleep(time.Second) // the bubble's: the denial is after the certificate
		if err := denyIt(l, "operator/mia"); err != nil {
			t.Fatal(err)
		}
		c.until("every server refuses it", 30*time.Second, func() bool {
			return call(c.server("c1").server) != nil && call(c.server("c2").server) != nil && call(c.server("c3").server) != nil
		})
		if e := rpc.AsCLI(call(l), "test", "addr"); e.Code != "certificate-denied" {
			t.Errorf("refused as %+v", e)
		}
		if _, err := l.guard.Identify(who, ""); err == nil {
			t.Error("an open stream goes on")
		}
		// A certificate made afterwards lets in, until it is denied too, later.
		time.Sleep(time.Second)
		stolen := who.Certificate
		who.Certificate = certificateOf(t, who.Identity)
		if err := call(l); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := denyIt(l, "operator/mia"); err != nil {
			t.Fatal(err)
		}
		refused := func(cert *x509.Certificate) func() bool {
			return func() bool {
				who.Certificate = cert
				return call(c.server("c1").server) != nil && call(c.server("c2").server) != nil && call(c.server("c3").server) != nil
			}
		}
		c.until("every server refuses the second too", 30*time.Second, refused(who.Certificate))
		c.until("and the first", time.Second, refused(stolen))
		r, err := (clusterService{l}).ListDenied(t.Context(), connect.NewRequest(&headroomv1.ListDeniedRequest{}))
		if err != nil || len(r.Msg.GetDenied()) != 1 || r.Msg.GetDenied()[0].GetIdentity() != "operator/mia" || r.Msg.GetDenied()[0].GetReason() != "stolen" {
			t.Errorf("listed %v, %v", r, err)
		}
		// A group whose log lacks a denial that a server knows has it again.
		l.guard.Revoked.Add(secure.Denial{Identity: "node/n7", At: 5, Reason: "before the restore"})
		c.until("it is back in the log", 30*time.Second, func() bool { return c.newest().Denied["node/n7"].At == 5 })
	})
}

// A server that gets the state as a snapshot refuses who is denied, as one that applied the
// entry: the denial stands in no log that is left.
func TestDenialsComeWithASnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 0, 700*units.Watt)
		c.ids, c.first = []string{"c1", "c2", "c3"}, []string{"c1", "c2", "c3"}
		c.compaction = consensus.Compaction{Every: time.Second, Threshold: 8, Trailing: 4}
		for _, id := range c.ids {
			c.disks[id] = memory()
			c.start(id)
		}
		l := c.leader().server
		c.seated("c1", "c2", "c3")
		away := c.other(l.cfg.ID)
		c.kill(away)
		who := certificateOf(t, secure.Identity{Role: "operator", Name: "mia"})
		time.Sleep(time.Second) // the denial is after the certificate
		if err := denyIt(l, "operator/mia"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // ticks enough for the log to be cut
		if first, _ := c.disks[l.cfg.ID].Log.FirstIndex(); first < 30 {
			t.Fatalf("the log still begins at %d", first)
		}
		c.start(away)
		c.until("it refuses the denied one too", time.Minute, func() bool { return c.server(away).guard.Revoked.Check(who) != nil })
	})
}

// Denials that could not be stored, because the folder is full or gone, are stored as soon as
// that is possible.
func TestDenialStoreIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		s := newServer(Config{ID: "c1", StateDir: dir}, slog.New(slog.DiscardHandler))
		s.denials.Deny([]ledger.Denial{{Identity: "node/n1", At: 7}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.denials.Keep(ctx) }()
		time.Sleep(10 * time.Second)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all, err := secure.ReadDenials(filepath.Join(dir, "denied.json")); err != nil || len(all) != 1 {
			t.Errorf("stored %v, %v", all, err)
		}
		cancel()
		<-done
	})
}

// The file beside the log is carried over to the state that a restore makes, and
// read at the next start.
func TestDenialsSurviveARestore(t *testing.T) {
	t.Parallel()
	dir, staging := t.TempDir(), t.TempDir()
	s := newServer(Config{ID: "c1", StateDir: dir}, slog.New(slog.DiscardHandler))
	s.denials.Deny([]ledger.Denial{{Identity: "node/n1", At: 7, Reason: "stolen"}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.denials.Keep(ctx) }()
	path := filepath.Join(dir, "denied.json")
	for began := time.Now(); ; {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("not written")
		}
	}
	cancel()
	<-done
	if err := denials.Carry(dir, staging); err != nil {
		t.Fatal(err)
	}
	again := newServer(Config{ID: "c1", StateDir: staging}, slog.New(slog.DiscardHandler))
	again.denials.Recall()
	if all := again.guard.Revoked.All(); len(all) != 1 || all[0].Identity != "node/n1" || all[0].At != 7 {
		t.Errorf("after the restore: %v", all)
	}
	if err := denials.Carry(t.TempDir(), staging); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// A generation that nobody signed does not use up the brake's, whether or not the
// server has keys; an operator passes over it where a node tells it.
func TestUnsignedGenerationIsAHint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		s := c.leader().server
		b := brakeService{s}
		skip := func(generation uint64) error {
			_, err := b.SkipBrake(t.Context(), connect.NewRequest(&headroomv1.SkipBrakeRequest{Generation: generation}))
			return err
		}
		for _, told := range []uint64{math.MaxUint64, 12} {
			if got := s.braking.Told(t.Context(), "n7", &headroomv1.Heartbeat{BrakeGeneration: told}); got != 0 {
				t.Errorf("%d is believed as %d", told, got)
			}
		}
		time.Sleep(5 * time.Second)
		if top := c.newest().Brake.Set; top != 0 {
			t.Fatalf("the log has generation %d", top)
		}
		if len(s.brakes.Alarms()) != 1 {
			t.Errorf("alarms %v", s.brakes.Alarms())
		}
		if skip(11) == nil {
			t.Error("a generation that nobody tells was skipped")
		}
		if err := skip(12); err != nil {
			t.Fatal(err)
		}
		if x := c.newest().Brake; x.Lifted != 12 || x.Active() {
			t.Errorf("after the skip %+v", x)
		}
		s.braking.Told(t.Context(), "n8", &headroomv1.Heartbeat{BrakeGeneration: math.MaxUint64})
		if e := rpc.AsCLI(skip(math.MaxUint64), "test", "addr"); e == nil || e.Code != "no-room" {
			t.Errorf("all generations were skipped: %+v", e)
		}
	})
}

// saidTo collects what is sent to a node.
type saidTo chan *headroomv1.CoordinatorMessage

func (c saidTo) Send(m *headroomv1.CoordinatorMessage) error {
	c <- m
	return nil
}

// A node hears who is denied when its stream opens, and at once when that changes; a
// box that is full of leases loses nothing of it.
func TestNodesAreToldWhoIsDenied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newServer(Config{ID: "c1", StateDir: t.TempDir()}, slog.New(slog.DiscardHandler))
		l.denials.Deny([]ledger.Denial{{Identity: "server/c9", At: 7, Actor: "mia", Reason: "stolen"}, {Identity: "node/n7", At: 7}})
		s, _ := l.streams.Nodes.Open(streams.Origin{Node: "n1", Machine: "m1", Boot: "b1", Process: 1})
		for range 100 { // more than fit
			l.streams.Announce(&headroomv1.Leader{})
		}
		ctx, cancel := context.WithCancel(t.Context())
		sent, over := make(saidTo, 100), make(chan struct{})
		go func() { defer close(over); deliver(ctx, sent, s, l.guard.Revoked) }()
		heard := func() (all []string) {
			synctest.Wait()
			for len(sent) > 0 {
				for _, d := range (<-sent).GetDenied().GetDenied() {
					all = append(all, d.GetIdentity()+d.GetSerial())
					if d.GetReason() != "" || d.GetAtUs() != 7 {
						t.Errorf("told %v", d)
					}
				}
			}
			return all
		}
		if got := heard(); !slices.Equal(got, []string{"server/c9"}) {
			t.Errorf("told %v as the stream opens", got)
		}
		l.denials.Deny([]ledger.Denial{{Serial: "3f9a", At: 7}})
		if got := heard(); !slices.Equal(got, []string{"3f9a", "server/c9"}) {
			t.Errorf("told %v when one more is denied", got)
		}
		l.denials.Deny([]ledger.Denial{{Serial: "3f9a", At: 7}})
		if got := heard(); len(got) != 0 {
			t.Errorf("told %v for no news", got)
		}
		cancel()
		<-over
	})
}

// The caller of a change is who was let in, not who the message says.
func TestActorIsTheCaller(t *testing.T) {
	t.Parallel()
	g := access.New(statemachine.New().View, slog.New(slog.DiscardHandler))
	ctx, err := g.Admit(rpc.WithCaller(t.Context(), shown("operator", "mia")), headroomv1connect.ClusterServiceSetBudgetProcedure, http.Header{access.ForwardedHeader: {"admin/root"}})
	if err != nil {
		t.Fatal(err)
	}
	if c := command(ctx, &headroomv1.ChangeRequest{}, "operator"); c.Actor != "mia" || access.CallerOf(ctx).Role != ledger.RoleOperator {
		t.Errorf("the actor is %q, role %s", c.Actor, access.CallerOf(ctx).Role)
	}
	ctx, err = g.Admit(rpc.WithCaller(t.Context(), shown("server", "c2")), headroomv1connect.ClusterServiceSetBudgetProcedure, http.Header{access.ForwardedHeader: {"admin/root"}})
	if err != nil || access.CallerOf(ctx).Name != "root" || access.CallerOf(ctx).Role != ledger.RoleAdmin {
		t.Errorf("passed on by a server: %+v, %v", access.CallerOf(ctx), err)
	}
}

// A node reads its own row and the domains above it; the rows of others are refused or left out.
func TestNodeReadsItsOwnRow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		c.leader()
		c.addNode(declared("n01"))
		beside := declared("n02")
		beside.Domain = "site/lab"
		c.addNode(beside)
		c.allHeld(20 * time.Second)
		s := c.leader().server
		ctx, err := s.guard.Admit(rpc.WithCaller(t.Context(), shown("node", "n01")), headroomv1connect.ClusterServiceListNodesProcedure, http.Header{})
		if err != nil {
			t.Fatal(err)
		}
		own, err := clusterService{s}.ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{Node: "n01"}))
		if err != nil || len(own.Msg.GetNodes()) != 1 || own.Msg.GetNodes()[0].GetName() != "n01" {
			t.Errorf("its own row: %v, %v", own, err)
		}
		for _, node := range []string{"n02", ""} {
			if _, err := (clusterService{s}).ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{Node: node})); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("n01 read the row of %q: %v", node, err)
			}
		}
		for node, want := range map[string][]string{"n01": {"rack/r1", "site/lab"}, "n02": {"site/lab"}, "n99": nil} {
			ctx, err := s.guard.Admit(rpc.WithCaller(t.Context(), shown("node", node)), headroomv1connect.ClusterServiceListDomainsProcedure, http.Header{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := clusterService{s}.ListDomains(ctx, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, d := range got.Msg.GetDomains() {
				names = append(names, d.GetName())
			}
			slices.Sort(names)
			if !slices.Equal(names, want) {
				t.Errorf("%s reads the domains %v, want %v", node, names, want)
			}
		}
	})
}

// by shows a certificate.
func shown(role, name string) rpc.Caller {
	return rpc.Caller{Shown: true, Identity: secure.Identity{Role: role, Name: name}}
}
