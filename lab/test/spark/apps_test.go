// Claims: the triangles of a power-law graph that GraphX counts in a part of its edges are
// right once scaled, and with every stage open to drops GraphX still comes to its end,
// because what it would not survive is computed whole; PySpark and DataFrames are thinned
// in what they read, and only there.
package spark

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/spark"
)

func TestTriangles(t *testing.T) {
	testkit.Engines(t, "spark "+spark.Version)
	l, ctx := shared(t), within(t)
	in := filepath.Join(t.TempDir(), "graph.txt")
	if _, err := (spark.Graph{Vertices: 3000, Edges: 24000, Seed: 8}).Write(in); err != nil {
		t.Fatal(err)
	}
	exact := testkit.Need(spark.CountTriangles(in))(t)
	for _, d := range []spark.Drop{{Theta: 0.1, Seed: seed}, {Theta: 0.1, Seed: seed, Stages: "all"}} {
		a, r, err := l.Ask(ctx, spark.Triangles(l.apps, in, 10, d))
		if err != nil {
			t.Fatal(err)
		}
		wrong := math.Abs(a.Triangles-exact) / exact
		t.Logf("%+v: %d of %d partitions, %.0f found, %.0f scaled, %.0f exact, wrong by %.1f %%, all %v", d, a.Kept, a.Total, a.Found, a.Triangles, exact, 100*wrong, r.Elapsed)
		if a.Kept != kept(a.Total, d.Theta) {
			t.Errorf("%+v: kept %d of %d", d, a.Kept, a.Total)
		}
		// Three edges of a triangle are kept with .9^3; the graph has thousands of triangles.
		if most := 0.15; wrong > most {
			t.Errorf("%+v: %.0f triangles, %.0f are right", d, a.Triangles, exact)
		}
		for _, s := range a.Shuffles {
			if !s.Input && s.Kept != s.Total {
				t.Errorf("%+v: GraphX lost partitions of shuffle %d: %d of %d", d, s.ID, s.Kept, s.Total)
			}
		}
	}
}

func TestPythonAndFrames(t *testing.T) {
	testkit.Engines(t, "spark "+spark.Version)
	l, ctx := shared(t), within(t)
	dir := t.TempDir()
	const files, words = 10, 3000 // files of one length: what is kept of them is known
	for i := range files {
		text := strings.Repeat("da du di\n", words/3)
		testkit.WriteFile(t, filepath.Join(dir, string(rune('a'+i))+".txt"), text)
	}
	script := testkit.Need(filepath.Abs(filepath.Join("testdata", "frames.py")))(t)
	r, err := l.Run(ctx, spark.Job{
		Name: "frames", Application: script, Args: []string{dir, "10"}, Drop: spark.Drop{Theta: 0.3, Seed: seed},
		// A partition per file: Spark would put small ones together.
		Conf: map[string]string{"spark.sql.files.openCostInBytes": "134217728", "spark.sql.files.maxPartitionBytes": "134217728"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(r.Output, "FRAMES ")
	var got struct {
		RDD           float64 `json:"rdd"`
		Frame         float64 `json:"frame"`
		RDDShuffles   []share `json:"rdd_shuffles"`
		FrameShuffles []share `json:"frame_shuffles"`
	}
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&got); !ok || err != nil {
		t.Fatalf("%v in %s", err, r.Output)
	}
	t.Logf("%+v, all %v", got, r.Elapsed)
	for name, c := range map[string]struct {
		words    float64
		shuffles []share
	}{"RDD": {got.RDD, got.RDDShuffles}, "DataFrame": {got.Frame, got.FrameShuffles}} {
		read := 0
		for _, s := range c.shuffles {
			if !s.Input && s.Kept != s.Total {
				t.Errorf("%s: an inner stage was thinned: %+v", name, s)
			}
			if s.Input {
				read++
				if s.Total != files || s.Kept != kept(files, 0.3) {
					t.Errorf("%s: kept %d of %d", name, s.Kept, s.Total)
				}
			}
		}
		if want := float64(words * kept(files, 0.3)); read != 1 || c.words != want {
			t.Errorf("%s: %v words by %d shuffles of the input, the kept files have %v", name, c.words, read, want)
		}
	}
}

// share is what was kept of a shuffle.
type share struct {
	Kept, Total int
	Input       bool
}
