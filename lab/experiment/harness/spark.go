package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"headroom/lab/experiment"
	"headroom/lab/spark"
)

// SparkCores is how many cores a node's Worker offers.
const SparkCores = 2

// App is what jobs on Spark compute.
type App struct {
	// Write writes the input of a job before anything is started.
	Write func(r *experiment.Run, j *Job) error
	// Job is the application of a job.
	Job func(r *experiment.Run, j *Job) spark.Job
	// Wrong is by how many percent an answer misses the exact one; nil where it is not compared.
	Wrong func(a spark.Answer) float64
	// ExecutorCores and MemoryMB are an executor's cores and a Worker's memory; 0 for the defaults of the scheduler and of Spark.
	ExecutorCores, MemoryMB int
}

// Spark is an unmodified standalone Spark with a Worker on each node. The scheduler starts the drivers.
func Spark(a App) Engine {
	return Engine{
		Files: []string{JarSpark, JarSparkApps}, Blind: true,
		Prepare: func(_ context.Context, r *experiment.Run, s *Setup) error {
			for i := range s.Jobs {
				if err := a.Write(r, &s.Jobs[i]); err != nil {
					return err
				}
			}
			return nil
		},
		Begin: func(ctx context.Context, l *Lab, s *Setup) (*Running, error) {
			c, err := StartSpark(ctx, l.Run, spark.Config{Nodes: l.SparkNodes(SparkCores, a.MemoryMB)})
			if err != nil {
				return nil, err
			}
			submit := func(ctx context.Context, j *Job) (string, error) {
				app := a.Job(l.Run, j)
				conf := map[string]string{}
				maps.Copy(conf, app.Conf)
				maps.Copy(conf, s.Variant.Stock)
				app.Conf = conf
				if app.Stages != "" {
					app.Conf["spark.headroom.stages"] = app.Stages
				}
				if j.Slow != nil {
					app.Args = append(app.Args, j.draws())
				}
				return l.submit(ctx, j.terms(&s.Variant, s.Nodes*SparkCores)+app.Spec(), j.Waits)
			}
			running := &Running{
				Name: "Spark " + spark.Version, Section: c.Section(l.Program(JarSpark), a.ExecutorCores).String(), Submit: submit, Cancel: l.cancel, Close: c.Close,
				Queues: func(ctx context.Context) ([]Queue, error) { return classCores(s.Jobs)(c.Cores(ctx)) }, Dropped: l.unread, Pages: []string{c.Web()},
			}
			if a.Wrong != nil {
				running.Wrong = func(id string) (float64, error) { return l.wrong(id, a.Wrong) }
			}
			return running, nil
		},
	}
}

// StartSpark starts a Spark in the run's folder, and fetches its release where it is missing.
func StartSpark(ctx context.Context, r *experiment.Run, config spark.Config) (*spark.Cluster, error) {
	var err error
	if config.Release, err = spark.Fetch(ctx, spark.Version, "", func(text string) { r.Note("%s", text) }); err != nil {
		return nil, unavailable(err)
	}
	r.Note("starting Spark %s", spark.Version)
	config.Dir = r.Path("spark")
	return spark.Start(ctx, config)
}

// answer is what the driver of a job's last execution has printed.
func (l *Lab) answer(id string) (a spark.Answer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("experiment: answer of %s: %w", id, err)
		}
	}()
	runs, err := filepath.Glob(l.Site.Path("scheduler", "jobs", id, "run-*", "stdout"))
	if err == nil && len(runs) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return a, err
	}
	slices.SortFunc(runs, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	text, err := os.ReadFile(runs[len(runs)-1])
	a, unread := spark.ReadAnswer(string(text))
	return a, errors.Join(err, unread)
}

// wrong compares the answer of a job.
func (l *Lab) wrong(id string, wrong func(spark.Answer) float64) (float64, error) {
	a, err := l.answer(id)
	if err != nil {
		return 0, err
	}
	return wrong(a), nil
}

// unread is how many partitions a job did not read, by its answer.
func (l *Lab) unread(_ context.Context, id string) *int {
	a, err := l.answer(id)
	if err != nil {
		return nil
	}
	return new(a.Total - a.Kept)
}

// classCores returns the cores of the classes of jobs, whose names begin with it. A standalone Spark has no bounds.
func classCores(jobs []Job) func(cores map[string]int, err error) ([]Queue, error) {
	classes := map[string]bool{}
	for i := range jobs {
		classes[jobs[i].Class] = true
	}
	return func(cores map[string]int, err error) (queues []Queue, _ error) {
		for _, class := range slices.Sorted(maps.Keys(classes)) {
			q := Queue{Name: class}
			for name, n := range cores {
				if strings.HasPrefix(name, class+"-") {
					q.Used += n
				}
			}
			queues = append(queues, q)
		}
		return queues, err
	}
}

// Popularity finds the most frequent words of posts, a partition of this length for each task.
func Popularity(bytes int64) App {
	posts := func(r *experiment.Run, j *Job) string { return r.Path("in", fmt.Sprintf("%d.xml", j.Tasks)) }
	return App{
		ExecutorCores: 1, MemoryMB: SparkCores * 768,
		Write: func(r *experiment.Run, j *Job) error {
			if _, err := os.Stat(posts(r, j)); err == nil {
				return nil
			}
			_, err := spark.Posts{Bytes: int64(j.Tasks) * bytes, Topical: 0.3, Seed: r.Seed}.Write(posts(r, j))
			return err
		},
		Job: func(r *experiment.Run, j *Job) spark.Job {
			app := spark.WordPopularity(r.Program(JarSparkApps), posts(r, j), j.Tasks, top, spark.Drop{})
			app.Conf = spark.Decommission()
			return app
		},
	}
}
