// Claim: Close leaves nothing of a cluster, neither the containers of a killed NodeManager
// nor those of a job that runs. It closes the package's own cluster, so its file is the
// last in the order of names.
package hadoop

import (
	"testing"
	"time"

	"headroom/internal/testkit"
)

func TestCloseLeavesNothing(t *testing.T) {
	c, ctx := shared(t), within(t)
	j := testkit.Need(c.Submit(ctx, c.Sleep("q1", 6, time.Hour)))(t)
	if err := j.AwaitContainers(ctx, 3); err != nil { // its master and two maps
		t.Fatal(err)
	}
	testkit.Check(t, c.KillNode("n1"))
	if len(namedBy(t, c.Dir())) == 0 {
		t.Fatal("no process of the cluster is found: the test looks wrong")
	}
	if err := c.Cluster.Close(); err != nil {
		t.Error(err)
	}
	if left := namedBy(t, c.Dir()); len(left) > 0 {
		t.Errorf("left of the cluster: %v", left)
	}
	if err := closeShared(); err != nil {
		t.Error(err)
	}
}
