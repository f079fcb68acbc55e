package promises

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
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

// sparkLoad has fewer and longer jobs than localLoad: each starts a driver and up to four executors.
func sparkLoad(quick bool) load {
	l := load{count: 12, within: 5 * time.Minute, least: 4, most: 24, start: 15 * time.Second, task: 3 * time.Second, slots: nodes * sparkCores}
	if !quick {
		l.count, l.within, l.most = 24, 10*time.Minute, 40
	}
	return l
}

// sparkVariants are ways to decide of Spark. A standalone Master gives all cores to whoever came first, so that the others
// run two drivers at once, with as many executors each.
func sparkVariants() []variant {
	const two = "discipline: np\nwidth: 2\n"
	return []variant{
		{name: ours, says: "admission adaptive, copies ours, container policy joint", policy: "joint", configuration: decides("adaptive", ours)},
		{
			name: stock, says: "spark.speculation off, as is Spark's default; no admission; two drivers at once, container policy equal", policy: "equal",
			configuration: two + decides("off", "none"), properties: map[string]string{"spark.speculation": "false"},
		},
		{
			name: stockBest, says: "spark.speculation that copies soon; no admission; two drivers at once, container policy equal", policy: "equal", configuration: two + decides("off", "none"),
			properties: map[string]string{
				"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.5", "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "100ms",
			},
		},
	}
}

// sparkLab is Spark on the nodes of a run's site.
type sparkLab struct {
	*papers.Real

	release spark.Release
}

// onSpark is an unmodified standalone Spark with a Worker on each node, again for each run.
func onSpark(ctx context.Context, r *papers.Real, quick bool) (*engine, error) {
	s, l := &sparkLab{Real: r}, sparkLoad(quick)
	var err error
	if s.release, err = r.Spark(ctx); err != nil {
		return nil, err
	}
	for tasks := l.least; tasks <= l.most; tasks++ {
		if _, err := (spark.Posts{Bytes: int64(tasks) * sparkBytes, Topical: 0.3, Seed: r.Seed + uint64(tasks)}).Write(s.posts(tasks)); err != nil {
			return nil, err
		}
	}
	return &engine{load: l, drain: 15 * time.Minute, variants: sparkVariants(), blind: true, begin: s.begin}, nil
}

// posts is what jobs of so many tasks read.
func (s *sparkLab) posts(tasks int) string { return s.Path("in", strconv.Itoa(tasks)+".xml") }

func (s *sparkLab) begin(ctx context.Context, name string, v *variant, run int) (*running, error) {
	config := spark.Config{Dir: s.Path("spark-" + name), Release: s.release, Nodes: s.SparkNodes(sparkCores, sparkCores*sparkMemory)}
	c, err := spark.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	submit := func(ctx context.Context, j *job) (string, error) {
		return s.SubmitWaiting(ctx, reason, s.Path("job.yaml"), sparkSpec(j, v, s.Seed+uint64(run), s.Program(jarSparkApps), s.posts(j.tasks)))
	}
	return &running{configuration: c.Section(s.Program(jarSpark), 1).String(), submit: submit, logs: filepath.Join(config.Dir, "logs"), end: c.Close}, nil
}

// sparkSpec is the job file of a job. That of a stock one promises nothing: the scheduler only starts and watches it.
func sparkSpec(j *job, v *variant, seed uint64, apps, in string) []byte {
	w, terms := spark.WordPopularity(apps, in, j.tasks, sparkTop, spark.Drop{}), ""
	w.Args, w.Conf = append(w.Args, j.draws(seed)), spark.Decommission()
	maps.Copy(w.Conf, v.properties)
	if !v.stock() {
		terms = j.terms()
	}
	return fmt.Appendf(nil, "name: %s\nclass: %s\nslots: %d\n%s%s", j.name, j.kind.class(), min(j.tasks, nodes*sparkCores), terms, w.Spec())
}
