// Claims: a brake that gossip brings drops the node to its fail-safe cap with no
// leader, at once and before it is on disk; it survives a restart and only a lease
// that says it is lifted ends it; replays, forgeries and other clusters' brakes
// change nothing.
package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/agent/records"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/gossip"
	"headroom/gossip/brake"
	"headroom/internal/rpc"
	"headroom/units"
)

// talk is a cluster's gossip beside a node: its key, and the coordinators' key of
// the brake.
type talk struct {
	t       *testing.T
	keyFile string
	key     []byte
	private brake.PrivateKey
	keys    brake.Keys
	public  string
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	dir := t.TempDir()
	s := &talk{t: t, keyFile: filepath.Join(dir, "gossip.key"), public: filepath.Join(dir, "brake.pub")}
	text, err := gossip.NewKey()
	if err == nil {
		err = os.WriteFile(s.keyFile, []byte(text), 0o600)
	}
	if err == nil {
		var keys gossip.Keys
		if keys, err = gossip.LoadKeys(s.keyFile); err == nil {
			s.key = keys[0]
		}
	}
	if err == nil {
		err = brake.WriteKey(filepath.Join(dir, "brake.key"), s.public)
	}
	if err == nil {
		s.private, err = brake.LoadPrivateKey(filepath.Join(dir, "brake.key"))
	}
	if err == nil {
		s.keys, err = brake.LoadKeys(s.public)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// member is a coordinator's gossip, without the coordinator.
func (s *talk) member(name string, join ...string) *gossip.Gossip {
	s.t.Helper()
	g, err := gossip.Start(gossip.Config{
		Name: name, Role: gossip.RoleCoordinator, RPC: "127.0.0.1:1", Bind: "127.0.0.1:0", Key: s.key, Join: join, BrakeKeys: s.keys,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = g.Close() })
	return g
}

// config makes a node a member.
func (s *talk) config(cfg config.Config, join string) config.Config {
	cfg.Gossip = config.Gossip{Bind: "127.0.0.1:0", Join: []string{join}, KeyFile: s.keyFile}
	cfg.Brake.PublicKeyFile = s.public
	return cfg
}

func (s *talk) signed(generation uint64) brake.Signed {
	s.t.Helper()
	b, err := s.private.Sign(brake.Message{Generation: generation, At: time.Now(), Actor: "mia", Reason: "smoke in row 3"})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func seesTwo(g *gossip.Gossip) func() bool {
	return func() bool { return len(g.Members()) == 2 }
}

// braked reports whether the node tells a brake of a generation, and holds no lease.
func (c *coordinator) braked(generation uint64) bool {
	h := c.last()
	return h.GetBrakeGeneration() == generation && h.GetHolding().GetState() == headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE
}

// count is how many heartbeats have come.
func (c *coordinator) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.beats)
}

// later waits for a few more heartbeats, each of which is answered with a lease.
func (c *coordinator) later(t *testing.T) {
	t.Helper()
	n := c.count()
	waitFor(t, "a few more heartbeats", func() bool { return c.count() >= n+3 })
}

func TestBrakeThroughARestart(t *testing.T) {
	t.Parallel()
	l, c, s := newLab(t), newCoordinator(t), newTalk(t)
	c.refuse = rpc.Refuse(5, "braked", 6, "the brake is set", "lift it")
	first := s.member("c1")
	cfg := s.config(l.config(c.addr), first.Addr())
	r := run(t, cfg)
	waitFor(t, "a lease is held", c.acknowledged)
	waitFor(t, "it is a member", seesTwo(first))

	first.SetBrake(s.signed(4))
	waitFor(t, "the fail-safe cap is written", func() bool { return failSafeLong(l.long()) })
	waitFor(t, "it is told", func() bool { return c.braked(4) && hasItem(c.last(), "brake-set") })
	if proof := c.last().GetBrake(); !bytes.Equal(proof, first.Brake().Bytes()) {
		t.Errorf("the heartbeat proves %x", proof)
	}
	c.later(t) // the leader has not heard of it and grants on
	if !c.braked(4) || !failSafeLong(l.long()) {
		t.Errorf("took a lease below the brake: %v, limit %v", c.last().GetHolding(), l.long())
	}
	waitFor(t, "the setter has its answer", func() bool { return first.Told().Heard == 1 })
	status := l.status(t)
	if b := status.GetBrake(); !b.GetSet() || b.GetGeneration() != 4 || b.GetActor() != "mia" || b.GetReason() != "smoke in row 3" || !b.GetStored() {
		t.Errorf("status tells %v", b)
	}

	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// Nobody else has heard of it: whoever comes now hears it from the node.
	next := s.member("c2")
	c.set(func() { c.beats = nil })
	run(t, s.config(l.config(c.addr), next.Addr()))
	waitFor(t, "it remembers", func() bool { return c.braked(4) && hasItem(c.last(), "brake-set") })
	waitFor(t, "it tells others", func() bool { return next.Brake().Generation == 4 })
	c.later(t)
	if !c.braked(4) || !failSafeLong(l.long()) {
		t.Errorf("a restart forgot the brake: %v, limit %v", c.last().GetHolding(), l.long())
	}

	c.set(func() { c.lifted = 4 })
	waitFor(t, "the lift is taken", func() bool { return c.acknowledged() && l.long() > 100*units.Watt })
	waitFor(t, "it is told no more", func() bool { h := c.last(); return len(h.GetBrake()) == 0 && !hasItem(h, "brake-set") })
	if h := c.last(); h.GetBrakeGeneration() != 4 {
		t.Errorf("forgot the generation: %d", h.GetBrakeGeneration())
	}

	// Replays: by gossip, of the same and of older ones.
	next.SetBrake(s.signed(3))
	s.member("c3", next.Addr())
	c.later(t)
	if h := c.last(); !c.acknowledged() || h.GetBrakeGeneration() != 4 {
		t.Errorf("a replay was obeyed: %v", h)
	}
	next.SetBrake(s.signed(5))
	waitFor(t, "a new one is obeyed", func() bool { return c.braked(5) && failSafeLong(l.long()) })
}

// A node that was away while a brake was set and lifted has a lease that says so;
// the replay of that brake reaches it, is stored, and ends nothing.
func TestReplayReachesANodeThatWasAway(t *testing.T) {
	t.Parallel()
	l, c, s := newLab(t), newCoordinator(t), newTalk(t)
	g := s.member("c1")
	cfg := s.config(l.config(c.addr), g.Addr())
	c.lifted = 2
	run(t, cfg)
	waitFor(t, "a lease is held", c.acknowledged)
	waitFor(t, "it is a member", seesTwo(g))
	g.SetBrake(s.signed(2))
	waitFor(t, "it has heard the replay", func() bool { return c.last().GetBrakeGeneration() == 2 })
	c.later(t)
	c.mu.Lock()
	for _, h := range c.beats {
		if h.GetBrakeGeneration() == 2 && h.GetHolding().GetState() != headroomv1.LeaseState_LEASE_STATE_HELD {
			t.Errorf("the replay of a lifted brake ended the lease: %v", h.GetHolding())
		}
	}
	c.mu.Unlock()
	waitFor(t, "it is stored", func() bool { b := l.status(t).GetBrake(); return b.GetStored() && !b.GetSet() })
	if failSafeLong(l.long()) {
		t.Errorf("limit %v after the replay", l.long())
	}
	c.set(func() { c.lifted = 1 }) // a log that began anew and knows less
	waitFor(t, "leases below it are refused", func() bool { return l.status(t).GetCounters().GetRefusals() > 0 })
	waitFor(t, "it proves the brake to that log", func() bool { return g.Brake().Is(c.last().GetBrake()) })
}

// With the disk full the brake is obeyed at once, and that it is not stored is said
// until it is.
func TestBrakeWithAFullDisk(t *testing.T) {
	t.Parallel()
	l, c, s := newLab(t), newCoordinator(t), newTalk(t)
	g := s.member("c1")
	cfg := s.config(l.config(c.addr), g.Addr())
	d := &fullDisk{Disk: statedir.OS{Dir: cfg.StateDir}, full: map[string]bool{}}
	stop := runOn(t, cfg, d)
	waitFor(t, "a lease is held", c.acknowledged)
	waitFor(t, "it is a member", seesTwo(g))
	d.set(statedir.MemoryFile, true)
	g.SetBrake(s.signed(1))
	waitFor(t, "it is obeyed", func() bool { return failSafeLong(l.long()) && c.braked(1) })
	waitFor(t, "it is said", func() bool { return hasItem(c.last(), "brake-not-stored") && hasItem(c.last(), "brake-set") })
	c.later(t)
	if !hasItem(c.last(), "brake-not-stored") {
		t.Error("said no more though the disk is full")
	}
	d.set(statedir.MemoryFile, false)
	waitFor(t, "it is stored", func() bool { return !hasItem(c.last(), "brake-not-stored") && l.status(t).GetBrake().GetStored() })
	var r records.State
	data, err := os.ReadFile(l.state(statedir.MemoryFile))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil || r.Brake != 1 || !g.Brake().Is(r.BrakeMessage) {
		t.Errorf("on disk: %+v, %v", r, err)
	}
	stop()
}

// Whoever has the gossip's key alone brakes nobody, and it is counted; a node
// without the public key takes no part, which the check says.
func TestForgedBrake(t *testing.T) {
	t.Parallel()
	l, c, s := newLab(t), newCoordinator(t), newTalk(t)
	other := newTalk(t)
	other.key = s.key // a member of this gossip that is no coordinator
	traitor := other.member("n99")
	cfg := s.config(l.config(c.addr), traitor.Addr())
	run(t, cfg)
	waitFor(t, "a lease is held", c.acknowledged)
	waitFor(t, "it is a member", seesTwo(traitor))
	traitor.SetBrake(other.signed(7))
	waitFor(t, "it is counted", func() bool { return l.status(t).GetBrakeDrops().GetForged() > 0 })
	c.later(t)
	if h := c.last(); h.GetBrakeGeneration() != 0 || !c.acknowledged() {
		t.Errorf("a forgery was obeyed: %v", h)
	}
}
