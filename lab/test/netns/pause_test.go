package netns

import (
	"syscall"
	"testing"
	"time"
)

// A leader that is stopped for longer than a lease and goes on no longer leads: no
// grant of its time is obeyed, a cut that was made without it stands, and it
// follows.
func TestLeaderPaused(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 3, lease: shortLease, budget: 600})
	old, epoch := c.leads("c1") // the first that every command queries
	paused := c.running[old]
	began := time.Now()
	paused.signal(t, syscall.SIGSTOP)
	id, next := c.follows(old, epoch)
	t.Logf("%s led in epoch %d, %s leads in epoch %d after %v", old, epoch, id, next, c.ledAfter(id, next, began))
	// The nodes' streams to it are open all the time, and what they sent into them
	// waits there. Its own ledger has the higher budget.
	c.budget(330, "while the leader is stopped")
	c.pass(shortLease + shortLease/2)
	c.leased(c.nodes...)
	paused.signal(t, syscall.SIGCONT)
	c.until(old+" to follow", func() bool {
		a, refused := askAt[struct{}](c, old, "status")
		return refused == nil && a.Server != old && a.Server != ""
	})
	c.pass(shortLease)
	c.leased(c.nodes...)
	c.charges()
	if all := c.history(); reasoned(all, "while the leader is stopped") != 1 || all[len(all)-1].ToW != 330 {
		t.Errorf("the history: %+v", all)
	}
	c.oneLeader()
}
