package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
)

// nodeDisk is the size of the disk that a node keeps its state on.
const nodeDisk = 64 << 20

// rollBack puts the disk at dir back to what had reached its blocks by now: what was written
// and not synced is lost, as when the power fails. It must not be used afterwards.
func (c *cluster) rollBack(dir string) {
	c.t.Helper()
	image, dark := dir+".img", dir+".dark.img"
	for _, argv := range [][]string{{"cp", "--sparse=always", image, dark}, {"umount", "--lazy", dir}, {"mount", "-o", "loop", dark, dir}} {
		testkit.Check(c.t, run(c.t, "", argv...))
	}
}

// remembered is what a node has on its disk: the newest stamp and brake that it has reported, its
// fail-safe cap, and the originals of its limits.
type remembered struct {
	Memory struct {
		Highest  json.RawMessage
		FailSafe json.RawMessage
		Brake    uint64
	}
	journal string
}

func (c *cluster) remembers(node string) (r remembered) {
	c.t.Helper()
	state := testkit.Need(os.ReadFile(c.path("nodes", node, "state", "state.json")))(c.t)
	if err := json.Unmarshal(state, &r.Memory); err != nil {
		c.t.Errorf("state.json of %s holds %q: %v", node, state, err)
	}
	r.journal = string(testkit.Need(os.ReadFile(c.path("nodes", node, "state", "journal.json")))(c.t))
	return r
}

// drop has the leader take a job that runs without some of its tasks.
func (c *cluster) drop() {
	c.t.Helper()
	leader, _ := c.leader()
	peers := rpc.UnixPeers(c.path(leader + ".sock"))
	client := headroomv1connect.NewJobServiceClient(peers.HTTP(), peers.URL("unix"), peers.Options()...)
	ctx, cancel := context.WithTimeout(c.t.Context(), answerMost)
	defer cancel()
	job := &headroomv1.Job{Id: "thinned", Name: "thinned", Class: "low", Floor: 0.5, Engine: "yarn"}
	_, err := client.CommitJob(ctx, connect.NewRequest(&headroomv1.CommitJobRequest{Job: job}))
	testkit.Check(c.t, err)
	_, err = client.DeflateJob(ctx, connect.NewRequest(&headroomv1.DeflateJobRequest{Id: "thinned", Theta: 0.3, Seed: 7, Reason: "a test"}))
	testkit.Check(c.t, err)
	_, err = client.DropTasks(ctx, connect.NewRequest(&headroomv1.DropTasksRequest{Id: "thinned", Tasks: []*headroomv1.TaskRange{{First: 2, Last: 4}}, Of: 10}))
	testkit.Check(c.t, err)
}

// dropped is the leader's report on that job.
func (c *cluster) dropped() string {
	c.t.Helper()
	var text string
	c.until("a list of jobs", func() bool {
		type job struct {
			ID        string          `json:"id"`
			Deflation json.RawMessage `json:"deflation"`
			Dropped   json.RawMessage `json:"dropped"`
		}
		a, refused := ask[job](c, "job", "list")
		if refused != nil || len(a.Items) != 1 {
			return false
		}
		text = fmt.Sprintf("%s %s %s", a.Items[0].ID, a.Items[0].Deflation, a.Items[0].Dropped)
		return true
	})
	return text
}

// brake sets the brake and waits until every node has it on its disk.
func (c *cluster) brake() {
	c.t.Helper()
	if _, refused := ask[struct{}](c, "brake", "set", "--reason", "before the dark"); refused != nil {
		c.t.Fatal(refused)
	}
	c.until("a brake on every disk", func() bool {
		for _, node := range c.nodes {
			if c.remembers(node).Memory.Brake == 0 {
				return false
			}
		}
		return true
	})
}

// stillBraked checks that the brake outlives the dark, until it is lifted.
func (c *cluster) stillBraked() {
	c.t.Helper()
	c.until("every node to be heard", func() bool { return len(c.table()) == len(c.nodes) })
	for range 5 {
		for _, name := range c.nodes {
			if h, err := c.held(name); err != nil || h.State == "held" {
				c.t.Errorf("%s holds %+v, %v; nobody has lifted the brake", name, h, err)
			}
		}
		c.pass(500 * time.Millisecond)
	}
	c.until("the brake to be lifted", func() bool {
		_, refused := ask[struct{}](c, "brake", "lift", "--reason", "light again", "--yes")
		return refused == nil
	})
}

// The whole site loses its power: every server and every node at once, and no disk keeps more
// than it has synced. They come back in any order. Nothing that was acknowledged is lost, on
// servers (budgets, what jobs drop, the brake) and nodes (stamps, the brake, originals), the
// machines forget their limits, and no node holds more than the budget of before.
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
	// An unsynced file shows that the disks are really rolled back.
	unsynced := filepath.Join(servers, "unsynced")
	for i := range 5 {
		c.budget(float64(400-10*i), fmt.Sprintf("change %d", i))
	}
	c.drop()
	before, domains, drops := c.history(), c.domains(), c.dropped()
	c.brake()
	told := map[string]remembered{}
	for _, name := range c.nodes {
		told[name] = c.remembers(name)
	}
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
	testkit.WriteFile(t, unsynced, "not synced") // while programs run, any of their syncs may take it along
	c.rollBack(servers)
	if _, err := os.Stat(unsynced); err == nil {
		testkit.NotRun(t, "the file system writes back too early: nothing would be lost")
	}
	for _, name := range c.nodes {
		c.rollBack(c.path("nodes", name, "state"))
		if left := c.remembers(name); !reflect.DeepEqual(left, told[name]) {
			t.Errorf("%s had told of %+v; the power cut left %+v", name, told[name], left)
		}
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
	c.stillBraked()
	c.leased(c.nodes...)
	c.checker.wake()
	if after := c.dropped(); after != drops {
		t.Errorf("the site was dark; the job had dropped %s, and has %s", drops, after)
	}
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
