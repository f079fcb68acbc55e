// Claims: a restored or recovered group begins a new incarnation above all that
// nodes have heard of, raises nothing before every node has shown what it holds,
// and the rest of the old group has no say any more; whenever the work is
// interrupted, the folder holds the old state or the new one.
package coordinator

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/coordinator/members"
	"headroom/coordinator/snapshot"
	"headroom/coordinator/statemachine"

	"connectrpc.com/connect"
	"github.com/hashicorp/raft"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

// rebirthOf is a Rebirth of the test cluster on c1, with the given members.
func (c *cluster) rebirthOf(verb string, site units.Power, members ...string) Rebirth {
	b := Rebirth{
		Config: c.config("c1"), Verb: verb, Budgets: map[string]units.Power{"site/lab": site, "rack/r1": site}, Actor: "mia", Reason: "a drill",
		RequestID: "request-" + verb, Now: time.Now(), LongestLease: 10 * time.Second,
	}
	for _, id := range members {
		b.Servers = append(b.Servers, ServerConfig{ID: id, RPC: "rpc-" + id, Raft: "raft-" + id})
	}
	return b
}

// replant gives c1 a new log in memory that begins with the state, as restore does on a disk.
func (c *cluster) replant(b Rebirth, h snapshot.Header, state []byte) {
	c.t.Helper()
	st, err := ledger.Restore(state)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := b.renew(st); err != nil {
		c.t.Fatal(err)
	}
	renewed, err := st.Snapshot()
	if err != nil {
		c.t.Fatal(err)
	}
	c.disks["c1"] = memory()
	cfg := b.consensusConfig("")
	cfg.Stores = c.disks["c1"]
	if err := consensus.Plant(cfg, consensus.Seed{State: renewed, Term: max(1, h.Term), Index: h.Index + 1, Founders: b.Config.peers()}); err != nil {
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
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 500*units.Watt)
		c.addNodes(3)
		c.leader()
		c.allHeld(6 * time.Second)
		time.Sleep(10 * time.Second)
		h, state, err := c.leader().snapshotNow()
		if err != nil {
			t.Fatal(err)
		}
		for _, domain := range []string{"site/lab", "rack/r1"} {
			req := &headroomv1.SetBudgetRequest{Domain: domain, BudgetUw: int64(650 * units.Watt)}
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
			b := c.rebirthOf("restore", 500*units.Watt, "c1", "c2", "c3")
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
		h, state, err := c.leader().snapshotNow()
		if err != nil {
			t.Fatal(err)
		}
		c.killAll()
		c.replant(c.rebirthOf("recover", 500*units.Watt, "c1"), h, state)
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
		if e := c.expelledWith("c2"); !errors.Is(e, members.ErrExpelled) || !strings.Contains(e.Error(), "begun without this server") {
			t.Errorf("c2 ended with %v", e)
		}
		if c.expelledWith("c1") != nil {
			t.Errorf("the survivor ended: %v", c.expelledWith("c1"))
		}
	})
}

// onDisk is a stopped server of one on a real folder, and the Rebirth of it.
func onDisk(t *testing.T, parent string) Rebirth {
	t.Helper()
	cfg := Config{
		ID: "c1", StateDir: filepath.Join(parent, "state"), Servers: []ServerConfig{{ID: "c1", RPC: "127.0.0.1:1", Raft: "127.0.0.1:2"}},
	}
	b := Rebirth{
		Config: cfg, Verb: "restore", Budgets: map[string]units.Power{"site/lab": 300 * w, "rack/r1": 200 * w}, Servers: cfg.Servers,
		Actor: "mia", Reason: "a drill", RequestID: "r1", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	h, st := savedState(t)
	old := b
	old.RequestID, old.Now = "r0", b.Now.Add(-time.Hour)
	old.Budgets = map[string]units.Power{"site/lab": 700 * w, "rack/r1": 600 * w}
	if _, err := old.Restore(h, st); err != nil {
		t.Fatal(err)
	}
	return b
}

// savedState is a state with a power tree and a node, and its header.
func savedState(t *testing.T) (snapshot.Header, *ledger.State) {
	t.Helper()
	m := statemachine.New()
	for _, c := range []ledger.Command{
		{Lead: &ledger.Lead{Server: "c1"}},
		{Found: &ledger.Found{Domains: ledger.PlainDomains(Config{Site: []DomainConfig{
			{Name: "site/lab", Budget: 900 * w}, {Name: "rack/r1", Parent: "site/lab", Budget: 800 * w},
		}}.domains())}},
		{Tick: &ledger.Tick{Seen: []ledger.Sighting{{
			Node: "n1", MachineID: "m1", Process: 1, Domain: "rack/r1", Rated: 250 * w, Floor: 60 * w, Max: 200 * w, FailSafe: 80 * w, Weight: 1, Controlled: true,
		}}}},
		{Tick: &ledger.Tick{Admit: []string{"n1"}}},
	} {
		c.Epoch.Incarnation, c.Epoch.Term = 1, 3
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := m.Apply(7, data).(statemachine.Applied); !ok || a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	state, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var st *ledger.State
	m.View(func(s *ledger.State) { st = s })
	h := snapshot.HeaderOf(st, state)
	h.Version, h.Server, h.Index, h.Saved = "1.2.3", "c1", 7, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return h, st
}

// budgetIn is the site's budget in the log of a stopped server, and its incarnation.
func budgetIn(t *testing.T, b Rebirth) (units.Power, uint64) {
	t.Helper()
	cfg := b.consensusConfig(b.Config.StateDir)
	_, net := raft.NewInmemTransport("127.0.0.1:2")
	cfg.Transport = net
	m := statemachine.New()
	g, err := consensus.Open(cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	var budget units.Power
	var incarnation uint64
	m.View(func(s *ledger.State) { budget, incarnation = s.Domains["site/lab"].Budget, s.Epoch.Incarnation })
	return budget, incarnation
}

type crash struct{ at string }

// Wherever restoring or recovering is cut short, the folder holds the old state or
// the new one; the next try leaves exactly one of each.
func TestInterruptedRebirth(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"restore", "recover"} {
		steps := []string{"planted", "staged", "exchanged"}
		if verb == "recover" {
			steps = append([]string{"copied"}, steps...)
		}
		for _, at := range steps {
			t.Run(verb+" "+at, func(t *testing.T) {
				t.Parallel()
				b := onDisk(t, t.TempDir())
				b.Verb = verb
				b.after = func(step string) {
					if step == at {
						panic(crash{step})
					}
				}
				interrupted(t, b)
				want, keeps := 700*w, 1
				if at == "exchanged" { // the second try has the state of the first to keep too
					want, keeps = 300*w, 2
				}
				if got, _ := budgetIn(t, b); got != want {
					t.Errorf("interrupted after %s: budget %v, want %v", at, got, want)
				}
				b.after, b.RequestID, b.Now = nil, "r2", b.Now.Add(time.Minute)
				if _, err := do(t, b); err != nil {
					t.Fatal(err)
				}
				if got, _ := budgetIn(t, b); got != 300*w {
					t.Errorf("tried again: budget %v", got)
				}
				kept, _ := filepath.Glob(b.Config.StateDir + ".before-*")
				left, _ := filepath.Glob(b.Config.StateDir + ".beginning-*")
				if len(left) != 0 || len(kept) != keeps {
					t.Errorf("kept %v, left %v", kept, left)
				}
			})
		}
	}
}

func do(t *testing.T, b Rebirth) (Reborn, error) {
	t.Helper()
	if b.Verb == "recover" {
		return b.Recover()
	}
	h, st := savedState(t)
	return b.Restore(h, st)
}

func interrupted(t *testing.T, b Rebirth) {
	t.Helper()
	defer func() {
		if _, ok := recover().(crash); !ok {
			t.Error("it was not interrupted")
		}
	}()
	_, _ = do(t, b)
}

// Restoring keeps the old state aside, is carried out once, names what is missing,
// and changes nothing in a dry run, while a server runs, or without every budget.
func TestRestoreOnDisk(t *testing.T) {
	t.Parallel()
	b := onDisk(t, t.TempDir())
	was := uint64(b.Now.Add(-time.Hour).UnixMilli())
	unchanged := func(what string) {
		t.Helper()
		if got, n := budgetIn(t, b); got != 700*w || n != was {
			t.Errorf("%s: budget %v, incarnation %d", what, got, n)
		}
	}
	dry := b
	dry.DryRun = true
	if r, err := do(t, dry); err != nil || r.Incarnation != was+3_600_000 || r.Nodes != 1 || len(r.Domains) != 2 || r.Aside != "" {
		t.Errorf("dry run: %+v, %v", r, err)
	}
	unchanged("dry run")

	few := b
	few.Budgets = map[string]units.Power{"site/lab": 300 * w}
	_, err := do(t, few)
	if exitOf(err) != cli.ExitRefused || !strings.Contains(err.Error(), "rack/r1 (it had 800.0 W)") {
		t.Errorf("a budget is missing: %v", err)
	}
	strange := b
	strange.Budgets = maps.Clone(b.Budgets)
	strange.Budgets["rack/r9"] = w
	if _, err := do(t, strange); exitOf(err) != cli.ExitUsage || !strings.Contains(err.Error(), "rack/r9") {
		t.Errorf("an unknown domain: %v", err)
	}
	zero := b
	zero.Budgets = map[string]units.Power{"site/lab": 300 * w, "rack/r1": 0}
	if _, err := do(t, zero); exitOf(err) != cli.ExitRefused {
		t.Errorf("no watts: %v", err)
	}
	release, err := consensus.Hold(b.Config.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"restore", "recover"} {
		b := b
		b.Verb = verb
		if _, err := do(t, b); !errors.Is(err, consensus.ErrInUse) || exitOf(err) != cli.ExitConflict {
			t.Errorf("%s while a server runs: %v", verb, err)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	unchanged("refusals")

	r, err := do(t, b)
	if err != nil || r.Already || !strings.HasSuffix(r.Aside, "state.before-restore-20260102T030405Z") {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, n := budgetIn(t, b); got != 300*w || n != was+3_600_000 {
		t.Errorf("restored: budget %v, incarnation %d", got, n)
	}
	stuck := b // a clock that stands still or is set back: never the same number again
	stuck.RequestID, stuck.Config.StateDir = "r9", filepath.Join(t.TempDir(), "other")
	h, st := savedState(t)
	st.Epoch.Incarnation = was + 7_200_000
	if r, err := stuck.Restore(h, st); err != nil || r.Incarnation <= was+7_200_000 {
		t.Errorf("with a clock that is wrong: %+v, %v", r, err)
	}
	old := b
	old.Config.StateDir = r.Aside
	if got, _ := budgetIn(t, old); got != 700*w {
		t.Errorf("kept aside: budget %v", got)
	}
	if r, err := do(t, b); err != nil || !r.Already {
		t.Errorf("the same request again: %+v, %v", r, err)
	}
	again := b
	again.Verb, again.RequestID, again.Now = "recover", "r3", b.Now.Add(time.Hour)
	if r, err := do(t, again); err != nil || r.Incarnation != was+7_200_000 || !strings.HasSuffix(r.Aside, "state.before-recover-20260102T040405Z") {
		t.Errorf("recovered after that: %+v, %v", r, err)
	}
	info, err := os.Stat(b.Config.StateDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
