package netns

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"headroom/internal/testkit"
)

// Nothing that was answered is lost when servers are killed, one after the other or
// all at once, and no node gets more by it; a powerd that is killed leaves its cap
// where it is, and the next one takes it over.
func TestKilled(t *testing.T) { //nolint:paralleltest // uses the whole machine
	c := newCluster(t, shape{servers: 3, nodes: 3, lease: longLease, budget: 600})
	for i, id := range c.servers {
		reason := "before " + id + " is killed"
		c.budget(float64(560-20*i), reason)
		c.running[id].kill(t)
		if all := c.history(); reasoned(all, reason) != 1 {
			t.Errorf("the change %q is in the history %d times", reason, reasoned(all, reason))
		}
		c.start(id)
		c.follower(id)
	}
	before, domains := c.history(), c.domains()
	for _, id := range c.servers {
		c.running[id].signal(t, syscall.SIGKILL)
	}
	for _, id := range c.servers {
		<-c.running[id].done
	}
	for _, id := range c.servers {
		c.start(id)
	}
	c.leased(c.nodes...)
	if after := c.history(); !reflect.DeepEqual(before, after) {
		t.Errorf("all servers were killed; the history was\n%+v\nand is\n%+v", before, after)
	}
	if after := c.domains(); !reflect.DeepEqual(domains, after) {
		t.Errorf("all servers were killed; the budgets were %v and are %v", domains, after)
	}
	c.killPowerd("n02")
	c.charges()
	c.oneLeader()
}

// follower waits until a server answers what the leader does.
func (c *cluster) follower(id string) {
	c.t.Helper()
	c.until(id+" to answer", func() bool {
		_, refused := askAt[struct{}](c, id, "status")
		return refused == nil
	})
}

// domains are the budgets in force, in watts.
func (c *cluster) domains() map[string]float64 {
	c.t.Helper()
	type domain struct {
		Domain  string  `json:"domain"`
		BudgetW float64 `json:"budget_w"`
	}
	out := map[string]float64{}
	c.until("budgets", func() bool {
		a, refused := ask[domain](c, "budget", "show")
		if refused != nil {
			return false
		}
		for _, d := range a.Items {
			out[d.Domain] = d.BudgetW
		}
		return true
	})
	return out
}

// killPowerd kills a node's powerd and waits for the next one's lease.
func (c *cluster) killPowerd(name string) {
	c.t.Helper()
	pid := c.powerd(name)
	before, err := c.held(name)
	if err != nil || pid == 0 {
		c.t.Fatalf("powerd of %s is process %d: %v", name, pid, err)
	}
	testkit.Check(c.t, syscall.Kill(pid, syscall.SIGKILL))
	if h, err := c.held(name); err != nil || h.CapW > before.CapW {
		c.t.Errorf("%s held %g W and holds %g W after powerd was killed: %v", name, before.CapW, h.CapW, err)
	}
	c.until("another powerd on "+name, func() bool {
		now := c.powerd(name)
		return now != 0 && now != pid
	})
	c.leased(name)
	log, err := os.ReadFile(c.path("nodes", name, "powerd.log"))
	if err != nil || !strings.Contains(string(log), "adopted=true") {
		c.t.Errorf("%s: no powerd says that it adopted what another one had saved: %v", name, err)
	}
}

// powerd is the process of a node's powerd, 0 while none runs.
func (c *cluster) powerd(name string) int {
	text, err := line(c.path("nodes", name, "run", "powerd.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	if comm, err := line(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || comm != "powerd" {
		return 0
	}
	return pid
}
