// Claims, left to make engines: the same jars do on the older releases of Spark what the suite shows on the newest.
package spark

import (
	"path/filepath"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/cluster"
	"headroom/lab/spark"
)

func TestSpark3(t *testing.T) {
	testkit.Engines(t, "spark "+spark.Version)
	onRelease(t, spark.Version)
}

func TestSpark4(t *testing.T) {
	testkit.Engines(t, "spark "+spark.Version4)
	onRelease(t, spark.Version4)
}

// onRelease runs what depends on Spark's own classes in a cluster of that release.
func onRelease(t *testing.T, version string) {
	t.Helper()
	release, err := fetch(version)
	permitted(t, err)
	root := testkit.Need(filepath.Abs(filepath.Join("..", "..", "..")))(t)
	bin := filepath.Join(root, "bin")
	ctx := within(t)
	permitted(t, cluster.BuildHooks(ctx, root, bin))
	c, err := spark.Start(ctx, spark.Config{Dir: filepath.Join(scratch(), version), Release: release, Nodes: spark.Nodes(1), Plugin: filepath.Join(bin, "headroom-spark.jar")})
	permitted(t, err)
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	in, bytes := posts(t)
	exact := testkit.Need(spark.CountWords(in))(t)
	for _, theta := range []float64{0, 0.4} {
		a, r, err := c.Ask(ctx, spark.WordPopularity(filepath.Join(bin, "headroom-spark-apps.jar"), in, partitions, asked, spark.Drop{Theta: theta, Seed: seed}))
		if err != nil {
			t.Fatal(err)
		}
		m := measure{theta, spark.MeanError(exact, a.Counts(), top), a, r.Log}
		m.judge(t, bytes)
		if (theta == 0) != (m.wrong == 0) || m.wrong > 0.5 {
			t.Errorf("theta %v: error %v", theta, m.wrong)
		}
	}
	plans(t, c)
	ownBound(within(t), t, c)
	onSlots(within(t), t, c, []string{"node1"})
}
