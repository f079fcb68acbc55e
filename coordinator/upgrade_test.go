// Claims: servers of two versions hold the same bytes, entry by entry, until every
// one of them is of the new version; only then the new rules come into force, by
// themselves; a server that cannot follow ends instead of differing.
package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

// older makes the servers named ones of an older version: they know its rules
// only, and an entry of newer ones would end them.
func (c *cluster) older(rules int, ids map[string]bool) {
	c.fit = func(s *server) {
		id := s.cfg.ID
		if ids[id] {
			s.machine.rules = rules
		}
		s.machine.outdated = func(err error) { c.t.Errorf("%s: %v", id, err) }
	}
}

// alike waits for a moment in which all servers have applied the same entries, and
// compares what they hold.
func (c *cluster) alike() {
	c.t.Helper()
	c.until("all servers are at the same entry", 20*time.Second, func() bool {
		index, first := uint64(0), []byte(nil)
		for _, id := range c.every() {
			s := c.server(id)
			if s == nil {
				continue
			}
			s.machine.mu.RLock()
			at := s.machine.index
			data, err := s.machine.state.Snapshot()
			s.machine.mu.RUnlock()
			switch {
			case err != nil:
				c.t.Fatal(err)
			case first == nil:
				index, first = at, data
			case at != index || at == 0:
				return false
			case !bytes.Equal(data, first):
				c.t.Fatalf("at entry %d %s holds\n%s\nanother holds\n%s", at, id, data, first)
			}
		}
		return true
	})
}

func rulesNow(c *cluster) int { return c.newest().Rules }

// newIn are commands that the rules brought, one for each version since the oldest.
func newIn(rules int) ledger.Command {
	switch rules {
	case 2:
		return ledger.Command{Drain: &ledger.DrainNode{Node: "n01"}}
	case 4:
		return ledger.Command{DeflateJob: &ledger.DeflateJob{ID: "local-0"}}
	case 5:
		return ledger.Command{Deny: &ledger.Denial{Serial: "ab"}}
	}
	return ledger.Command{ContainerPolicy: &ledger.Named{Name: "fair"}}
}

// Three servers of an old version are replaced one after the other.
func TestRollingUpgrade(t *testing.T) {
	for rules := ledger.OldestRules; rules < ledger.Rules; rules++ {
		t.Run(fmt.Sprintf("from rules %d", rules), func(t *testing.T) { rollingUpgrade(t, rules) })
	}
}

func rollingUpgrade(t *testing.T, rules int) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 0, 700*units.Watt)
		c.ids, c.first = []string{"c1", "c2", "c3"}, []string{"c1", "c2", "c3"}
		old := map[string]bool{"c1": true, "c2": true, "c3": true}
		c.older(rules, old)
		for _, id := range c.ids {
			c.disks[id] = memory()
			c.start(id)
		}
		c.addNodes(3)
		c.leader()
		c.allHeld(6 * time.Second)
		for i, id := range []string{"c2", "c3", "c1"} {
			c.alike()
			if now := rulesNow(c); now != rules {
				t.Fatalf("rules %d are in force while %d servers are old", now, 3-i)
			}
			if n := len(c.newest().Changes); n != 0 && rules == 1 { // what a snapshot of an old server would not have
				t.Fatalf("%d changes are kept under the old rules", n)
			}
			// What the new version alone can do waits, whoever leads.
			_, err := c.leader().change(t.Context(), newIn(rules+1))
			e := rpc.AsCLI(err, "test", "addr")
			if e == nil || e.Code != "old-rules" || e.Exit != cli.ExitRefused || !strings.Contains(e.Hint, "member health") {
				t.Errorf("a new command under old rules: %+v", e)
			}
			if rules < rulesOfServers {
				if _, err := addMember(c, "c9", "x"); exitOf(err) != cli.ExitRefused || !strings.Contains(err.Error(), "needs rules 2") {
					t.Errorf("a change of the group under old rules: %v", err)
				}
			}
			commit := func(j *headroomv1.Job) error {
				_, err := jobService{server: c.leader().server}.CommitJob(t.Context(), connect.NewRequest(&headroomv1.CommitJobRequest{Job: j}))
				return err
			}
			if err := commit(&headroomv1.Job{Id: fmt.Sprint("local-", i), Engine: "local", Floor: 0.5}); err != nil {
				t.Errorf("a job of the scheduler's own under old rules: %v", err)
			}
			if e := rpc.AsCLI(commit(&headroomv1.Job{Id: "yarn", Engine: "yarn", Floor: 0.5}), "test", "addr"); (e != nil) != (rules < rulesOfFloors) || e != nil && e.Code != "old-rules" {
				t.Errorf("an engine's job under rules %d: %+v", rules, e)
			}
			if err := commit(&headroomv1.Job{Id: fmt.Sprint("urgent-", i), Floor: 1, Rank: 1, DeadlineS: new(60.0)}); err != nil {
				t.Errorf("a job with a deadline under old rules: %v", err)
			}
			if i > 0 && !c.leader().machine.isOld() {
				m := healthNow(t, c)["c1"]
				if got := codes(m); len(got) != 1 || got[0] != "warn member-version" {
					t.Errorf("an old server's health: %q", got)
				}
			}
			if _, err := setBudget(t.Context(), c, units.Power(690-10*i)*units.Watt); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
			c.kill(id)
			time.Sleep(2 * time.Second)
			delete(old, id)
			c.start(id) // replays the log that the old version began
			time.Sleep(5 * time.Second)
		}
		c.until("the new rules are in force", 30*time.Second, func() bool { return rulesNow(c) == ledger.Rules })
		c.seated("c1", "c2", "c3")
		for rules := ledger.OldestRules + 1; rules <= ledger.Rules; rules++ {
			if _, err := c.leader().change(t.Context(), newIn(rules)); err != nil {
				t.Errorf("a command of rules %d under the new rules: %v", rules, err)
			}
		}
		time.Sleep(5 * time.Second)
		c.alike()
		if n := c.watch.fallen(); n != 0 {
			t.Errorf("%d falls to fail-safe", n)
		}
	})
}

func (m *machine) isOld() bool { return m.rules < ledger.Rules }

// A group that new servers found works under the new rules from its first entry,
// and takes no older server in.
func TestNewGroupHasNewRules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.leader()
		if now := rulesNow(c); now != ledger.Rules {
			t.Fatalf("rules %d", now)
		}
		c.older(ledger.Rules-1, map[string]bool{"c4": true})
		c.await("c4")
		_, err := addMember(c, "c4", "x")
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Code != "rules" || e.Exit != cli.ExitRefused || e.Hint == "" {
			t.Errorf("an old server was taken in: %v", err)
		}
	})
}

// A machine adopts the rules of the log's first entry, ends its server at an entry
// of rules that it does not know, and passes over one that may be ignored.
func TestMachineFollowsTheRules(t *testing.T) {
	t.Parallel()
	lead := func(rules int) []byte {
		c := ledger.Command{Rules: rules, Lead: &ledger.Lead{Server: "c1"}}
		c.Epoch.Incarnation, c.Epoch.Term = 1, 1
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for rules := ledger.OldestRules; rules <= ledger.Rules; rules++ {
		m := newMachine()
		if m.inForce() != ledger.Rules {
			t.Errorf("an empty log is begun under rules %d", m.inForce())
		}
		if a, ok := m.Apply(1, lead(rules)).(applied); !ok || a.err != nil || m.inForce() != rules || m.state.Rules != rules {
			t.Errorf("a log begun under rules %d is under %d: %v", rules, m.inForce(), a.err)
		}
	}
	for name, x := range map[string]struct {
		entry string
		ends  bool
	}{
		"newer":     {`{"rules":99,"warp":{}}`, true},
		"ancient":   {`{"rules":-1,"lead":{"server":"c1"}}`, false}, // no rules at all: refused alike everywhere
		"ignorable": {`{"rules":99,"ignorable":true,"warp":{}}`, false},
		"nonsense":  {`]`, false},
	} {
		m := newMachine()
		var ended error
		m.outdated = func(err error) { ended = err }
		m.Apply(1, lead(ledger.Rules))
		before, _ := m.Snapshot()
		m.Apply(2, []byte(x.entry))
		after, _ := m.Snapshot()
		if (ended != nil) != x.ends || x.ends && (!errors.Is(ended, errOutdated) || !strings.Contains(ended.Error(), "entry 2: rules 99")) {
			t.Errorf("%s: ended with %v", name, ended)
		}
		if !bytes.Equal(before, after) {
			t.Errorf("%s changed the state", name)
		}
	}
}
