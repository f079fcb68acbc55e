// Claims: the nodes of a cluster are listed, a word count on it is what Go counts, and
// its history has every map.
package hadoop

import (
	"maps"
	"path/filepath"
	"testing"

	"headroom/hadoop"
)

func TestWordCountIsRight(t *testing.T) {
	c, ctx := shared(t), within(t)
	nodes, err := c.States(ctx)
	if err != nil || len(nodes) != 2 || nodes[0].Name != "node1" || nodes[0].State != "RUNNING" || nodes[1].Name != "node2" {
		t.Fatalf("nodes %+v, %v", nodes, err)
	}
	in, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	text := hadoop.Text{Files: 4, Bytes: 50_000, Topical: 0.5, Seed: 1}
	if _, err := text.Write(in); err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(ctx, hadoop.Job{Program: "wordcount", Queue: "q1", Args: []string{in, out}})
	if err != nil || !r.Succeeded() || r.Queue != "root.q1" {
		t.Fatalf("%+v, %v", r, err)
	}
	want, err := hadoop.CountWords(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := hadoop.ReadCounts(out)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d words counted, %d are right, %v", len(got), len(want), err)
	}
	if r.History == nil || len(r.History.Of("MAP", "SUCCEEDED")) != text.Files {
		t.Fatalf("history %+v", r.History)
	}
	var words int64
	for _, n := range want {
		words += n
	}
	if n, ok := r.History.Counters.Get(hadoop.TaskCounter, "MAP_OUTPUT_RECORDS"); !ok || n != words {
		t.Errorf("%d words in the counters, %d in the files", n, words)
	}
	t.Logf("elapsed %v", r.Elapsed())
	for _, a := range r.History.Attempts {
		t.Log(a.ID, a.Kind, a.Node, a.Status, a.Elapsed())
	}
}
