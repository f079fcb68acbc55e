package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/streams"
	"headroom/coordinator/view"
	"headroom/ledger"
	"headroom/units"
)

// An empty cluster is founded with the power tree of its configuration, once.
func TestEmptyClusterIsFounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.leader()
		s := c.newest()
		if d := s.Domains["site/lab"]; d.Budget != 700*units.Watt || len(s.Domains) != 2 {
			t.Errorf("founded with %+v", s.Domains)
		}
		founded := slices.DeleteFunc(slices.Clone(s.Events), func(e ledger.Event) bool { return !strings.Contains(e.What, "founded") })
		if len(founded) != 1 {
			t.Errorf("founded %d times", len(founded))
		}
	})
}

// A cold site comes up at once and inside its budget: every node is admitted at
// its least cap and raised as the read-backs make room.
func TestColdSiteComesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt) // 660 W for four nodes that want 200 W
		c.addNodes(4)
		c.leader()
		c.allHeld(6 * time.Second)
		c.until("the room is used", 10*time.Second, func() bool {
			sum := units.Power(0)
			for _, n := range c.nodes {
				sum += n.look().effective
			}
			return sum > 650*units.Watt
		})
		time.Sleep(30 * time.Second)
		if n := c.watch.fallen(); n != 0 {
			t.Errorf("%d falls to fail-safe with nothing wrong", n)
		}
	})
}

// A site whose nodes do not fit is charged for them, grants none and says why.
func TestNodesThatDoNotFitWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 190*units.Watt) // 150 W: one node at 80 W fits, two do not
		c.addNodes(2)
		c.leader()
		time.Sleep(10 * time.Second)
		if c.held() != 0 {
			t.Error("a lease in a domain that is short")
		}
		if w := c.nodes[0].look().waiting; !strings.Contains(w, "over its budget") {
			t.Errorf("the node was told %q", w)
		}
		if s := c.newest(); s.Totals()["rack/r1"].Reserved != 160*units.Watt {
			t.Errorf("reserved %v", s.Totals()["rack/r1"].Reserved)
		}
	})
}

// P2: leases are renewed every second, and each counts from the sending of the heartbeat it names.
func TestLeasesAreRenewedAndCountFromSending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(1)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(20 * time.Second)
		n := c.nodes[0]
		var last uint64
		renewals := 0
		for _, g := range n.look().grants {
			if g.g.Duration != 10*time.Second || g.g.Heartbeat < last {
				t.Errorf("grant %+v after heartbeat %d", g.g, last)
			}
			if g.g.Heartbeat > last {
				renewals++
			}
			last = g.g.Heartbeat
		}
		if renewals < 19 {
			t.Errorf("%d renewals in 20 s", renewals)
		}
		// The node falls silent right after a heartbeat: its lease ends 10 s after
		// that sending, whatever it still receives.
		n.set(func(n *node) { n.mute = true })
		from := time.Now()
		c.until("the lease has run out", 11*time.Second, func() bool { return !n.look().held })
		if took := time.Since(from); took > 10*time.Second+100*time.Millisecond {
			t.Errorf("the lease ran %v after the last heartbeat", took)
		}
	})
}

// Lesson 15: P3: a heartbeat is answered only by an entry that was appended after it
// was heard.
func TestNoLeaseWithoutCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(2)
		leader := c.leader()
		c.allHeld(5 * time.Second)
		// The leader is cut off from the other servers and still hears every node.
		for _, n := range c.nodes {
			n.set(func(n *node) {
				for _, id := range c.ids {
					n.cutoff[id] = id != leader.cfg.ID
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		c.isolate(leader.cfg.ID)
		at := time.Now()
		time.Sleep(30 * time.Second)
		for _, n := range c.nodes {
			h := n.look()
			last := h.grants[len(h.grants)-1]
			if last.at.Sub(at) > 100*time.Millisecond {
				t.Errorf("%s was granted %v after its leader had lost the others", n.name, last.at.Sub(at))
			}
			if h.held || h.effective != 80*units.Watt {
				t.Errorf("%s holds %v, lease %v", n.name, h.effective, h.held)
			}
		}
		if leader.requests.leads() {
			t.Error("the cut-off server still runs a loop")
		}
	})
}

// A leader that is cut off loses its nodes to the new one; none falls to its fail-safe cap.
func TestNodesGoToTheNewLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(4)
		old := c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(5 * time.Second)
		c.isolate(old.cfg.ID)
		next := c.leader(old.cfg.ID)
		time.Sleep(20 * time.Second)
		for _, n := range c.nodes {
			h := n.look()
			if g := h.grants[len(h.grants)-1]; g.from != next.cfg.ID || !h.held {
				t.Errorf("%s: newest grant from %s, held %v", n.name, g.from, h.held)
			}
		}
		c.heal(old.cfg.ID)
		time.Sleep(20 * time.Second)
		if n := c.watch.fallen(); n != 0 {
			t.Errorf("%d falls to fail-safe", n)
		}
	})
}

// The leader is killed again and again: a new one grants within 3 s, no node
// falls to its fail-safe cap, nothing is ever over budget (the judge looks on).
func TestFailover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(4)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(10 * time.Second)
		for range 10 {
			old := c.leader()
			c.kill(old.cfg.ID)
			killed := time.Now()
			took := c.until("a lease from a new leader for each node", 3*time.Second, func() bool {
				for _, n := range c.nodes {
					g := n.look().grants
					if last := g[len(g)-1]; last.at.Before(killed) || last.from == old.cfg.ID {
						return false
					}
				}
				return true
			})
			t.Logf("granted after %v", took)
			c.start(old.cfg.ID)
			time.Sleep(5 * time.Second)
		}
		if n := c.watch.fallen(); n != 0 {
			t.Errorf("%d falls to fail-safe", n)
		}
	})
}

// P4: a node that is lost runs out to its fail-safe cap but keeps its charge, and
// the others are not raised into it; it is granted again when it comes back.
func TestLostNodeKeepsItsCharge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 500*units.Watt)
		c.addNodes(3)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(10 * time.Second)
		lost := c.nodes[2]
		before := c.newest().Nodes[lost.name].Charge()
		others := []units.Power{c.nodes[0].look().cap, c.nodes[1].look().cap}
		lost.vanish(true)
		time.Sleep(time.Minute)
		if h := lost.look(); h.held || h.effective != 80*units.Watt {
			t.Errorf("the lost node holds %v, lease %v", h.effective, h.held)
		}
		if now := c.newest().Nodes[lost.name].Charge(); now != before {
			t.Errorf("its charge went %v -> %v", before, now)
		}
		for i, was := range others {
			if now := c.nodes[i].look().cap; now > was {
				t.Errorf("%s was raised %v -> %v into the lost node's charge", c.nodes[i].name, was, now)
			}
		}
		m := listed(t, c, lost.name)
		if m.GetState() != view.StateLost || m.LeaseMs != nil || m.PowerUw != nil {
			t.Errorf("listed as %v", m)
		}
		for domain, want := range map[string]int{"": 3, "site/lab": 3, "rack/r1": 3, "rack/r9": -1} {
			r, err := clusterService{c.leader().server}.ListNodes(context.Background(), connect.NewRequest(&headroomv1.ListNodesRequest{Domain: domain}))
			if (err != nil) != (want < 0) || err == nil && len(r.Msg.GetNodes()) != want {
				t.Errorf("below %q: %v, %v; want %d", domain, r, err, want)
			}
		}
		lost.vanish(false)
		c.allHeld(5 * time.Second)
	})
}

func listed(t *testing.T, c *cluster, name string) *headroomv1.Node {
	t.Helper()
	r, err := clusterService{c.leader().server}.ListNodes(context.Background(), connect.NewRequest(&headroomv1.ListNodesRequest{Node: name}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg.GetNodes()[0]
}

func setBudget(ctx context.Context, c *cluster, to units.Power) (*headroomv1.SetBudgetResponse, error) {
	r, err := clusterService{c.leader().server}.SetBudget(ctx, connect.NewRequest(&headroomv1.SetBudgetRequest{BudgetUw: int64(to), ConfirmUw: int64(to)}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// P5: a cut is pushed the moment it has committed, not at the next tick, and is
// confirmed by read-back.
func TestCutIsPushedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(4)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(10 * time.Second)
		for i := range 8 { // at every phase of the tick
			to := units.Power(600-10*i) * units.Watt
			at := time.Now()
			r, err := setBudget(t.Context(), c, to)
			if err != nil {
				t.Fatal(err)
			}
			took := c.until("the cut has reached the nodes", time.Second, func() bool {
				sum := 40 * units.Watt
				for _, n := range c.nodes {
					sum += n.look().cap
				}
				return sum <= to
			})
			if took > 200*time.Millisecond {
				t.Errorf("cut %d reached the nodes after %v", i, took)
			}
			a, err := clusterService{c.leader().server}.AwaitBudget(t.Context(), connect.NewRequest(&headroomv1.AwaitBudgetRequest{
				Revision: r.GetMeta().GetRevision(), WaitMs: 5000,
			}))
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Msg.GetConfirmations()) != len(c.nodes) {
				t.Errorf("%d confirmations", len(a.Msg.GetConfirmations()))
			}
			for _, x := range a.Msg.GetConfirmations() {
				if x.AfterMs == nil || x.GetAfterMs() > 500 {
					t.Errorf("cut %d: %s confirmed after %v ms", i, x.GetNode(), x.GetAfterMs())
				}
			}
			if late := time.Since(at); late > 2*time.Second {
				t.Errorf("cut %d was confirmed after %v", i, late)
			}
			time.Sleep(3*time.Second + time.Duration(i)*130*time.Millisecond)
		}
	})
}

// A cut is confirmed by read-backs that are newer than it, of all nodes that may hold more than
// it leaves them: also of one that an earlier cut is still on its way to.
func TestCutIsConfirmedByNewerReadBacks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(3)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(10 * time.Second)
		c.nodes[1].set(func(n *node) { n.takes = 2 * time.Second })
		if _, err := setBudget(t.Context(), c, 280*units.Watt); err != nil { // 40 W unmanaged, 80 W for each node
			t.Fatal(err)
		}
		again, err := clusterService{c.leader().server}.SetBudget(t.Context(), connect.NewRequest(&headroomv1.SetBudgetRequest{
			BudgetUw: int64(280 * units.Watt), UntilUs: time.Now().Add(time.Hour).UnixMicro(),
		}))
		if err != nil {
			t.Fatal(err)
		}
		a, err := clusterService{c.leader().server}.AwaitBudget(t.Context(), connect.NewRequest(&headroomv1.AwaitBudgetRequest{
			Revision: again.Msg.GetMeta().GetRevision(), WaitMs: 5000,
		}))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Msg.GetConfirmations()) == 0 {
			t.Error("nobody is waited for")
		}
		for _, n := range c.nodes {
			if h := n.look(); h.effective > 80*units.Watt {
				t.Errorf("confirmed, and %s holds %v", n.name, h.effective)
			}
		}
	})
}

// A caller who hangs up keeps no cut from the nodes.
func TestCutOfACallerWhoHangsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(2)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(10*time.Second + 400*time.Millisecond)
		l := c.leader()
		d := l.requests.loop.Load()
		ctx, hangUp := context.WithCancel(t.Context())
		r := &headroomv1.SetBudgetRequest{BudgetUw: int64(250 * units.Watt)}
		cut, _ := budgetRequest(ctx, r, func(*ledger.State) error { hangUp(); return nil })
		if a, err := d.Request(ctx, cut); a.Err != nil || err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(a.Err, err)
		}
		c.until("the cut has reached the nodes", 200*time.Millisecond, func() bool {
			return c.nodes[0].look().cap+c.nodes[1].look().cap <= 210*units.Watt
		})
	})
}

// P1: a raise waits for the acknowledgement of the lower that pays for it. The
// node that has to give is slow, and meanwhile the other one gets nothing.
func TestRaiseWaitsForTheLowerThatPays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 330*units.Watt) // 290 W for two nodes
		c.addNodes(1)
		rich := c.nodes[0]
		c.leader()
		c.until("the first node has its most", 20*time.Second, func() bool { return rich.look().effective == 200*units.Watt })
		time.Sleep(2 * time.Second)
		rich.set(func(n *node) { n.takes = 4 * time.Second })
		poor := c.addNode(declared("poor-one"))
		c.until("the first node was told to give", 10*time.Second, func() bool { return rich.look().cap < 200*units.Watt })
		waited := c.until("the first node gives", 5*time.Second, func() bool {
			p := poor.look() // before the other, which may give between the two looks
			gave := rich.look().effective < 200*units.Watt
			if p.cap > 90*units.Watt && !gave {
				t.Fatalf("raised to %v before the other had given", p.cap)
			}
			return gave
		})
		if waited < 3*time.Second {
			t.Errorf("the first node gave after %v", waited)
		}
		c.until("the second node was raised", 5*time.Second, func() bool { return poor.look().effective > 130*units.Watt })
	})
}

// A node name belongs to one machine: another one is refused, by the stream that
// is open and by the log, and nothing changes.
func TestNameOfAnotherMachine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(1)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(3 * time.Second)
		before := c.newest().Revision
		thief := declared("n01")
		thief.MachineId, thief.ProcessId = "another", 7
		for _, id := range c.ids {
			_, err := nodeService{c.server(id).server}.welcome(thief, time.Time{})
			if connect.CodeOf(err) != connect.CodeAlreadyExists {
				t.Errorf("%s: %v", id, err)
			}
		}
		c.nodes[0].vanish(true)
		time.Sleep(20 * time.Second)
		if _, err := (nodeService{c.leader().server}).welcome(thief, time.Time{}); connect.CodeOf(err) != connect.CodeAlreadyExists {
			t.Errorf("with the owner lost: %v", err)
		}
		if now := c.newest(); now.Revision != before || now.Nodes["n01"].MachineID != "machine-n01" {
			t.Errorf("something changed: revision %d -> %d", before, now.Revision)
		}
	})
}

// One identity holds one live stream: a copy of the machine (the same machine id,
// another boot) is refused while the first is heard, and taken afterwards, as
// after a reboot.
func TestCopyOfAMachine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		c.addNodes(1)
		c.leader()
		c.allHeld(5 * time.Second)
		twin := declared("n01")
		twin.BootId, twin.ProcessId = "another boot", 7
		if _, err := (nodeService{c.leader().server}).welcome(twin, time.Time{}); connect.CodeOf(err) != connect.CodeAlreadyExists {
			t.Errorf("the copy: %v", err)
		}
		c.nodes[0].vanish(true)
		time.Sleep(4 * time.Second) // longer than a stream counts as live
		if _, err := (nodeService{c.leader().server}).welcome(twin, time.Time{}); err != nil {
			t.Errorf("after a reboot: %v", err)
		}
		hb := &headroomv1.Heartbeat{Number: 1}
		p := c.nodes[0].links["c1"]
		if err := (nodeService{p.server.server}).heartbeat(t.Context(), p.s, c.nodes[0].hello, hb); connect.CodeOf(err) != connect.CodeAborted {
			t.Errorf("the stream that was replaced: %v", err)
		}
	})
}

// A powerd that was restarted is charged and granted anew; a lease that answers
// the earlier process reaches nobody.
func TestRestartedPowerd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(1)
		c.leader()
		c.allHeld(5 * time.Second)
		time.Sleep(5 * time.Second)
		old := c.nodes[0]
		old.end()
		again := declared("n01")
		again.ProcessId = 4242
		c.mu.Lock()
		c.nodes = nil
		c.mu.Unlock()
		n := c.addNode(again)
		c.allHeld(4 * time.Second)
		for _, g := range n.look().grants {
			if g.g.Process != 4242 {
				t.Errorf("took a lease of process %d", g.g.Process)
			}
		}
	})
}

// Followers say who leads, and a read that may be old needs no leader.
func TestFollowersNameTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		l := c.leader()
		time.Sleep(time.Second)
		for _, id := range c.ids {
			s := c.server(id)
			_, err := clusterService{s.server}.ListDomains(t.Context(), connect.NewRequest(&headroomv1.ListDomainsRequest{}))
			if (err == nil) != (id == l.cfg.ID) {
				t.Errorf("%s answered %v", id, err)
			}
			x, _ := s.streams.Nodes.Open(streams.Origin{Node: "asks", Machine: "m"})
			named := (<-x.Box()).GetLeader().GetId()
			s.streams.Nodes.Close(x)
			if named != l.cfg.ID {
				t.Errorf("%s tells nodes that %q leads", id, named)
			}
		}
		for _, id := range c.ids {
			if id != l.cfg.ID {
				c.kill(id)
			}
		}
		time.Sleep(5 * time.Second)
		svc := clusterService{l.server}
		if _, err := svc.ListDomains(t.Context(), connect.NewRequest(&headroomv1.ListDomainsRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("without a quorum: %v", err)
		}
		r, err := svc.ListDomains(t.Context(), connect.NewRequest(&headroomv1.ListDomainsRequest{Stale: true}))
		if err != nil || r.Msg.GetMeta().GetConsistency() != "stale" || len(r.Msg.GetDomains()) != 2 {
			t.Errorf("stale read: %v %v", r, err)
		}
	})
}
