package netns

import (
	"testing"
	"time"
)

// Of five servers two may be cut off, and changes go on; with three cut off nothing
// changes on either side, the nodes fall to their fail-safe caps, and what was requested
// meanwhile is done once when it is requested again.
func TestFiveServers(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 5, nodes: 2, lease: shortLease, budget: 320})
	old, epoch := c.leads("c1") // the first that every command queries
	cutOff := []string{old, c.others(old)[0]}
	rest := c.others(cutOff...)
	world := append([]string{operator}, c.nodes...)
	began := time.Now()
	c.net.cut(between(cutOff, append(rest, world...))...)
	id, next := c.follows(old, epoch)
	t.Logf("%v are cut off; %s leads in epoch %d after %v", cutOff, id, next, c.ledAfter(id, next, began))
	c.budget(300, "with three of five")
	c.leased(c.nodes...)
	for _, s := range cutOff {
		c.refuses(s)
	}

	// One more: its side of the cut has the nodes, and no majority.
	c.net.cut(append(between(cutOff, append(rest, world...)), between(rest[:1], rest[1:])...)...)
	c.until("no leader", func() bool {
		_, refused := ask[struct{}](c, "status")
		return refused != nil && refused.code == 3
	})
	for _, s := range rest {
		c.refuses(s)
	}
	const request = "without a majority"
	if _, refused := ask[struct{}](c, "budget", "set", "310W", "--reason", request, "--request-id", request, "--yes"); refused == nil || refused.code != 3 && refused.code != 7 {
		t.Errorf("a change without a majority: %v; want exit code 3 or 7", refused)
	}
	c.until("every node at its fail-safe cap", func() bool {
		s, err := c.checker.look()
		return err == nil && len(s.fallen) == len(c.nodes) && s.held == failSafe()*float64(len(c.nodes))
	})

	c.net.heal()
	c.leased(c.nodes...)
	c.budget(310, request)
	if all := c.history(); reasoned(all, request) != 1 || reasoned(all, "with three of five") != 1 || all[len(all)-1].ToW != 310 {
		t.Errorf("the history: %+v; want each change once", all)
	}
	for _, s := range c.servers {
		c.follower(s)
	}
	c.charges()
	c.oneLeader()
}
