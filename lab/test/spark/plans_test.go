// Claims, on an unmodified Spark, for RDDs and for SQL with and without adaptive execution: counts, aggregations by key and inner joins
// are of the sample, and a job's own ratio holds; what would invent rows, or lose some for good, is exact and reports why: subtract,
// outer and anti joins, EXCEPT, NOT IN, subqueries, conditions on aggregates, windows, rows that are only moved, zip, and streaming
// of both kinds; nothing is thinned twice across checkpoints, and the sample behind them is the one that is reported.
package spark

import (
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/spark"
)

// outcome is what one plan of testdata/plans.py gave.
type outcome struct {
	Got     any
	Thinned bool
	Why     string
}

// sampled and exactly are what plans give: 60 of 80 numbers are in the sample.
func sampled(got any) outcome { return outcome{Got: got, Thinned: true} }

func exactly(got float64, why string) outcome { return outcome{Got: got, Why: why} }

// plansWanted are the outcomes of testdata/plans.py.
func plansWanted() map[string]outcome {
	want := map[string]outcome{
		"rdd: keys":                                sampled(60.0),
		"rdd: subtract":                            exactly(0, "several inputs: union"),
		"rdd: missing in a left outer join":        exactly(0, "several inputs: union"),
		"rdd: zip":                                 exactly(80, "several inputs: zip"),
		"rdd: cached input":                        exactly(80, "it reads a cached RDD"),
		"rdd: inner join of a named input":         sampled(60.0),
		"rdd: three checkpoints, and the estimate": sampled([]any{60.0, 60.0, 60.0, 80.0}),
		"structured streaming: rows":               exactly(80, ""),
		"streaming: batches":                       {Got: []any{80.0, 80.0}, Why: "a streaming query: it would lose state permanently"},
	}
	for name, o := range map[string]outcome{
		"count":                  sampled(60.0),
		"groups":                 sampled(60.0),
		"inner join with itself": sampled(60.0),
		"anti join":              exactly(0, "a join of type LeftAnti"),
		"outer join":             exactly(0, "a join of type LeftOuter"),
		"except all":             exactly(0, "a condition on an aggregate"),
		"not in":                 exactly(0, "a join of type LeftAnti"),
		"subquery":               exactly(27, "a subquery"),
		"having":                 exactly(0, "a condition on an aggregate"),
		"window":                 exactly(5, "the operator Window"),
		"written":                exactly(80, ""), // reading it back needs no shuffle
		"rdd of an anti join":    exactly(0, "the RDD of a DataFrame: its query is unknown"),
		"local property 0":       exactly(80, ""),
		"local property 0.5":     sampled(40.0),
		"no local property":      sampled(60.0),
	} {
		want["sql, adaptive true: "+name], want["sql, adaptive false: "+name] = o, o
	}
	return want
}

func TestPlans(t *testing.T) {
	plans(t, shared(t).Cluster)
}

// plans runs testdata/plans.py in one process, where tasks cost least; it has as many actions as ten other tests.
func plans(t *testing.T, c *spark.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	r, err := c.Run(ctx, spark.Job{
		Name: "plans", Application: testkit.Need(filepath.Abs(filepath.Join("testdata", "plans.py")))(t), Args: []string{t.TempDir()}, Drop: spark.Drop{Theta: 0.25, Seed: 1},
		Master: "local[2]", Conf: map[string]string{"spark.sql.shuffle.partitions": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(r.Output, "PLANS ")
	var got map[string]outcome
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&got); !ok || err != nil {
		t.Fatalf("%v in %s", err, r.Output)
	}
	t.Logf("Spark %s: %d plans, all %v", c.Release().Version, len(got), r.Elapsed)
	want := plansWanted()
	for name, w := range want {
		if g := got[name]; !reflect.DeepEqual(g, w) {
			t.Errorf("Spark %s: %s: %+v, want %+v", c.Release().Version, name, g, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d plans, want %d", len(got), len(want))
	}
}
