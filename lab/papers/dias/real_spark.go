package dias

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"headroom/lab/report"
	"headroom/lab/spark"
)

// The same on an unmodified Spark: its master, a worker on each emulated node with powerd,
// and two programs: word popularity over made-up posts, and GraphX's triangle count of a
// made-up graph, both thinned by the hook. The policies' jobs are submitted to the
// scheduler, which starts a driver for each; those of Figs. 4 and 6 run without it.

// The programs of real runs, and how the ids of their targets begin.
const (
	wordsProgram, wordsIDs = "words", "L"
	graphProgram, graphIDs = "graph", "G"
	// wordsPower and graphPower are with which power of the kept part a count grows: a
	// triangle is there if all of its edges are.
	wordsPower, graphPower = 1, 3
)

// The shape of a run on Spark.
const (
	sparkCores, sparkBytes = 2, 9 << 20
	// sparkTop is how many words are compared, sparkAsked how many are asked for: a frequent
	// word may seem less so.
	sparkTop, sparkAsked = 100, 400
	// graphVertices, graphEdges and graphParts are the graph, and in how many partitions it is read.
	graphVertices, graphEdges, graphParts = 4000, 30000, 5
	// sparkJob and graphJob are about how long a job takes on capped nodes with all tasks, the
	// gaps how long after the one before it comes, half of that more or less; of sparkHigh jobs
	// one is of the high class. So few jobs of Poisson streams may all come apart, or all of
	// one class.
	sparkJob, sparkGap, sparkHigh = 20 * time.Second, 12 * time.Second, 3
	graphJob, graphGap            = 15 * time.Second, 7 * time.Second
	// sparkCap is the nodes' max over what they are rated: below it the start of a JVM alone
	// takes most of a job.
	sparkCap = 0.7
	// sparkSprintAfter is the sprint timer, of the high class: a driver takes some seconds to
	// get its first executors, and a job that runs nowhere yet has no nodes to sprint on.
	sparkSprintAfter = 5 * time.Second
)

// sparkRun is a real run on Spark, with what it has found so far.
type sparkRun struct {
	*realRun

	release spark.Release
	// words are the exact counts of the posts, triangles that of the graph.
	words     map[string]float64
	triangles float64
	all       []realResult
}

// onSpark is the engine spark: the graph part several times, and then, unless it is to be
// quick, the words part and both programs at all drop ratios.
func (o *options) onSpark(ctx context.Context, progress io.Writer) (targets []report.Target, err error) {
	r := &sparkRun{realRun: &realRun{}}
	if r.Real, err = newReal(o, progress, "spark", "headroom-spark.jar", "headroom-spark-apps.jar"); err != nil {
		return nil, err
	}
	defer r.Remove()
	if r.release, err = r.Spark(ctx); err != nil {
		return nil, err
	}
	if err := r.makeInputs(); err != nil {
		return nil, err
	}
	r.took = func(x realResult) error { // what follows may be cut short
		r.all = append(r.all, x)
		return o.Keep(report.Files{"runs.csv": runsFile(r.all)})
	}
	var graphs, words realRounds
	for round := 1; round <= o.runs; round++ {
		r.Note("%s: run %d of %d", graphProgram, round, o.runs)
		r.engine, r.jobs = r.graphs(), sparkTrace(o.Seed+uint64(round)-1, cmp.Or(o.realJobs, graphJobs), graphGap)
		one, err := r.policies(ctx, round)
		if err != nil {
			return nil, err
		}
		graphs = append(graphs, one)
	}
	counts, triangles := wordCurve(nil), graphCurve(nil)
	if !o.quick {
		r.engine, r.jobs = r.popularities(), sparkTrace(o.Seed, cmp.Or(o.realJobs, sparkJobs), sparkGap)
		one, err := r.policies(ctx, 1)
		if err != nil {
			return nil, err
		}
		words = realRounds{one}
		if err := r.curves(ctx, &counts, &triangles); err != nil {
			return nil, fmt.Errorf("jobs by drop ratio: %w", err)
		}
		if err := o.Keep(report.Files{"ratios.csv": ratioFile(counts, triangles)}); err != nil {
			return nil, err
		}
	}
	return slices.Concat(graphs.targets(graphIDs, graphProgram, graphPower), triangles.targets(), words.targets(wordsIDs, wordsProgram, wordsPower), counts.targets()), nil
}

// sparkTrace is when which jobs come: somewhat faster than they are done, so that they queue.
func sparkTrace(seed uint64, n int, gap time.Duration) (jobs []arrival) {
	rng, at := mathrand.New(mathrand.NewPCG(seed, 99)), 0.0
	for i := range n {
		at += gap.Seconds() * (0.5 + rng.Float64())
		a := arrival{fmt.Sprintf("j%06d", i), seconds(at), low}
		if i%sparkHigh == 1 {
			a.class = high
		}
		jobs = append(jobs, a)
	}
	return jobs
}

// makeInputs writes the input of all jobs, and counts its words and its triangles.
func (r *sparkRun) makeInputs() (err error) {
	if _, err := (spark.Posts{Bytes: sparkBytes, Topical: 0.3, Seed: r.Seed}).Write(r.posts()); err != nil {
		return err
	}
	if _, err := (spark.Graph{Vertices: graphVertices, Edges: graphEdges, Seed: r.Seed}).Write(r.edges()); err != nil {
		return err
	}
	if r.words, err = spark.CountWords(r.posts()); err != nil {
		return err
	}
	r.triangles, err = spark.CountTriangles(r.edges())
	return err
}

// popularities is Spark with word popularity as the program.
func (r *sparkRun) popularities() realEngine {
	return realEngine{
		program: wordsProgram, job: sparkJob, cap: sparkCap, sprintAfter: sparkSprintAfter, begin: r.beginSpark,
		spec:  func(class string, floor int) []byte { return sparkSpec(class, floor, r.popularity(spark.Drop{})) },
		wrong: func(id string) (float64, error) { return r.wrong(id, r.missedWords) },
	}
}

// graphs is Spark with the triangle count as the program, which drops in every stage, as the
// paper's does.
func (r *sparkRun) graphs() realEngine {
	return realEngine{
		program: graphProgram, job: graphJob, cap: sparkCap, sprintAfter: sparkSprintAfter, begin: r.beginSpark,
		spec: func(class string, floor int) []byte {
			return sparkSpec(class, floor, r.count(spark.Drop{Stages: "all"}))
		},
		wrong: func(id string) (float64, error) { return r.wrong(id, r.missedTriangles) },
	}
}

// wrong is by how many percent the answer of a job misses the exact one, as the driver of its
// last execution has printed it.
func (r *sparkRun) wrong(id string, missed func(spark.Answer) float64) (float64, error) {
	runs, err := filepath.Glob(r.Site.Path("scheduler", "jobs", id, "run-*", "stdout"))
	if err != nil || len(runs) == 0 {
		return 0, fmt.Errorf("dias: no answer of %s: %w", id, cmp.Or(err, os.ErrNotExist))
	}
	slices.SortFunc(runs, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	text, err := os.ReadFile(runs[len(runs)-1])
	if err != nil {
		return 0, fmt.Errorf("dias: answer of %s: %w", id, err)
	}
	answer, err := spark.ReadAnswer(string(text))
	return missed(answer), err
}

func (r *sparkRun) missedWords(a spark.Answer) float64 {
	return 100 * spark.MeanError(r.words, a.Counts(), sparkTop)
}

func (r *sparkRun) missedTriangles(a spark.Answer) float64 {
	return 100 * math.Abs(a.Triangles-r.triangles) / r.triangles
}

func (r *sparkRun) posts() string { return r.Path("Posts.xml") }

func (r *sparkRun) edges() string { return r.Path("edges.txt") }

// popularity and count are the programs at a drop ratio.
func (r *sparkRun) popularity(d spark.Drop) spark.Job {
	return spark.WordPopularity(r.Program("headroom-spark-apps.jar"), r.posts(), partitions, sparkAsked, d)
}

func (r *sparkRun) count(d spark.Drop) spark.Job {
	return spark.Triangles(r.Program("headroom-spark-apps.jar"), r.edges(), graphParts, d)
}

// sparkSpec is the job file of a program for a class; floor is the least part of its map
// tasks, in percent.
func sparkSpec(class string, floor int, j spark.Job) []byte {
	text := fmt.Appendf(nil, "name: %s\nclass: %s\nslots: %d\nmin_tasks: %d%%\nspark:\n  application: %q\n  main: %s\n",
		j.Name, class, realNodes*sparkCores, floor, j.Application, j.Main)
	if j.Stages != "" {
		text = fmt.Appendf(text, "  conf: {spark.headroom.stages: %s}\n", j.Stages)
	}
	text = append(text, "  args:\n"...)
	for _, a := range j.Args {
		text = fmt.Appendf(text, "    - %q\n", a)
	}
	return text
}

// beginSpark starts Spark on the site's nodes, without a hook of its own: the scheduler gives
// its drivers theirs.
func (r *sparkRun) beginSpark(ctx context.Context, name string) (string, func() error, error) {
	c, err := r.startSpark(ctx, name, spark.Config{Release: r.release})
	if err != nil {
		return "", nil, err
	}
	return c.Section(r.Program("headroom-spark.jar"), 0).String(), c.Close, nil
}

// startSpark starts a cluster on the site's nodes.
func (r *sparkRun) startSpark(ctx context.Context, name string, config spark.Config) (*spark.Cluster, error) {
	r.Note("%s: starting Spark %s", name, spark.Version)
	config.Dir, config.Nodes = r.Path("spark-"+name), r.SparkNodes(sparkCores, 0)
	return spark.Start(ctx, config)
}

// curves runs both programs at all their ratios, one job after the other.
func (r *sparkRun) curves(ctx context.Context, words, triangles *ratioCurve) error {
	return r.onNodes(ctx, "ratios", func(ctx context.Context) (err error) {
		starting, cancel := context.WithTimeout(ctx, realPatience)
		defer cancel()
		c, err := r.startSpark(starting, "ratios", spark.Config{Release: r.release, Plugin: r.Program("headroom-spark.jar")})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		if err := r.curve(ctx, c, words, r.popularity, r.missedWords); err != nil {
			return err
		}
		return r.curve(ctx, c, triangles, func(d spark.Drop) spark.Job { d.Stages = "all"; return r.count(d) }, r.missedTriangles)
	})
}

// curve runs a program at all its ratios on a cluster.
func (r *sparkRun) curve(ctx context.Context, c *spark.Cluster, to *ratioCurve, job func(spark.Drop) spark.Job, missed func(spark.Answer) float64) error {
	for repeat := range uint64(realRepeats) {
		for _, percent := range to.ratios {
			one, cancel := context.WithTimeout(ctx, realPatience)
			answer, _, err := c.Ask(one, job(spark.Drop{Theta: float64(percent) / 100, Seed: r.Seed + repeat}))
			cancel()
			if err != nil {
				return fmt.Errorf("dias: %s, %d %%: %w", to.program, percent, err)
			}
			p := ratioPoint{percent, answer.Kept, answer.Seconds, missed(answer)}
			r.Note("%s, %d %% dropped: %d of %d partitions, %.1f s, error %.1f %%", to.program, percent, p.kept, answer.Total, p.exec, p.error)
			to.points = append(to.points, p)
		}
	}
	return nil
}
