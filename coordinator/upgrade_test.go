// Claims: servers of two versions hold the same bytes, entry by entry, until every
// one of them is of the new version; only then the new rules come into force, by
// themselves; a server that cannot follow ends instead of differing.
package coordinator

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"headroom/coordinator/statemachine"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

// coming stands in for the version after this one.
const coming = ledger.Known(ledger.Rules + 1)

// follow makes a server without a log one of a version that knows these rules.
func follow(m *statemachine.Machine, rules ledger.Known) {
	m.Rules = rules
	m.Edit(func(s *ledger.State) {
		*s = *rules.New()
		s.Rules = 0
	})
}

// newer makes the servers of the coming version, except those named: they know the rules
// of this one only, and an entry of newer ones would end them.
func (c *cluster) newer(old map[string]bool) {
	c.fit = func(s *server) {
		id := s.cfg.ID
		if !old[id] {
			follow(s.machine, coming)
		}
		s.machine.OnOutdated = func(err error) { c.t.Errorf("%s: %v", id, err) }
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
			var at uint64
			var data []byte
			var err error
			s.machine.ViewAt(func(st *ledger.State, index uint64) {
				at = index
				data, err = st.Snapshot()
			})
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

// Three servers of an old version are replaced one after the other.
func TestRollingUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 0, 700*units.Watt)
		c.ids, c.first = []string{"c1", "c2", "c3"}, []string{"c1", "c2", "c3"}
		old := map[string]bool{"c1": true, "c2": true, "c3": true}
		c.newer(old)
		for _, id := range c.ids {
			c.disks[id] = memory()
			c.start(id)
		}
		c.addNodes(3)
		c.leader()
		c.allHeld(6 * time.Second)
		for i, id := range []string{"c2", "c3", "c1"} {
			c.alike()
			if now := rulesNow(c); now != ledger.Rules {
				t.Fatalf("rules %d are in force while %d servers are old", now, 3-i)
			}
			// What only later rules know waits, whoever leads.
			_, err := c.leader().requests.change(t.Context(), ledger.Command{Upgrade: &ledger.Upgrade{Rules: int(coming) + 1}})
			e := rpc.AsCLI(err, "test", "addr")
			if e == nil || e.Code != "old-rules" || e.Exit != cli.ExitRefused || !strings.Contains(e.Hint, "member health") {
				t.Errorf("a new command under old rules: %+v", e)
			}
			if i > 0 && !isOld(c.leader().machine) {
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
		c.until("the new rules are in force", 30*time.Second, func() bool { return rulesNow(c) == int(coming) })
		c.seated("c1", "c2", "c3")
		if _, err := c.leader().requests.change(t.Context(), ledger.Command{Drain: &ledger.DrainNode{Node: "n01"}}); err != nil {
			t.Errorf("a command under the new rules: %v", err)
		}
		time.Sleep(5 * time.Second)
		c.alike()
		if n := c.watch.fallen(); n != 0 {
			t.Errorf("%d falls to fail-safe", n)
		}
	})
}

func isOld(m *statemachine.Machine) bool { return m.Rules < coming }

// A group that new servers found works under the new rules from its first entry,
// and takes no older server in.
func TestNewGroupHasNewRules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 0, 700*units.Watt)
		c.ids, c.first = []string{"c1", "c2", "c3"}, []string{"c1", "c2", "c3"}
		c.newer(map[string]bool{"c4": true})
		for _, id := range c.ids {
			c.disks[id] = memory()
			c.start(id)
		}
		c.leader()
		if now := rulesNow(c); now != int(coming) {
			t.Fatalf("rules %d", now)
		}
		c.await("c4")
		_, err := addMember(c, "c4", "x")
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Code != "rules" || e.Exit != cli.ExitRefused || e.Hint == "" {
			t.Errorf("an old server was taken in: %v", err)
		}
	})
}
