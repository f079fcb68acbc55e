// Claims: a job comes to its good end when a NodeManager and its containers are killed,
// and when its application master is and then the ResourceManager, which is started again.
package hadoop

import (
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/hadoop"
)

// underway submits a job of maps that sleep and returns when one of them is done.
func underway(t *testing.T, c *lab, maps int) *hadoop.RunningJob {
	t.Helper()
	ctx := within(t)
	j := testkit.Need(c.Submit(ctx, c.Sleep("q1", maps, time.Second)))(t)
	testkit.Check(t, j.AwaitMaps(ctx, 1))
	return j
}

// ends waits for the job's good end with all its maps.
func ends(t *testing.T, j *hadoop.RunningJob, maps int) {
	t.Helper()
	r, err := j.Wait(within(t))
	if err != nil || !r.Succeeded() || r.History == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	n, ok := r.History.Counters.Get("org.apache.hadoop.mapreduce.JobCounter", "TOTAL_LAUNCHED_MAPS")
	if !ok || n < int64(maps) {
		t.Errorf("%d maps were launched, %d are there", n, maps)
	}
	t.Logf("took %v", r.Elapsed())
}

func jobOutlivesAKilledNode(t *testing.T) {
	c, ctx := shared(t), within(t)
	const maps = 14
	j := underway(t, c, maps)
	master := testkit.Need(j.Master(ctx))(t)
	victim := map[string]string{"n1": "n2", "n2": "n1"}[master]
	testkit.Check(t, c.KillNode(victim))
	if n := c.KillContainers(victim); n == 0 {
		t.Errorf("no container ran on %s", victim)
	}
	// A node that comes back before it was missed reports itself that its containers are gone.
	testkit.Check(t, c.StartNode(victim))
	ends(t, j, maps)
	if err := c.AwaitNodes(ctx, "n1", "n2"); err != nil {
		t.Error(err)
	}
}

func jobOutlivesItsMasterAndTheResourceManager(t *testing.T) {
	c, ctx := shared(t), within(t)
	const maps = 10
	j := underway(t, c, maps)
	testkit.Check(t, j.KillMaster(ctx))
	testkit.Check(t, j.AwaitMaps(ctx, 2)) // the second master goes on
	testkit.Check(t, c.KillRM())
	testkit.Check(t, c.StartRM())
	ends(t, j, maps)
	if err := c.AwaitNodes(ctx, "n1", "n2"); err != nil {
		t.Error(err)
	}
}
