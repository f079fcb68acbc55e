package netns

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// nodeDisk is the size of the disk that a node keeps its state on.
const nodeDisk = 64 << 20

// rollBack puts the disk at dir back to what had reached its blocks by now: what was written
// and not synced is lost, as when the power fails. Nobody may use it any more.
func (c *cluster) rollBack(dir string) {
	c.t.Helper()
	image, dark := dir+".img", dir+".dark.img"
	for _, argv := range [][]string{{"cp", "--sparse=always", image, dark}, {"umount", "--lazy", dir}, {"mount", "-o", "loop", dark, dir}} {
		testkit.Check(c.t, run(c.t, "", argv...))
	}
}

// The whole site loses its power: every server and every node at once, and no disk keeps more
// than it has synced. They come back in any order. Nothing that was acknowledged is lost,
// the machines forget their limits, and nobody holds more than the budget of before.
func TestSiteDark(t *testing.T) { //nolint:paralleltest // uses the whole machine
	servers := ""
	c := newCluster(t, shape{servers: 3, nodes: 2, lease: shortLease, budget: 420, disk: func(c *cluster) (string, string) {
		servers = c.path("servers")
		c.ext4(servers, frozenDisk)
		for _, id := range c.servers {
			c.state[id] = filepath.Join(servers, id)
		}
		for _, name := range c.nodes {
			c.ext4(c.path("nodes", name, "state"), nodeDisk)
		}
		return "c1", c.state["c1"]
	}})
	// A file that nobody has synced tells that the disks are really rolled back.
	unsynced := filepath.Join(servers, "unsynced")
	for i := range 5 {
		c.budget(float64(400-10*i), fmt.Sprintf("change %d", i))
	}
	before, domains := c.history(), c.domains()
	testkit.WriteFile(t, unsynced, "not synced")
	c.checker.rest() // a machine that boots may hold anything until its powerd has written a limit
	for _, p := range c.running {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	for _, p := range c.running {
		<-p.done
	}
	for _, name := range c.nodes {
		if pid := c.powerd(name); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			c.until("the end of powerd on "+name, func() bool { return c.powerd(name) == 0 })
		}
	}
	c.rollBack(servers)
	if _, err := os.Stat(unsynced); err == nil {
		testkit.NotRun(t, "the file system writes back too early: nothing would be lost")
	}
	for _, name := range c.nodes {
		c.rollBack(c.path("nodes", name, "state"))
		if err := os.RemoveAll(c.path("nodes", name, "root", "sys")); err != nil { // a machine that boots has no limits
			t.Fatal(err)
		}
	}
	hosts := append(append([]string{}, c.servers...), c.nodes...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	for _, host := range hosts {
		if host[0] == 'c' {
			c.start(host)
		} else {
			c.boot(host)
		}
	}
	c.leased(c.nodes...)
	c.checker.wake()
	if after := c.history(); !reflect.DeepEqual(before, after) {
		t.Errorf("the site was dark; the history was\n%+v\nand is\n%+v", before, after)
	}
	if after := c.domains(); !reflect.DeepEqual(domains, after) {
		t.Errorf("the site was dark; the budgets were %v and are %v", domains, after)
	}
	c.pass(3 * time.Second)
	c.charges()
	c.oneLeader()
}
