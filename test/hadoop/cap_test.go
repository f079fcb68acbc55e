// Claim: a cap on an emulated node slows the maps that run on it: the same work takes
// them longer than on a node without one.
package hadoop

import (
	"testing"
	"time"

	"headroom/hadoop"
)

func TestCapSlowsTheMapsOfItsNode(t *testing.T) {
	c, ctx := shared(t), within(t)
	const (
		capped = 45_000_000  // of the package: about two fifths of its speed
		full   = 185_000_000 // the package's factory value
		// slower is what the test asks for, well below what the cap means: other work
		// of this machine slows the node without a cap.
		slower = 1.4
	)
	c.limit(t, "n2", capped)
	t.Cleanup(func() { c.limit(t, "n2", full) })
	in, out, _ := words(t, hadoop.Text{Files: 7, Bytes: 200_000, Topical: 0.5, Seed: 2})
	// One reduce that starts last, so that the maps have the nodes for themselves.
	r, err := c.Run(ctx, hadoop.Job{
		Program: "wordcount", Queue: "q1", Args: []string{in, out},
		Properties: map[string]string{"mapreduce.job.reduce.slowstart.completedmaps": "1.0"},
	})
	if err != nil || !r.Succeeded() || r.History == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	wall, cpu, count := map[string]time.Duration{}, map[string]time.Duration{}, map[string]int{}
	for _, a := range r.History.Of("MAP", "SUCCEEDED") {
		ms, _ := a.Counters.Get(hadoop.TaskCounter, "CPU_MILLISECONDS")
		wall[a.Node] += a.Elapsed()
		cpu[a.Node] += time.Duration(ms) * time.Millisecond
		count[a.Node]++
	}
	if count["n1"] == 0 || count["n2"] == 0 {
		t.Fatalf("maps per node: %v", count)
	}
	// Wall time per CPU time: how long the same work takes.
	free, held := ratio(wall["n1"], cpu["n1"]), ratio(wall["n2"], cpu["n2"])
	t.Logf("maps %v; seconds per CPU second: %.1f without a cap, %.1f with one", count, free, held)
	if held < slower*free {
		t.Errorf("a CPU second takes %.1f s on the capped node, %.1f s on the other: the cap does not slow its maps", held, free)
	}
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
