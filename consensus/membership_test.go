// Claims: servers come and go one at a time through any failure of the leader, a
// server votes only when it is stable, nothing that was committed is lost on the
// way, and no change leaves a group without a healthy majority.
package consensus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"headroom/internal/testkit"
)

func (c *cluster) add(g *Group, id string) error {
	return g.AddServer(c.t.Context(), Server{ID: id, Address: "addr-" + id})
}

func (c *cluster) mustAdd(id string) {
	c.t.Helper()
	c.mustAddTo(c.leader(), id)
}

func (c *cluster) mustAddTo(g *Group, id string) {
	c.t.Helper()
	c.wait(id)
	if err := c.add(g, id); err != nil {
		c.t.Fatal(err)
	}
}

// until asks the leader of now again and again until f succeeds.
func (c *cluster) until(what string, f func(*Group) error) {
	c.t.Helper()
	var err error
	for range 1000 {
		if err = f(c.leader()); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("%s: %v", what, err)
}

// voters are the servers that vote, by what the given one knows.
func voters(g *Group) (out []string) {
	for _, m := range g.Members() {
		if m.Voter {
			out = append(out, m.ID)
		}
	}
	slices.Sort(out)
	return out
}

// A server that waits gets the log, does not vote, is promoted once it is stable,
// and counts from then on: five that vote go on without two of the first three.
func TestAddAndPromote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.leader()
		for i := range 50 {
			c.propose(g, fmt.Sprint(i))
		}
		c.wait("c4")
		time.Sleep(time.Minute)
		if m := c.groups["c4"].Members(); len(m) != 0 {
			t.Fatalf("the server that waits knows %+v", m)
		}
		for range 2 { // the second time nothing is to be done
			if err := c.add(g, "c4"); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Promote(t.Context(), "c4"); !errors.Is(err, ErrNotStable) {
			t.Errorf("promoted at once: %v", err)
		}
		time.Sleep(StableFor + time.Second)
		if got := voters(g); len(got) != 3 || len(g.Members()) != 4 {
			t.Errorf("voters %v of %d", got, len(g.Members()))
		}
		c.converge()
		for range 2 {
			if err := g.Promote(t.Context(), "c4"); err != nil {
				t.Fatal(err)
			}
		}
		c.mustAdd("c5")
		c.until("promote c5", func(g *Group) error { return g.Promote(t.Context(), "c5") })
		c.converge()
		// Five that vote go on without two of the first three.
		c.stop("c1")
		c.stop("c2")
		c.propose(c.leader(), "after")
		c.converge()
		if got := voters(c.leader()); !slices.Equal(got, []string{"c1", "c2", "c3", "c4", "c5"}) {
			t.Errorf("voters %v", got)
		}
	})
}

// A server that is far behind, or that comes and goes, is not promoted.
func TestPromoteNeedsAStableServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.mustAdd("c4")
		g := c.leader()
		for range 10 { // never ten seconds without a break
			time.Sleep(StableFor - time.Second)
			if err := g.Promote(t.Context(), "c4"); !errors.Is(err, ErrNotStable) {
				t.Fatalf("promoted: %v", err)
			}
			c.isolate("c4")
			time.Sleep(2 * time.Second)
			if err := g.MayPromote("c4"); !errors.Is(err, ErrNotStable) {
				t.Fatalf("may be promoted while it is cut off: %v", err)
			}
			c.heal("c4")
		}
		c.isolate("c4")
		for i := range MaxLag + 10 {
			c.propose(g, fmt.Sprint(i))
		}
		all, err := g.Health()
		if h, _ := find(all, "c4"); err != nil || h.Healthy() || !h.Since.IsZero() {
			t.Errorf("health of the one behind: %+v, %v", h, err)
		}
		if _, err := c.groups["c4"].Health(); !errors.Is(err, ErrNotLeader) {
			t.Errorf("health on a follower: %v", err)
		}
	})
}

// A removed server hears nothing more and disturbs nobody; removing it again is
// no error; it may come back empty.
func TestRemove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5, nil)
		g := c.leader()
		gone := otherThan(c, g.cfg.ID)
		for range 2 {
			if err := g.RemoveServer(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
		}
		term := g.leading.Load().term
		c.propose(g, "after")
		time.Sleep(2 * time.Minute)
		if c.tapes[gone].has("after") {
			t.Error("the removed server still takes entries")
		}
		if r := g.leading.Load(); r == nil || r.term != term {
			t.Error("the removed server cost the leader its lead")
		}
		if got := voters(g); len(got) != 4 || slices.Contains(got, gone) {
			t.Errorf("voters %v", got)
		}
		c.stop(gone)
		c.wait(gone)
		if err := c.add(g, gone); err != nil {
			t.Fatal(err)
		}
		c.converge()
	})
}

// What would leave the group without a healthy majority is refused, and so are
// the leader, the last voter, strangers and one server too many.
func TestChangesThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.leader()
		me := g.cfg.ID
		others := slices.DeleteFunc(slices.Clone(c.ids), func(id string) bool { return id == me })
		time.Sleep(time.Second)
		if err := g.RemoveServer(t.Context(), me); !errors.Is(err, ErrLeads) {
			t.Errorf("the leader: %v", err)
		}
		if err := g.MayRemove(me); err != nil {
			t.Errorf("that it leads is no reason: %v", err)
		}
		if err := g.MayRemove("c9"); !errors.Is(err, ErrUnknownServer) {
			t.Errorf("a stranger: %v", err)
		}
		if err := g.Promote(t.Context(), "c9"); !errors.Is(err, ErrUnknownServer) {
			t.Errorf("a stranger: %v", err)
		}
		if err := g.AddServer(t.Context(), Server{ID: "c9", Address: "addr-" + others[0]}); !errors.Is(err, ErrAddressTaken) {
			t.Errorf("a used address: %v", err)
		}
		// One is down: the other two are a majority of three and of two, so the dead
		// one may go and the living one may not.
		c.stop(others[0])
		time.Sleep(2 * time.Second)
		if err := g.RemoveServer(t.Context(), others[1]); !errors.Is(err, ErrLosesQuorum) {
			t.Errorf("the last healthy follower: %v", err)
		}
		if err := g.RemoveServer(t.Context(), others[0]); err != nil {
			t.Errorf("the dead one: %v", err)
		}
		if err := g.RemoveServer(t.Context(), others[1]); err != nil {
			t.Errorf("down to one: %v", err)
		}
		if err := g.RemoveServer(t.Context(), me); !errors.Is(err, ErrLastVoter) {
			t.Errorf("the last voter: %v", err)
		}
		for i := range maxServers - 1 {
			if err := c.add(g, fmt.Sprintf("x%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.add(g, "one-more"); !errors.Is(err, ErrTooManyServers) {
			t.Errorf("one too many: %v", err)
		}
		c.propose(g, "still leading") // servers that are not there hold nobody up
	})
}

// The lead goes to the server that was named, and to no other.
func TestTransferTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5, nil)
		c.mustAdd("c6")
		time.Sleep(2 * time.Second)
		for _, to := range []string{"c4", "c2", "c2", "c5"} {
			if err := c.leader().TransferTo(t.Context(), to); err != nil {
				t.Fatalf("to %s: %v", to, err)
			}
			if g := c.leader(); g.cfg.ID != to {
				t.Fatalf("%s leads, not %s", g.cfg.ID, to)
			}
			time.Sleep(2 * time.Second)
		}
		g := c.leader()
		if err := g.TransferTo(t.Context(), "c6"); !errors.Is(err, ErrNotVoter) {
			t.Errorf("to one that does not vote: %v", err)
		}
		c.isolate("c1")
		time.Sleep(2 * time.Second)
		if err := g.TransferTo(t.Context(), "c1"); !errors.Is(err, ErrNotStable) {
			t.Errorf("to one that is cut off: %v", err)
		}
		if err := g.TransferTo(t.Context(), "c9"); !errors.Is(err, ErrUnknownServer) {
			t.Errorf("to a stranger: %v", err)
		}
		c.propose(g, "the lead stayed")
	})
}

// slowLog takes its time for each write, so that a fault can come in between.
type slowLog struct{ raft.LogStore }

func (l slowLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l slowLog) StoreLogs(e []*raft.Log) error {
	time.Sleep(20 * time.Millisecond)
	return l.LogStore.StoreLogs(e)
}

// ledgerOf is what a test knows to be committed.
type ledgerOf struct {
	c    *cluster
	done []string
	n    int
}

// write proposes on whoever leads and remembers what was acknowledged.
func (l *ledgerOf) write() {
	l.n++
	entry := fmt.Sprintf("entry %d", l.n)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, id := range l.c.ids {
		if g := l.c.groups[id]; g != nil && g.leading.Load() != nil {
			if _, err := g.Propose(ctx, []byte(entry)); err == nil {
				l.done = append(l.done, entry)
				return
			}
		}
	}
}

// readers are the servers that answer a read now, by term.
func (c *cluster) readers() map[uint64][]string {
	out := map[uint64][]string{}
	for _, id := range c.ids {
		g := c.groups[id]
		if g == nil {
			continue
		}
		r := g.leading.Load()
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		if r != nil && g.Verify(ctx) == nil && g.leading.Load() == r {
			out[r.term] = append(out[r.term], id)
		}
		cancel()
	}
	return out
}

// Random histories of added, promoted, removed and transferred servers, of which
// the leader is cut off or killed in the middle of each: nothing acknowledged is
// lost, two servers never answer reads in one term, and the group is whole again
// once it is left alone.
func TestMembershipUnderFaults(t *testing.T) {
	for seed := range uint64(testkit.Sweep(12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { membershipUnderFaults(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func membershipUnderFaults(t *testing.T, rng *rand.Rand) {
	t.Helper()
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Stores = &Stores{Log: slowLog{cfg.Stores.Log}, Stable: cfg.Stores.Stable, Snapshots: cfg.Stores.Snapshots}
	})
	c.leader()
	log := &ledgerOf{c: c}
	next := 4
	for range 12 {
		log.write()
		g := c.leader()
		change, what := anyChange(c, g, rng, &next)
		done := make(chan error, 1)
		go func() { done <- change() }()
		time.Sleep(time.Duration(rng.IntN(80)) * time.Millisecond)
		hurt, how := g.cfg.ID, rng.IntN(3)
		switch how {
		case 0:
			c.isolate(hurt)
		case 1:
			c.stop(hurt)
		}
		for range 5 {
			log.write()
			for term, ids := range c.readers() {
				if len(ids) > 1 {
					t.Fatalf("%v all answer reads in term %d", ids, term)
				}
			}
			time.Sleep(300 * time.Millisecond)
		}
		switch how {
		case 0:
			c.heal(hurt)
		case 1:
			c.start(hurt)
		}
		t.Logf("%s, leader %s fault %d: %v", what, hurt, how, <-done)
		time.Sleep(time.Duration(rng.IntN(15)) * time.Second)
	}
	whole(t, c, log)
}

// anyChange is one random change of the servers, to be asked of g.
func anyChange(c *cluster, g *Group, rng *rand.Rand, next *int) (change func() error, what string) {
	ctx := context.Background()
	members := g.Members()
	pick := members[rng.IntN(len(members))]
	for _, m := range members { // one that is new, more often than not
		if !m.Voter && rng.IntN(2) == 0 {
			pick = m
		}
	}
	some := pick.ID
	switch kind := rng.IntN(4); {
	case kind == 0 && *next <= 7:
		id := fmt.Sprintf("c%d", *next)
		*next++
		c.wait(id)
		return func() error { return c.add(g, id) }, "add " + id
	case kind == 1:
		return func() error { return g.Promote(ctx, some) }, "promote " + some
	case kind == 2 && len(members) > 3:
		return func() error { return g.RemoveServer(ctx, some) }, "remove " + some
	}
	return func() error { return g.TransferTo(ctx, some) }, "transfer to " + some
}

// whole waits until the group has settled and compares every member's tape with
// what was acknowledged.
func whole(t *testing.T, c *cluster, log *ledgerOf) {
	t.Helper()
	c.until("an entry that commits", func(g *Group) error { _, err := g.Propose(t.Context(), []byte("last")); return err })
	g := c.leader()
	in := map[string]bool{}
	for _, m := range g.Members() {
		in[m.ID] = true
	}
	c.until("every member has the last entry", func(*Group) error {
		for id := range in {
			if c.groups[id] != nil && !c.tapes[id].has("last") {
				return fmt.Errorf("%s has not", id)
			}
		}
		return nil
	})
	for _, id := range slices.Sorted(maps.Keys(in)) {
		for _, entry := range log.done {
			if !c.tapes[id].has(entry) {
				t.Errorf("%s, a member, lost %q", id, entry)
			}
		}
		if err := c.fatalOf(id); err != nil {
			t.Errorf("%s ended: %v", id, err)
		}
	}
	if len(log.done) < 20 {
		t.Errorf("only %d of %d entries were acknowledged: the history proves little", len(log.done), log.n)
	}
}
