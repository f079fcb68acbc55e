package consensus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// One, three and five servers elect one leader and apply the same entries.
func TestElectsAndApplies(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, n, nil)
				g := c.leader()
				for i := range 300 { // past two checkpoints of the log
					out, err := g.Propose(t.Context(), fmt.Appendf(nil, "entry %d", i))
					if err != nil || out != i+1 {
						t.Fatalf("proposal %d gave %v, %v", i, out, err)
					}
				}
				c.converge()
				for _, id := range c.ids {
					if err := c.fatalOf(id); err != nil {
						t.Errorf("%s ended: %v", id, err)
					}
				}
			})
		})
	}
}

// After the leader is gone another leads well within three seconds, however
// often it is tried, and nothing acknowledged is lost.
func TestFailover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		var worst time.Duration
		for i := range 20 {
			g := c.leader()
			entry := fmt.Sprintf("round %d", i)
			c.propose(g, entry)
			id := g.cfg.ID
			c.isolate(id)
			start := time.Now()
			next := c.leader(id)
			worst = max(worst, time.Since(start))
			if !c.tapes[next.cfg.ID].has(entry) {
				t.Fatalf("%s leads without %q", next.cfg.ID, entry)
			}
			c.heal(id)
			c.converge()
		}
		if worst > 3*time.Second {
			t.Errorf("slowest failover took %v", worst)
		}
	})
}

// A leader that is cut off never says done of what did not commit, notices by
// itself that it no longer leads, and does not verify.
func TestPartitionedLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		old := c.leader()
		id := old.cfg.ID
		term := old.leading.Load().term
		c.isolate(id)

		_, err := old.Propose(t.Context(), []byte("lost"))
		if !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("proposal on the cut-off leader: %v, want unknown outcome", err)
		}
		if err := old.Verify(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("verify on the cut-off leader: %v", err)
		}
		next := c.leader(id)
		c.propose(next, "kept")
		c.heal(id)
		c.converge()
		if _, err := old.ProposeIn(t.Context(), term, []byte("late")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("proposal in the old term: %v, want not the leader", err)
		}
		for _, id := range c.ids {
			if c.tapes[id].has("lost") || c.tapes[id].has("late") || !c.tapes[id].has("kept") {
				t.Errorf("%s applied the wrong entries", id)
			}
			if err := c.fatalOf(id); err != nil {
				t.Errorf("%s ended: %v", id, err)
			}
		}
	})
}

// A cut-off leader's verification that is under way fails too.
func TestVerifyUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.leader()
		c.isolate(g.cfg.ID)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := g.Verify(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("verify ended with %v before the lead was over", err)
		}
		if err := g.Verify(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("verify: %v, want not the leader", err)
		}
	})
}

// An entry that lands in another term than its own is refused alike everywhere,
// and the machine never sees it.
func TestEntryOfAnotherTermIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.leader()
		term := g.leading.Load().term
		if err := g.raft.Apply(seal(term-1, []byte("stale")), 0).Error(); err != nil {
			t.Fatal(err)
		}
		g.leading.Store(&leaderTerm{term: term + 1, caughtUp: make(chan struct{}), over: make(chan struct{})})
		if _, err := g.Propose(t.Context(), []byte("early")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("an entry of a later term: %v", err)
		}
		c.converge()
		for _, id := range c.ids {
			if n, _ := c.tapes[id].count(); n != 0 {
				t.Errorf("%s applied %d entries of other terms", id, n)
			}
		}
	})
}

// Leadership is told at once, newest only, with a term that grows; it is closed
// by Close.
func TestLeadershipIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.groups["c1"]
		slow := g.Leadership()
		if first := <-slow; first.Leading {
			t.Fatalf("leading before any election: %+v", first)
		}
		var leads []uint64
		for range 6 {
			l := c.leader()
			id := l.cfg.ID
			leads = append(leads, l.leading.Load().term)
			c.isolate(id)
			c.leader(id)
			c.heal(id)
			c.converge()
		}
		for i := 1; i < len(leads); i++ {
			if leads[i] <= leads[i-1] {
				t.Errorf("terms of the leads do not grow: %v", leads)
			}
		}
		synctest.Wait()
		newest := <-slow
		if now := <-g.Leadership(); now != newest {
			t.Errorf("slow reader got %+v, present is %+v", newest, now)
		}
		_ = g.Close()
		for l := range slow {
			if l.Leading {
				t.Errorf("%+v told after Close", l)
			}
		}
		if _, open := <-g.Leadership(); open {
			t.Error("a channel is open after Close")
		}
	})
}

// A planned transfer moves the lead without an election timeout.
func TestTransfer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.leader()
		c.propose(g, "before")
		start := time.Now()
		if err := g.Transfer(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := c.leader(g.cfg.ID)
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("transfer took %v", took)
		}
		c.propose(next, "after")
		if err := g.Transfer(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("transfer from a follower: %v", err)
		}
	})
}

// Members shows who leads, who is heard and how far each log reaches.
func TestMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.leader()
		for i := range 10 {
			c.propose(g, fmt.Sprint(i))
		}
		time.Sleep(time.Second)
		leaders := 0
		for _, m := range g.Members() {
			if m.Leader {
				leaders++
			}
			if !m.Voter || m.Self != (m.ID == g.cfg.ID) {
				t.Errorf("%+v", m)
			}
			if !m.Self && (time.Since(m.Contact) > 300*time.Millisecond || m.LastIndex < 10) {
				t.Errorf("not heard: %+v", m)
			}
			if m.Self && (m.CommitIndex < 10 || m.AppliedIndex != m.CommitIndex) {
				t.Errorf("own indexes: %+v", m)
			}
		}
		if leaders != 1 {
			t.Errorf("%d leaders", leaders)
		}
		if id, addr := g.Leader(); id != g.cfg.ID || addr != "addr-"+id {
			t.Errorf("leader is %q at %q", id, addr)
		}
	})
}

// A server that comes back after a long absence has its entries at once, not
// after the ten seconds that raft would wait.
func TestReturnedServerCatchesUpAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		g := c.leader()
		away := otherThan(c, g.cfg.ID)
		c.isolate(away)
		for i := range 120 {
			c.propose(g, fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		if err := g.Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.heal(away)
		start := time.Now()
		c.converge()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("caught up after %v", took)
		}
	})
}

func otherThan(c *cluster, id string) string {
	for _, other := range c.ids {
		if other != id {
			return other
		}
	}
	return ""
}

// A follower that was away for longer than the log reaches back gets a
// snapshot, and what follows it.
func TestLaggingFollowerGetsSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.Compaction = Compaction{Threshold: 20, Trailing: 5, Every: time.Second}
		})
		g := c.leader()
		away := otherThan(c, g.cfg.ID)
		c.isolate(away)
		for i := range 100 {
			c.propose(g, fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		c.heal(away)
		c.converge()
		if _, restored := c.tapes[away].count(); restored == 0 {
			t.Error("caught up without a snapshot")
		}
		c.propose(c.leader(), "more")
		c.converge()
	})
}

// A restarted server has its state back from snapshot and log.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.Compaction = Compaction{Threshold: 20, Trailing: 5, Every: time.Second}
		})
		for round := range 5 {
			g := c.leader()
			for i := range 30 {
				c.propose(g, fmt.Sprintf("%d/%d", round, i))
				time.Sleep(50 * time.Millisecond)
			}
			id := g.cfg.ID
			c.stop(id)
			c.leader()
			c.start(id)
			c.converge()
		}
		if n, _ := c.tapes["c1"].count(); n != 150 {
			t.Errorf("%d entries, want 150", n)
		}
	})
}

// Calls on a closed group end at once and say that nothing was done.
func TestClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		g := c.leader()
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Propose(t.Context(), nil); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNotLeader) {
			t.Errorf("propose: %v", err)
		}
		if err := g.Verify(t.Context()); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNotLeader) {
			t.Errorf("verify: %v", err)
		}
		if err := g.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

// What cannot be proposed is refused before anything is done.
func TestProposeRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		g := c.leader()
		if _, err := g.Propose(t.Context(), make([]byte, maxEntry+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("oversized: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.Propose(gone, nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("cancelled: %v", err)
		}
		if n, _ := c.tapes["c1"].count(); n != 0 {
			t.Errorf("%d entries applied", n)
		}
	})
}
