package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"headroom/lab/spark"
)

// The shape of a Spark of the demo.
const (
	sparkCores = 2 // of a node's worker
	// sparkBytes and sparkPartitions are the input of all jobs, sparkTop how many words they find.
	sparkBytes, sparkPartitions, sparkTop = 12 << 20, 40, 50
	// sparkTheta is the drop ratio of class low, sparkFloor the least part of its tasks, in percent.
	sparkTheta, sparkFloor = 25, 60
	// sparkSprintAfter is the sprint timer of class high: a driver has no executors before.
	sparkSprintAfter = "5s"
	// The jars of the hook and of the jobs.
	sparkHook, sparkApps = "headroom-spark.jar", "headroom-spark-apps.jar"
)

// sparkEngine is a real standalone Spark with a Worker on each node. Its jobs are drivers of
// the scheduler, one at a time, highest class first.
type sparkEngine struct {
	*engineBase

	release spark.Release
	cluster *spark.Cluster
}

func newSparkEngine(ctx context.Context, base *engineBase, note func(string, ...any)) (*sparkEngine, error) {
	note("looking for Spark %s in the user's cache; pip fetches it where it is missing", spark.Version)
	release, err := spark.Fetch(ctx, spark.Version, "", func(text string) { note("%s", text) })
	if err != nil {
		return nil, err
	}
	return &sparkEngine{engineBase: base, release: release}, nil
}

func (s *sparkEngine) about() string { return "Spark " + spark.Version }

func (s *sparkEngine) posts() string { return s.dir + "-posts.xml" }

func (s *sparkEngine) start(ctx context.Context, l *lab) (err error) {
	s.lab = l
	if _, err := (spark.Posts{Bytes: sparkBytes, Topical: 0.3, Seed: l.opts.seed}).Write(s.posts()); err != nil {
		return err
	}
	config := spark.Config{Dir: s.dir, Release: s.release}
	for _, name := range l.nodes {
		config.Nodes = append(config.Nodes, spark.Node{Name: name, Cores: sparkCores, Wrap: s.on(name)})
	}
	s.cluster, err = spark.Start(ctx, config)
	return err
}

func (s *sparkEngine) scheduler() string {
	section := s.cluster.Section(s.jar(sparkHook), 0)
	section.Web = "" // one driver at a time has all cores: there is nothing to divide
	return fmt.Sprintf("discipline: dias\nclasses:\n  - {name: %s, sprint_after: %s}\n  - {name: %s, theta: %d%%}\n%v", classHigh, sparkSprintAfter, classLow, sparkTheta, section)
}

func (s *sparkEngine) submit(ctx context.Context, class string) error {
	name, floor := s.next(class), 100
	if class == classLow {
		floor = sparkFloor
	}
	job := spark.WordPopularity(s.jar(sparkApps), s.posts(), sparkPartitions, sparkTop, spark.Drop{})
	spec := fmt.Sprintf("name: %s\nclass: %s\nslots: %d\nmin_tasks: %d%%\nspark:\n  application: %q\n  main: %s\n  args: [%s]\n",
		name, class, len(s.lab.nodes)*sparkCores, floor, job.Application, job.Main, quoted(job.Args))
	file := s.lab.path("jobs", name+".yaml")
	if err := os.WriteFile(file, []byte(spec), 0o644); err != nil {
		return fmt.Errorf("demo: job %s: %w", name, err)
	}
	return s.lab.client.submit(ctx, file, []byte(spec))
}

// queues implements engine: the cores that the jobs of each class have. A standalone Spark
// has no bounds.
func (s *sparkEngine) queues(ctx context.Context) ([]queueLook, error) {
	cores, err := s.cluster.Cores(ctx)
	if err != nil {
		return nil, err
	}
	return classCores(cores), nil
}

// classCores are the cores of each class, whose jobs' names begin with it.
func classCores(cores map[string]int) []queueLook {
	looks := []queueLook{{name: classHigh}, {name: classLow}}
	for name, n := range cores {
		for i := range looks {
			if strings.HasPrefix(name, looks[i].name+"-") {
				looks[i].used += n
			}
		}
	}
	return looks
}

func (s *sparkEngine) cancel(ctx context.Context, id string) error {
	return s.lab.client.cancelJob(ctx, id)
}

// dropped implements engine: by what the application reports that it has read.
func (s *sparkEngine) dropped(_ context.Context, id string) (tasks int, ok bool, err error) {
	runs, err := filepath.Glob(s.lab.path("scheduler", "*", id, "run-*", "stdout"))
	if err != nil || len(runs) != 1 {
		return 0, false, err
	}
	text, err := os.ReadFile(runs[0])
	if err != nil {
		return 0, false, fmt.Errorf("demo: answer of %s: %w", id, err)
	}
	answer, err := spark.ReadAnswer(string(text))
	if err != nil {
		return 0, false, err
	}
	return answer.Total - answer.Kept, true, nil
}

func (s *sparkEngine) try() []string {
	return []string{
		s.cluster.Web() + "   the Master's own page",
		filepath.Join(s.bin, "scheduler") + " submit --addr " + s.lab.scheduler + " " + s.lab.path("jobs", classHigh+"-1.yaml"),
		"SPARK_CONF_DIR=" + s.cluster.ConfDir() + " " + filepath.Join(s.release.Home, "bin", "spark-shell") + " --master " + s.cluster.Master() + "   beside Headroom",
	}
}

func (s *sparkEngine) close() error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Close()
}
