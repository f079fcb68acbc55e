package coordinator

// Claims: the brake drops every reachable node to its fail-safe cap within 2 s
// with no leader and no quorum; no leader grants anything before the log knows of
// it; only the log lifts it; replays, forgeries and lies change nothing.

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/gossip"
	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/internal/testkit/network"
	"headroom/units"
)

// choir is a cluster's gossip on a network in memory: the real one, with a member
// for every server and node.
type choir struct {
	t       *testing.T
	c       *cluster
	network *network.Network
	key     []byte
	private brake.PrivateKey
	keys    brake.Keys

	mu     sync.Mutex
	voices map[string]*voice
}

// voice is one member.
type voice struct {
	g    *gossip.Gossip
	stop func()
}

func newChoir(t *testing.T, c *cluster) *choir {
	t.Helper()
	private, keys, err := brake.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	h := &choir{t: t, c: c, network: network.New(), key: make([]byte, gossip.KeySize), private: private, keys: keys, voices: map[string]*voice{}}
	t.Cleanup(func() {
		for name := range h.voices {
			h.leave(name)
		}
		time.Sleep(time.Minute) // memberlist's last probes run out
	})
	return h
}

func (h *choir) addr(name string) string {
	at := "10.2.0." + strings.TrimLeft(name[1:], "0") + ":7402"
	if name[0] == 'c' {
		at = "10.1.0." + name[1:] + ":7402"
	}
	return at
}

// start makes a member.
func (h *choir) start(name, role string, known brake.Signed) *gossip.Gossip {
	h.t.Helper()
	cfg := gossip.Config{
		Name: name, Role: role, Key: h.key, BrakeKeys: h.keys, Brake: known, Transport: h.network.Attach(h.addr(name)),
		Join: []string{h.addr("c1"), h.addr("c2"), h.addr("c3")},
	}
	if role == gossip.RoleCoordinator {
		cfg.RPC = "rpc:1"
	}
	g, err := gossip.Start(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	return g
}

// server gives a running server its gossip and its key, as Run does.
func (h *choir) server(id string) {
	h.t.Helper()
	s := h.c.server(id).server
	s.brakes.Use(h.keys, &h.private, func([]byte) error { return nil })
	s.gossip.Store(h.start(id, gossip.RoleCoordinator, s.brakes.Known()))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.braking.Follow(ctx) })
	running.Go(func() { _ = s.brakes.Keep(ctx) })
	h.keep(id, s.gossip.Load(), func() { cancel(); running.Wait() })
}

// node gives a node its gossip, as powerd does.
func (h *choir) node(n *node) {
	h.t.Helper()
	g := h.start(n.name, gossip.RoleNode, brake.Signed{})
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-g.Braked():
				n.set(func(n *node) { n.obey(g.Brake()) })
			}
		}
	})
	h.keep(n.name, g, func() { close(stop); running.Wait() })
}

// obey is what powerd does with a brake. The node's lock is held.
func (n *node) obey(s brake.Signed) {
	n.holder.Brake(s.Generation)
	n.proof = s.Bytes()
}

func (h *choir) keep(name string, g *gossip.Gossip, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.voices[name] = &voice{g, stop}
}

func (h *choir) voice(name string) *gossip.Gossip {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.voices[name].g
}

// leave ends a member.
func (h *choir) leave(name string) {
	h.mu.Lock()
	v := h.voices[name]
	delete(h.voices, name)
	h.mu.Unlock()
	if v != nil {
		v.stop()
		_ = v.g.Close()
	}
}

// kill ends a server and its gossip, without a goodbye.
func (h *choir) kill(id string) {
	h.t.Helper()
	gone := h.addr(id)
	h.network.Cut(func(from, to string) bool { return from == gone || to == gone })
	h.leave(id)
	h.c.kill(id)
	h.network.Cut(nil)
}

// all sees n members from everywhere.
func (h *choir) settle(n int) {
	h.t.Helper()
	h.c.until("everybody sees everybody", 2*time.Minute, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, v := range h.voices {
			if len(v.g.Members()) != n {
				return false
			}
		}
		return len(h.voices) == n
	})
}

// braked is a cluster of three servers and some nodes, all of them members, with
// every node under lease and raised.
func braked(t *testing.T, nodes int) (*cluster, *choir) {
	t.Helper()
	c := newCluster(t, 3, units.Power(nodes+1)*250*units.Watt) // room for one more
	h := newChoir(t, c)
	for _, id := range c.ids {
		h.server(id)
	}
	c.addNodes(nodes)
	for _, n := range c.nodes {
		h.node(n)
	}
	c.leader()
	c.allHeld(10 * time.Second)
	h.settle(3 + nodes)
	c.raised()
	return c, h
}

// raised waits until every node holds well more than its fail-safe cap.
func (c *cluster) raised() {
	c.t.Helper()
	c.until("every node is raised", 20*time.Second, func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *node) bool { return n.look().effective < 120*units.Watt })
	})
}

// failSafe tells whether some nodes hold their fail-safe caps and no lease.
func failSafe(nodes ...*node) bool {
	return !slices.ContainsFunc(nodes, func(n *node) bool { h := n.look(); return h.held || h.effective != 80*units.Watt })
}

func setBrake(t *testing.T, s *server, reason string) *headroomv1.SetBrakeResponse {
	t.Helper()
	r, err := brakeService{s}.SetBrake(t.Context(), connect.NewRequest(&headroomv1.SetBrakeRequest{Change: &headroomv1.Change{Actor: "mia", Reason: reason}}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

func liftBrake(c *cluster, generation uint64, dryRun bool) (*headroomv1.ChangeResponse, error) {
	r, err := brakeService{c.leader().server}.LiftBrake(context.Background(), connect.NewRequest(&headroomv1.LiftBrakeRequest{
		Change: &headroomv1.Change{Actor: "joe", Reason: "no fire"}, Generation: generation, DryRun: dryRun,
	}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

func showBrake(t *testing.T, s *server, stale bool) *headroomv1.GetBrakeResponse {
	t.Helper()
	r, err := brakeService{s}.GetBrake(t.Context(), connect.NewRequest(&headroomv1.GetBrakeRequest{Stale: stale}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

// With the majority killed the one server that is left brakes every node that it
// reaches within 2 s; the next leader commits the brake before it grants anything,
// and only a lift brings the nodes back.
func TestBrakeWithoutALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, h := braked(t, 12)
		dead := []string{c.leader().cfg.ID}
		for _, id := range c.ids {
			if id != dead[0] && len(dead) < 2 {
				dead = append(dead, id)
			}
		}
		for _, id := range dead {
			h.kill(id)
		}
		left := c.server(c.ids[slices.IndexFunc(c.ids, func(id string) bool { return !slices.Contains(dead, id) })])
		away, reached := c.nodes[0], c.nodes[1:]
		cut := h.addr(away.name)
		h.network.Cut(func(from, to string) bool { return from == cut || to == cut })

		r := setBrake(t, left.server, "smoke in row 3")
		took := c.until("every node that is reached is at its fail-safe cap", 2*time.Second, func() bool { return failSafe(reached...) })
		t.Logf("%d nodes at their fail-safe caps %v after the brake was set", len(reached), took)
		if r.GetGeneration() != 1 || r.GetNotStored() != "" || !away.look().held {
			t.Errorf("answered %v; the node that is cut off holds a lease: %v", r, away.look().held)
		}
		a, err := brakeService{left.server}.AwaitBrake(t.Context(), connect.NewRequest(&headroomv1.AwaitBrakeRequest{Generation: 1, WaitMs: 2000}))
		if err != nil || int(a.Msg.GetHeard()) < len(reached) || !slices.Contains(a.Msg.GetSilent(), away.name) || a.Msg.GetInLog() {
			t.Errorf("awaited %v, %v", a, err)
		}
		if show := showBrake(t, left.server, true); show.GetGossip().GetReason() != "smoke in row 3" || show.GetLog().GetGeneration() != 0 || show.Nodes != nil {
			t.Errorf("shown without a leader: %v", show)
		}
		al, err := clusterService{left.server}.ListAlarms(t.Context(), connect.NewRequest(&headroomv1.ListAlarmsRequest{Stale: true}))
		if err != nil || len(al.Msg.GetAlarms()) != 2 || al.Msg.GetAlarms()[0].GetKey() != "no-leader/cluster" || al.Msg.GetAlarms()[1].GetKey() != "brake-set/"+left.cfg.ID {
			t.Errorf("alarms without a leader: %v, %v", al, err)
		}
		c.until("the node that is cut off runs out", 11*time.Second, func() bool { return failSafe(away) })

		for _, id := range dead {
			c.start(id)
			h.server(id)
		}
		c.leader()
		c.until("the log knows", 5*time.Second, func() bool { return c.newest().Brake.Set == 1 })
		for range 200 {
			if !failSafe(reached...) {
				t.Fatal("a node that was braked holds a lease")
			}
			time.Sleep(100 * time.Millisecond)
		}
		// The one that has never heard of it is granted its fail-safe cap, no more.
		if x := away.look(); x.effective != 80*units.Watt {
			t.Errorf("the node that is cut off holds %v", x.effective)
		}
		h.network.Cut(nil)
		c.until("it hears of it too", 2*time.Minute, func() bool { return failSafe(away) })
		b := c.newest().Brake
		if b.By != "mia" || b.Reason != "smoke in row 3" || !b.Active() {
			t.Errorf("in the log: %+v", b)
		}

		for _, generation := range []uint64{0, 2} {
			if _, err := liftBrake(c, generation, false); connect.CodeOf(err) != connect.CodeAborted {
				t.Errorf("lifted as generation %d: %v", generation, err)
			}
		}
		if out, err := liftBrake(c, 1, true); err != nil || out.GetWhat() != "brake 1 lifted" || !c.newest().Brake.Active() {
			t.Errorf("dry run: %v, %v", out, err)
		}
		if _, err := liftBrake(c, 1, false); err != nil {
			t.Fatal(err)
		}
		c.allHeld(5 * time.Second)
		c.raised()
		if out, err := liftBrake(c, 1, false); err != nil || !out.GetAlready() {
			t.Errorf("lifted twice: %v, %v", out, err)
		}
	})
}

// With a leader the log has it at once, and nodes without gossip go to their
// fail-safe caps by their leases.
func TestBrakeReachesNodesWithoutGossip(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 900*units.Watt)
		h := newChoir(t, c)
		for _, id := range c.ids {
			h.server(id)
		}
		c.addNodes(4)
		l := c.leader()
		c.allHeld(10 * time.Second)
		h.settle(3)
		c.raised()
		follower := c.server(c.ids[(slices.Index(c.ids, l.cfg.ID)+1)%3])
		setBrake(t, follower.server, "")
		took := c.until("every node holds its fail-safe cap", 2*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(n *node) bool { return n.look().effective != 80*units.Watt })
		})
		t.Logf("by leases after %v", took)
		if show := showBrake(t, l.server, false); show.GetNodes() != 4 || len(show.GetBehind()) != 4 || show.GetLog().GetActor() != "mia" {
			t.Errorf("shown: %v", show)
		}
		if _, err := liftBrake(c, 1, false); err != nil {
			t.Fatal(err)
		}
		c.raised()
	})
}

// A node that heard of a brake which no server knows proves it with its heartbeat:
// the leader commits it before it grants anything, and passes it on. A node that
// only claims one is not believed, and an alarm says so.
func TestBrakeTellsItselfByHeartbeat(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c, h := braked(t, 4)
		s, err := h.private.Sign(brake.Message{Generation: 7, Actor: "a server that burned", Reason: "fire"})
		if err != nil {
			t.Fatal(err)
		}
		liar, honest := c.nodes[0], c.nodes[1]
		liar.set(func(n *node) { n.holder.Brake(math.MaxUint64) })
		time.Sleep(5 * time.Second)
		if b := c.newest().Brake; b.Set != 0 || c.held() != 3 {
			t.Errorf("a lie was believed: %+v, %d leases", b, c.held())
		}
		alarms := c.alarms()
		if !slices.ContainsFunc(alarms, func(a *headroomv1.Alarm) bool { return a.GetKey() == "brake-unproven/"+liar.name }) {
			t.Errorf("no alarm about the lie: %v", alarms)
		}
		honest.set(func(n *node) { n.obey(s) })
		c.until("everybody is at the fail-safe cap", 2*time.Second, func() bool { return failSafe(c.nodes...) })
		if b := c.newest().Brake; b.Set != 7 || b.Reason != "fire" {
			t.Errorf("in the log: %+v", b)
		}
		if next := setBrake(t, c.leader().server, "again"); next.GetGeneration() != 8 {
			t.Errorf("the next generation is %d", next.GetGeneration())
		}
	})
}

func (c *cluster) alarms() []*headroomv1.Alarm {
	c.t.Helper()
	r, err := clusterService{c.leader().server}.ListAlarms(context.Background(), connect.NewRequest(&headroomv1.ListAlarmsRequest{}))
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Msg.GetAlarms()
}

// After the lift a replay brakes nobody: no node that was there, none that comes
// later, and no server; and what the gossip's key alone can make does not either.
func TestReplayAfterTheLift(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c, h := braked(t, 4)
		setBrake(t, c.leader().server, "drill")
		c.until("braked", 2*time.Second, func() bool { return failSafe(c.nodes...) })
		old := h.voice("c1").Brake()
		c.until("in the log", 2*time.Second, func() bool { return c.newest().Brake.Set == 1 })
		if _, err := liftBrake(c, 1, false); err != nil {
			t.Fatal(err)
		}
		c.raised()
		late := c.addNode(declared("n77"))
		c.allHeld(10 * time.Second)
		falls := c.watch.fallen()

		h.node(late) // joins the gossip, which still tells of the brake that was lifted
		c.until("the late one has heard the replay", 30*time.Second, func() bool {
			late.mu.Lock()
			defer late.mu.Unlock()
			return late.holder.Memory().Brake == 1
		})
		traitor := h.start("n88", gossip.RoleNode, brake.Signed{})
		h.keep("n88", traitor, func() {})
		c.until("the traitor is a member", time.Minute, func() bool { return len(traitor.Members()) == 9 })
		traitor.SetBrake(old)
		traitor.PassOn(old)
		time.Sleep(30 * time.Second)
		if n := c.watch.fallen(); n != falls || c.held() != 5 {
			t.Errorf("a replay made %d nodes fall, %d hold a lease", n-falls, c.held())
		}
		if b := c.newest().Brake; b.Active() || b.Set != 1 {
			t.Errorf("in the log: %+v", b)
		}
		late.mu.Lock()
		below := late.grants[len(late.grants)-1].g
		late.mu.Unlock()
		if below.BrakeLifted != 1 {
			t.Errorf("granted with brake %d lifted", below.BrakeLifted)
		}
	})
}

// A server that has forgotten every brake sets one that the members take for old:
// it is told so and sets it anew above theirs, by itself.
func TestBrakeOfAForgetfulServer(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c, h := braked(t, 3)
		for range 3 {
			setBrake(t, c.leader().server, "drill")
			c.until("braked", 2*time.Second, func() bool { return failSafe(c.nodes...) })
			top := h.voice("c1").Brake().Generation
			c.until("in the log", 2*time.Second, func() bool { return c.newest().Brake.Set == top })
			if _, err := liftBrake(c, top, false); err != nil {
				t.Fatal(err)
			}
			c.raised()
		}
		// A server of the same key that has neither log nor file, and no time to hear.
		fresh := newServer(c.config("c1"), slog.New(slog.DiscardHandler))
		fresh.brakes.Use(h.keys, &h.private, func([]byte) error { return nil })
		ctx, cancel := context.WithCancel(context.Background())
		h.network.Cut(func(from, to string) bool { return from == h.addr("c9") || to == h.addr("c9") })
		fresh.gossip.Store(h.start("c9", gossip.RoleCoordinator, brake.Signed{}))
		var running sync.WaitGroup
		running.Go(func() { _ = fresh.braking.Follow(ctx) })
		running.Go(func() { _ = fresh.brakes.Keep(ctx) })
		h.keep("c9", fresh.gossip.Load(), func() { cancel(); running.Wait() })
		r := setBrake(t, fresh, "real")
		if r.GetGeneration() != 1 {
			t.Errorf("it knows of generation %d", r.GetGeneration()-1)
		}
		h.network.Cut(nil)
		c.until("the nodes obey it all the same", 10*time.Second, func() bool { return failSafe(c.nodes...) })
		if s := h.voice("n01").Brake(); s.Generation != 4 || s.Reason != "real" {
			t.Errorf("the nodes know %+v", s)
		}
	})
}

// Nothing raises while the brake is set: no release, no admission, no sprint; and
// a server without key or gossip says so instead of braking nobody.
func TestBrakeRefusals(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c, h := braked(t, 2)
		l := c.leader()
		setBrake(t, l.server, "")
		c.until("in the log", 2*time.Second, func() bool { return c.newest().Brake.Set == 1 })
		_, err := nodeService{l.server}.Release(t.Context(), connect.NewRequest(&headroomv1.ReleaseRequest{Node: "n01", MachineId: "machine-n01"}))
		if e := rpc.AsCLI(err, "release", ""); e == nil || e.Code != "braked" || e.Exit != cli.ExitRefused || !strings.Contains(e.Hint, "brake lift") {
			t.Errorf("released: %v", err)
		}
		late := c.addNode(declared("n50"))
		time.Sleep(5 * time.Second)
		if x := late.look(); x.held {
			t.Error("a node was admitted while the brake is set")
		}
		l.brakes.Use(h.keys, nil, func([]byte) error { return nil })
		_, err = brakeService{l.server}.SetBrake(t.Context(), connect.NewRequest(&headroomv1.SetBrakeRequest{}))
		if e := rpc.AsCLI(err, "brake set", ""); e == nil || e.Code != "no-brake-key" || e.Exit != cli.ExitRefused || e.Hint == "" {
			t.Errorf("set without a key: %v", err)
		}
		mute := newServer(c.config("c1"), slog.New(slog.DiscardHandler))
		mute.group, mute.members = l.group, l.members
		mute.brakes.Use(h.keys, &h.private, func([]byte) error { return nil })
		if _, err := (brakeService{mute}).SetBrake(t.Context(), connect.NewRequest(&headroomv1.SetBrakeRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("set where nobody hears of it: %v", err)
		}
		if mute.brakes.Known().Generation != 0 {
			t.Error("a generation was used for a brake that was refused")
		}
	})
}

// A brake is lifted by generation: the entry in the log says who and why.
func TestLiftIsInTheAuditLog(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c, _ := braked(t, 1)
		setBrake(t, c.leader().server, "fire")
		c.until("in the log", 2*time.Second, func() bool { return c.newest().Brake.Set == 1 })
		if _, err := liftBrake(c, 1, false); err != nil {
			t.Fatal(err)
		}
		s := c.newest()
		var said []string
		for _, e := range s.Events {
			if strings.HasPrefix(e.What, "brake") {
				said = append(said, e.Actor+": "+e.What+" ("+e.Reason+")")
			}
		}
		want := []string{"mia: brake 1 set: every node to its fail-safe cap (fire)", "joe: brake 1 lifted (no fire)"}
		if !slices.Equal(said, want) {
			t.Errorf("the audit log says %q", said)
		}
	})
}
