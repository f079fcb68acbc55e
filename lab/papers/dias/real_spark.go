package dias

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/lab/cluster"
	"headroom/lab/papers"
	"headroom/lab/spark"
)

// The same on an unmodified Spark: its master, a worker on each emulated node with powerd,
// and word popularity over made-up posts, whose input stage the hook thins. The policies'
// jobs are submitted to the scheduler, which starts a driver for each; those of Figs. 4 and 6
// run without it.

// The shape of a run on Spark.
const (
	sparkCores, sparkBytes = 2, 9 << 20
	// sparkTop is how many words are compared, sparkAsked how many are asked for: a frequent
	// word may seem less so.
	sparkTop, sparkAsked = 100, 400
	// sparkJob is about how long a job takes on capped nodes with all tasks, sparkGap how long
	// after the one before it comes, half of that more or less; of sparkHigh jobs one is of the
	// high class. So few jobs of Poisson streams may all come apart, or all of one class.
	sparkJob, sparkGap, sparkHigh = 15 * time.Second, 12 * time.Second, 3
	// sparkSprintAfter is the sprint timer, of the high class: a driver takes some seconds to
	// get its first executors, and a job that runs nowhere yet has no nodes to sprint on.
	sparkSprintAfter = 5 * time.Second
)

// onSpark is the engine spark.
func (o *options) onSpark(ctx context.Context, progress io.Writer) (targets []papers.Target, err error) {
	r := &realRun{jobs: sparkTrace(o.Seed, cmp.Or(o.realJobs, sparkJobs))}
	if r.Real, err = newReal(o, progress, "spark", "headroom-spark.jar", "headroom-spark-apps.jar"); err != nil {
		return nil, err
	}
	defer r.Remove()
	release, err := spark.Fetch(ctx, spark.Version, "", func(text string) { r.Note("%s", text) })
	if errors.Is(err, spark.ErrUnavailable) {
		return nil, cli.Failed("install what is missing, or leave --engine away: the simulation needs none of it", "--engine spark: %w", err)
	}
	if err != nil {
		return nil, err
	}
	exact, err := r.makePosts()
	if err != nil {
		return nil, err
	}
	r.engine = realEngine{job: sparkJob, sprintAfter: sparkSprintAfter, spec: r.sparkSpec, begin: func(ctx context.Context, name string) (string, func() error, error) {
		return r.beginSpark(ctx, name, release)
	}}
	all, err := r.policies(ctx)
	if err != nil {
		return nil, err
	}
	results := realResults(all)
	if err := o.Keep(papers.Files{"runs.csv": results.write}); err != nil { // what follows may be cut short
		return nil, err
	}
	points, err := r.sparkRatios(ctx, release, exact)
	if err != nil {
		return nil, fmt.Errorf("jobs by drop ratio: %w", err)
	}
	if err := o.Keep(papers.Files{"ratios.csv": ratioFile(points)}); err != nil {
		return nil, err
	}
	return append(results.targets(), ratioTargets(points)...), nil
}

// sparkTrace is when which jobs come: somewhat faster than they are done, so that they queue.
func sparkTrace(seed uint64, n int) (jobs []arrival) {
	rng, at := mathrand.New(mathrand.NewPCG(seed, 99)), 0.0
	for i := range n {
		at += sparkGap.Seconds() * (0.5 + rng.Float64())
		a := arrival{fmt.Sprintf("j%06d", i), seconds(at), low}
		if i%sparkHigh == 1 {
			a.class = high
		}
		jobs = append(jobs, a)
	}
	return jobs
}

// makePosts writes the input of all jobs and counts its words.
func (r *realRun) makePosts() (exact map[string]float64, err error) {
	if _, err := (spark.Posts{Bytes: sparkBytes, Topical: 0.3, Seed: r.Seed}).Write(r.posts()); err != nil {
		return nil, err
	}
	return spark.CountWords(r.posts())
}

func (r *realRun) posts() string { return r.Path("Posts.xml") }

// words is the application at a drop ratio.
func (r *realRun) words(d spark.Drop) spark.Job {
	return spark.WordPopularity(r.Program("headroom-spark-apps.jar"), r.posts(), partitions, sparkAsked, d)
}

// sparkSpec is the job file of a class; floor is the least part of its map tasks, in percent.
func (r *realRun) sparkSpec(class string, floor int) []byte {
	j := r.words(spark.Drop{})
	text := fmt.Appendf(nil, "name: %s\nclass: %s\nslots: %d\nmin_tasks: %d%%\nspark:\n  application: %q\n  main: %s\n  args:\n",
		j.Name, class, realNodes*sparkCores, floor, j.Application, j.Main)
	for _, a := range j.Args {
		text = fmt.Appendf(text, "    - %q\n", a)
	}
	return text
}

// beginSpark starts Spark on the site's nodes, without a hook of its own: the scheduler gives
// its drivers theirs.
func (r *realRun) beginSpark(ctx context.Context, name string, release spark.Release) (string, func() error, error) {
	c, err := r.startSpark(ctx, name, spark.Config{Release: release})
	if err != nil {
		return "", nil, err
	}
	return sparkSection(c.Release().Home, c.Master(), r.Program("headroom-spark.jar"), c.ConfDir(), c.Hosts()), c.Close, nil
}

// sparkSection is the section of scheduler.yaml; hosts are the nodes' names by their workers' hosts.
func sparkSection(home, master, plugin, conf string, hosts map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "spark:\n  home: %q\n  master: %q\n  plugin: %q\n  kill_after: 5s\n  driver: [/usr/bin/env, %q]\n  nodes:\n", home, master, plugin, "SPARK_CONF_DIR="+conf)
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		fmt.Fprintf(&b, "    %q: %q\n", host, hosts[host])
	}
	return b.String()
}

// startSpark starts a cluster on the site's nodes.
func (r *realRun) startSpark(ctx context.Context, name string, config spark.Config) (*spark.Cluster, error) {
	r.Note("%s: starting Spark %s", name, spark.Version)
	config.Dir = r.Path("spark-" + name)
	for _, node := range r.Site.Nodes() {
		config.Nodes = append(config.Nodes, spark.Node{Name: node, Cores: sparkCores, Wrap: cluster.OnNode(r.Program("powerlab"), r.Site.NodeDir(), node)})
	}
	return spark.Start(ctx, config)
}

// sparkRatios runs the application at all ratios, one after the other.
func (r *realRun) sparkRatios(ctx context.Context, release spark.Release, exact map[string]float64) (points []ratioPoint, err error) {
	err = r.onNodes(ctx, "ratios", func(ctx context.Context) (err error) {
		starting, cancel := context.WithTimeout(ctx, realPatience)
		defer cancel()
		c, err := r.startSpark(starting, "ratios", spark.Config{Release: release, Plugin: r.Program("headroom-spark.jar")})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		points, err = r.popularity(ctx, c, exact)
		return err
	})
	return points, err
}

// popularity runs the application at all ratios on a cluster.
func (r *realRun) popularity(ctx context.Context, c *spark.Cluster, exact map[string]float64) (points []ratioPoint, err error) {
	for repeat := range uint64(realRepeats) {
		for _, percent := range realRatios() {
			drop := spark.Drop{Theta: float64(percent) / 100, Seed: r.Seed + repeat}
			one, cancel := context.WithTimeout(ctx, realPatience)
			answer, _, err := c.Ask(one, r.words(drop))
			cancel()
			if err != nil {
				return nil, fmt.Errorf("dias: %d %%: %w", percent, err)
			}
			p := ratioPoint{percent, answer.Kept, answer.Seconds, 100 * spark.MeanError(exact, answer.Counts(), sparkTop)}
			r.Note("%d %% dropped: %d of %d partitions, %.1f s, error %.1f %%", percent, p.kept, answer.Total, p.exec, p.error)
			points = append(points, p)
		}
	}
	return points, nil
}
