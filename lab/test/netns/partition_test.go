package netns

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	// failoverMost is the design's time from the loss of a leader to the next one's
	// leases. It is measured and logged; what is asserted is that no lease runs out.
	failoverMost = 3 * time.Second
	// longLease is the default lease of a cluster.
	longLease = 10 * time.Second
	// shortLease keeps a scenario in which leases have to run out short.
	shortLease = 5 * time.Second
)

// A leader that is cut off from the other servers no longer leads: another is elected
// and grants while the nodes still hold their leases, the old one refuses what it
// cannot prove, and what was requested from it meanwhile is done once or not at all.
func TestLeaderCutOff(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 3, lease: longLease, budget: 480})
	old, epoch := c.leads("c1") // the first that every command queries
	began := time.Now()
	c.net.cut(between([]string{old}, append(c.others(old), append(c.nodes, operator)...))...)

	_, early := askAt[struct{}](c, old, "budget", "set", "470W", "--request-id", "early", "--reason", "early", "--wait", "0s")
	id, next := c.follows(old, epoch)
	t.Logf("%s led in epoch %d, %s leads in epoch %d after %v (the design says %v)", old, epoch, id, next, c.ledAfter(id, next, began), failoverMost)
	c.refuses(old)
	if early == nil || early.code != 3 && early.code != 7 {
		t.Errorf("a change asked of a leader that was just cut off: %v; want exit code 3 or 7", early)
	}
	c.budget(450, "by the majority")
	c.leased(c.nodes...)
	c.checker.noFall()

	c.net.heal()
	c.until(old+" to follow", func() bool {
		a, refused := askAt[struct{}](c, old, "status")
		return refused == nil && a.Server != "" && a.Server != old
	})
	// The outcome of the requests to the old leader is known now; sent again
	// under the same key they are done once.
	if early != nil {
		c.budget(470, "early")
	}
	if all := c.history(); reasoned(all, "early") != 1 || reasoned(all, "by the majority") != 1 {
		t.Errorf("the history: %+v; want each change once", all)
	}
	c.oneLeader()
}

// A leader whose messages reach the other servers and that receives none of theirs, or the reverse,
// no longer leads either, though every node still reaches it: none obeys it, none loses
// its lease, and what the next leader does stands.
func TestLeaderHalfCutOff(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 3, lease: longLease, budget: 600})
	for i, what := range []string{"hears nobody", "is not heard"} {
		old, epoch := c.leads("c1")
		var cuts []link
		for _, id := range c.others(old) {
			cuts = append(cuts, []link{{id, old}, {old, id}}[i])
		}
		began := time.Now()
		c.net.cut(cuts...)
		id, next := c.follows(old, epoch)
		t.Logf("%s, which led in epoch %d, %s: %s leads in epoch %d after %v", old, epoch, what, id, next, c.ledAfter(id, next, began))
		c.budget(float64(500-150*i), "while the leader "+what)
		c.leased(c.nodes...)
		c.net.heal()
		c.follower(old)
	}
	c.checker.noFall()
	c.charges()
	if all := c.history(); reasoned(all, "while the leader hears nobody") != 1 || all[len(all)-1].ToW != 350 {
		t.Errorf("the history: %+v", all)
	}
	c.oneLeader()
}

// follows waits until another server leads in a later epoch and grants.
func (c *cluster) follows(old string, epoch uint64) (id string, next uint64) {
	c.t.Helper()
	c.until("a leader after "+old, func() bool {
		for _, s := range c.others(old) {
			a, refused := askAt[node](c, s, "node", "list")
			if refused == nil && a.Epoch != nil && *a.Epoch > epoch && slices.ContainsFunc(a.Items, func(n node) bool { return n.Lease.RemainingS != nil }) {
				id, next = a.Server, *a.Epoch
				return true
			}
		}
		return false
	})
	return id, next
}

// refuses checks that a server without a majority answers neither reads nor writes,
// but for stale reads.
func (c *cluster) refuses(id string) {
	c.t.Helper()
	if a, refused := askAt[struct{}](c, id, "status"); refused == nil || refused.code != 3 {
		c.t.Errorf("%s without a majority answers a read: %+v, %v; want exit code 3", id, a, refused)
	}
	reason := "refused by " + id
	if _, refused := askAt[struct{}](c, id, "budget", "set", "400W", "--reason", reason, "--wait", "0s"); refused == nil || refused.code != 3 && refused.code != 7 {
		c.t.Errorf("%s without a majority takes a change: %v; want exit code 3 or 7", id, refused)
	}
	if a, refused := askAt[struct{}](c, id, "status", "--stale"); refused != nil || a.Server != id {
		c.t.Errorf("%s tells nothing as stale: %+v, %v", id, a, refused)
	}
}

// A node that is cut off in either direction, or in both, falls to its fail-safe cap
// when its lease ends; it stays charged what it may hold, others get none of it, and
// it has its lease again when it is heard again.
func TestNodeCutOff(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 3, lease: shortLease, budget: 480})
	const away = "n01"
	cases := []struct {
		what string
		cut  func(server string) []link
	}{
		{"hears nothing", func(s string) []link { return []link{{s, away}} }},
		{"is not heard", func(s string) []link { return []link{{away, s}} }},
		{"neither", func(s string) []link { return between([]string{s}, []string{away}) }},
	}
	for _, x := range cases {
		c.leased(c.nodes...)
		before := c.table()[away]
		var links []link
		for _, s := range c.servers {
			links = append(links, x.cut(s)...)
		}
		began := time.Now()
		c.net.cut(links...)
		c.until(away+" at its fail-safe cap", func() bool {
			h, err := c.held(away)
			return err == nil && h.State == "fail-safe" && h.CapW == failSafe()
		})
		t.Logf("%s %s: at its fail-safe cap %.1f s after the cut, its lease is %v", away, x.what, time.Since(began).Seconds(), shortLease)
		var lost node
		c.until(away+" lost", func() bool {
			lost = c.table()[away]
			return lost.State == "lost"
		})
		if lost.ChargeW < before.CeilingW-rounding {
			t.Errorf("%s, which may hold %g W, is charged %g W while nobody knows what it holds", away, before.CeilingW, lost.ChargeW)
		}
		c.charges()
		c.net.heal()
	}
	c.leased(c.nodes...)
	c.charges()
	c.oneLeader()
}

// charges checks that the nodes' charges fit the budget.
func (c *cluster) charges() {
	c.t.Helper()
	sum, text := 0.0, ""
	c.until("a table", func() bool {
		table := c.table()
		for _, n := range table {
			sum += n.ChargeW
			text += fmt.Sprintf(" %s %g W", n.Name, n.ChargeW)
		}
		return table != nil
	})
	if sum > c.checker.allowed()+rounding {
		c.t.Errorf("charged are%s, more than the budget of %g W", text, c.checker.allowed())
	}
}
