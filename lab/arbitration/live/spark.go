package live

import (
	"context"
	"path/filepath"
	"time"

	"headroom/lab/papers"
	"headroom/lab/spark"
)

// The shape of a Spark.
const (
	jarSpark, jarSparkApps = "headroom-spark.jar", "headroom-spark-apps.jar"
	// sparkCores is how many cores a node's Worker offers; an executor has one, and so much memory, MiB, with what is beside it.
	sparkCores, sparkMemory = 2, 768
	// sparkBytes is the length of a partition, sparkTop how many words jobs find.
	sparkBytes, sparkTop = 1 << 20, 100
)

// sparkPlan has fewer and longer jobs than localPlan: each starts a driver and up to four executors.
//
// A standalone Master gives all cores to whoever came first, so that policy fair, which leaves the division to the engine,
// would serve nobody by class. Under np with width 2 the next driver to begin is the most urgent one, and policy equal
// gives both the same number of executors.
func sparkPlan() plan {
	return plan{
		streams: streams(
			each{16, 80 * time.Second, 75 * time.Second},
			each{32, 160 * time.Second, 2 * time.Minute},
			each{80, 160 * time.Second, 0},
		),
		drain:    10 * time.Minute,
		variants: against("equal", "width: 2\n", "container policy equal, discipline np for two drivers at once: the more urgent begins next, and both have as many executors"),
	}
}

// sparkLab is Spark on the nodes of a run's site.
type sparkLab struct {
	*papers.Real

	release spark.Release
}

// onSpark is an unmodified standalone Spark with a Worker on each node, again for each run.
func onSpark(ctx context.Context, r *papers.Real) (*engine, error) {
	s, p := &sparkLab{Real: r}, sparkPlan()
	var err error
	if s.release, err = r.Spark(ctx); err != nil {
		return nil, err
	}
	for i, x := range p.streams {
		if _, err := (spark.Posts{Bytes: int64(x.tasks) * sparkBytes, Topical: 0.3, Seed: r.Seed + uint64(i)}).Write(s.posts(x.name)); err != nil {
			return nil, err
		}
	}
	return &engine{plan: p, begin: s.begin}, nil
}

// posts is what jobs of a stream read.
func (s *sparkLab) posts(stream string) string { return s.Path("in", stream+".xml") }

func (s *sparkLab) begin(ctx context.Context, name string, _ *variant) (*running, error) {
	config := spark.Config{Dir: s.Path("spark-" + name), Release: s.release, Nodes: s.SparkNodes(sparkCores, sparkCores*sparkMemory)}
	c, err := spark.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	spec := func(a *arrival) []byte { return sparkSpec(a, s.Program(jarSparkApps), s.posts(a.stream)) }
	return &running{
		configuration: c.Section(s.Program(jarSpark), 1).String(), submit: submitter(s.Real, spec), logs: filepath.Join(config.Dir, "logs"), end: c.Close,
	}, nil
}

// sparkSpec is the job file of an arrival.
func sparkSpec(a *arrival, apps, in string) []byte {
	j := spark.WordPopularity(apps, in, a.Tasks, sparkTop, spark.Drop{})
	j.Conf = spark.Decommission()
	return append(a.terms(nodes*sparkCores), j.Spec()...)
}
