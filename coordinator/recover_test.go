// Claims: a restored or recovered group begins a new incarnation above all that
// nodes have heard of, raises nothing before every node has shown what it holds,
// and the rest of the old group has no say any more; whenever the work is
// interrupted, the folder holds the old state or the new one.
package coordinator

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/members"
	"headroom/coordinator/recovery"
	"headroom/coordinator/snapshot"
	"headroom/ledger"
	"headroom/units"

	"headroom/internal/testkit"
)

// recoveryOf is a recovery of the test cluster on c1, with the given members.
func (c *cluster) recoveryOf(verb string, site units.Power, ids ...string) recovery.Recovery {
	b := recovery.Recovery{
		Server: c.config("c1").Stopped(), Verb: verb, Budgets: map[string]units.Power{"site/lab": site, "rack/r1": site}, Actor: "mia", Reason: "a drill",
		RequestID: "request-" + verb, Now: time.Now(), LongestLease: 10 * time.Second,
	}
	for _, id := range ids {
		b.Servers = append(b.Servers, members.Server{ID: id, RPC: "rpc-" + id, Raft: "raft-" + id})
	}
	return b
}

// replant gives c1 a new log in memory that begins with the state, as restore does on a disk.
func (c *cluster) replant(b recovery.Recovery, h snapshot.Header, state []byte) {
	c.t.Helper()
	st, err := ledger.Restore(state)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := b.Renew(st); err != nil {
		c.t.Fatal(err)
	}
	renewed, err := st.Snapshot()
	if err != nil {
		c.t.Fatal(err)
	}
	c.disks["c1"] = memory()
	cfg := consensus.Config{
		ID: "c1", Servers: []consensus.Server{{ID: "c1", Address: b.Server.Raft}}, Stores: c.disks["c1"], Fatal: func(error) {}, Logger: slog.New(slog.DiscardHandler),
	}
	if err := consensus.Plant(cfg, consensus.Seed{State: renewed, Term: max(1, h.Term), Index: h.Index + 1, Founders: b.Server.Founders}); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.seenIn, c.seen = 0, 0 // the new log counts, though it is shorter
	c.mu.Unlock()
}

// killAll kills every server.
func (c *cluster) killAll() {
	for _, id := range c.ids {
		if c.server(id) != nil {
			c.kill(id)
		}
	}
}

// incarnationOf is the highest incarnation that any node was granted in.
func (c *cluster) granted() (top uint64) {
	for _, n := range c.nodes {
		for _, g := range n.look().grants {
			top = max(top, g.g.Stamp.Epoch.Incarnation)
		}
	}
	return top
}

// A snapshot of before a raise is restored while nodes still hold what came
// after it, and once more when they have been granted in the restored
// incarnation, and a third time by a server whose clock is wrong: each time the new leader's epoch is above all that nodes know,
// nothing is raised before all are proven, and the others join it empty.
func TestRestoreWhileNodesHoldLaterLeases(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 500*units.Watt)
		c.addNodes(3)
		c.leader()
		c.allHeld(6 * time.Second)
		time.Sleep(10 * time.Second)
		h, state, err := (memberService{c.leader().server}).snapshotNow()
		if err != nil {
			t.Fatal(err)
		}
		for _, domain := range []string{"site/lab", "rack/r1"} {
			req := &headroomv1.SetBudgetRequest{Domain: domain, BudgetUw: int64(650 * units.Watt), ConfirmUw: int64(650 * units.Watt)}
			if _, err := (clusterService{c.leader().server}).SetBudget(t.Context(), connect.NewRequest(req)); err != nil {
				t.Fatal(err)
			}
		}
		c.until("the nodes hold more than the snapshot knows", 30*time.Second, func() bool {
			sum := 40 * units.Watt
			for _, n := range c.nodes {
				sum += n.look().effective
			}
			return sum > 600*units.Watt
		})
		for round := range 3 {
			before := c.granted()
			c.killAll()
			time.Sleep(2 * time.Second) // the leases still run
			b := c.recoveryOf("restore", 500*units.Watt, "c1", "c2", "c3")
			if round == 2 {
				b.Now = time.Unix(0, 0) // the clock is wrong: only the nodes know what came before
			}
			c.replant(b, h, state)
			c.start("c1")
			raised := false
			c.until("every node is proven and granted", 80*time.Second, func() bool {
				s := c.newest()
				if s.Restored {
					for _, n := range c.nodes {
						known := s.Nodes[n.name]
						raised = raised || known.Target > 200*units.Watt || known.Unproven && known.Charge() < known.Rated
					}
				}
				return !s.Restored && c.granted() > before && c.held() == 3
			})
			if raised {
				t.Errorf("round %d: raised, or charged too little, before all was proven", round)
			}
			c.await("c2")
			c.await("c3")
			c.seated("c1", "c2", "c3")
			time.Sleep(10 * time.Second)
			if s := c.newest(); s.Epoch.Incarnation <= before || s.Domains["site/lab"].Budget != 500*units.Watt {
				t.Errorf("round %d: incarnation %d after %d, budget %v", round, s.Epoch.Incarnation, before, s.Domains["site/lab"].Budget)
			}
			c.allHeld(10 * time.Second)
		}
	})
}

// The survivor of three goes on alone in a new incarnation. When the two lost ones
// come back after all, they are a majority of the old group: no node listens to
// them, and they end as soon as they reach the survivor.
func TestLostOnesComeBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 500*units.Watt)
		c.addNodes(2)
		c.leader()
		c.allHeld(6 * time.Second)
		time.Sleep(5 * time.Second)
		h, state, err := (memberService{c.leader().server}).snapshotNow()
		if err != nil {
			t.Fatal(err)
		}
		c.killAll()
		c.replant(c.recoveryOf("recover", 500*units.Watt, "c1"), h, state)
		c.start("c1")
		c.until("the survivor grants", time.Minute, func() bool { return c.held() == 2 && c.granted() > 1 })

		c.isolate("c1") // from the other servers only
		c.start("c2")
		c.start("c3")
		c.isolate("c1")
		old := c.leader("c1")
		time.Sleep(10 * time.Second)
		r, err := clusterService{old.server}.GetStatus(t.Context(), connect.NewRequest(&headroomv1.GetStatusRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Msg.GetAlarms(), func(a *headroomv1.HealthItem) bool { return a.GetCode() == "outgrown" && a.GetHint() != "" }) {
			t.Errorf("the old group's alarms: %v", r.Msg.GetAlarms())
		}
		if old.members.Roster.Incarnation() != 1 {
			t.Errorf("the old group went on to incarnation %d", old.members.Roster.Incarnation())
		}
		for _, n := range c.nodes {
			last := n.look().grants
			if g := last[len(last)-1]; g.from != "c1" || !n.look().held {
				t.Errorf("%s took its newest lease from %s", n.name, g.from)
			}
		}
		c.heal("c1")
		c.until("the lost ones have ended", time.Minute, func() bool { return c.expelledWith("c2") != nil && c.expelledWith("c3") != nil })
		if e := c.expelledWith("c2"); !errors.Is(e, members.ErrExpelled) || !strings.Contains(e.Error(), "began without this server") {
			t.Errorf("c2 ended with %v", e)
		}
		if c.expelledWith("c1") != nil {
			t.Errorf("the survivor ended: %v", c.expelledWith("c1"))
		}
	})
}
