// Claims: a job for a queue that is not there is refused; queues are bounded as configured.
package hadoop

import (
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/hadoop"
)

// words writes a small set of texts and returns their folder, one that can become a
// job's output, and what is right.
func words(t *testing.T, text hadoop.Text) (in, out string, want map[string]int64) {
	t.Helper()
	in, out = filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	if _, err := text.Write(in); err != nil {
		t.Fatal(err)
	}
	want = testkit.Need(hadoop.CountWords(in))(t)
	return in, out, want
}

// What Hadoop does by itself, and the plug-in must not prevent.
func TestHadoopItself(t *testing.T) {
	testkit.Engines(t, "hadoop "+release())
	t.Run("job for no queue", jobForNoQueueIsRefused)
	t.Run("bounds of queues", boundsOfQueuesFollow)
	t.Run("node killed", jobOutlivesAKilledNode)
	t.Run("master and ResourceManager killed", jobOutlivesItsMasterAndTheResourceManager)
}

func jobForNoQueueIsRefused(t *testing.T) {
	c, ctx := shared(t), within(t)
	in, out, _ := words(t, hadoop.Text{Files: 1, Bytes: 1000, Seed: 1})
	r, err := c.Run(ctx, hadoop.Job{Program: "wordcount", Queue: "absent", Args: []string{in, out}})
	if err != nil || r.State != "FAILED" || !strings.Contains(r.Diagnostics, "rejected") || r.History != nil {
		t.Errorf("%+v, %v; want it rejected", r, err)
	}
}

func boundsOfQueuesFollow(t *testing.T) {
	c, ctx := shared(t), within(t)
	bounded := hadoop.Queues3()
	bounded[1].MaxMB, bounded[1].MaxVCores = 1024, 3
	for _, queues := range [][]hadoop.Queue{bounded, hadoop.Queues3()} {
		testkit.Check(t, c.SetQueues(ctx, queues))
		uses, err := c.QueueUses(ctx)
		if err != nil || len(uses) != 3 {
			t.Fatalf("queues %+v, %v", uses, err)
		}
		for i, u := range uses {
			if is, want := u.Max.VCores == 3, queues[i].MaxVCores == 3; "root."+queues[i].Name != u.Name || is != want {
				t.Errorf("%s is bounded by %d vcores, %d were set", u.Name, u.Max.VCores, queues[i].MaxVCores)
			}
		}
	}
}
