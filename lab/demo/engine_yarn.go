package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"headroom/lab/cluster"
	"headroom/lab/hadoop"
)

// The shape of a Hadoop of the demo.
const (
	// yarnSlots is how many containers a node takes: more than its CPUs, which a slower node
	// then divides.
	yarnSlots = 5
	// yarnUnit is a container's memory, MiB; an application master takes one.
	yarnUnit = 256
	// yarnFloor is the least part of the map tasks of a job of class low.
	yarnFloor = 0.5
	// yarnDeadline is that of jobs of class low: jobs that wait for others miss it.
	yarnDeadline = 60 * time.Second
	// yarnText is the length of a map task's input, bytes: a second or two of CPU, of which
	// the start of its JVM is the most.
	yarnText = 500_000
)

// The jars of the hook and of the jobs.
const yarnHook, yarnApps = "headroom-hadoop.jar", "headroom-apps.jar"

// yarnEngine is a real Hadoop with a NodeManager on each node.
type yarnEngine struct {
	*engineBase

	jars    hadoop.Jars
	hooks   string
	cluster *hadoop.Cluster
	shell   string   // script that starts Hadoop's command line programs
	jobs    sync.Map // *hadoop.RunningJob by its id
}

func newYARNEngine(ctx context.Context, base *engineBase, note func(string, ...any)) (*yarnEngine, error) {
	note("looking for Hadoop %s in the user's cache; Maven fetches it where it is missing", hadoop.Version)
	jars, err := hadoop.Fetch(ctx, "")
	if err != nil {
		return nil, err
	}
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	return &yarnEngine{engineBase: base, jars: jars, hooks: ports[0]}, nil
}

func (y *yarnEngine) about() string { return "Hadoop " + hadoop.Version }

// yarnQueue is the queue of a class's jobs.
func yarnQueue(class string) string {
	return map[string]string{classHigh: "urgent", classLow: "batch"}[class]
}

// maps is how many map tasks a job of the class has.
func (y *yarnEngine) maps(class string) int {
	if class == classHigh {
		return 12
	}
	return 24
}

// input is the folder of the text that jobs of a class read.
func (y *yarnEngine) input(class string) string { return filepath.Join(y.dir+"-in", class) }

func (y *yarnEngine) start(ctx context.Context, l *lab) (err error) {
	y.lab = l
	for i, class := range []string{classHigh, classLow} {
		text := hadoop.Text{Files: y.maps(class), Bytes: yarnText, Spread: 0.2, Topical: 0.5, Seed: l.opts.seed + uint64(i)}
		if _, err := text.Write(y.input(class)); err != nil {
			return err
		}
	}
	config := hadoop.Config{Dir: y.dir, Jars: y.jars, Queues: []hadoop.Queue{{Name: yarnQueue(classHigh)}, {Name: yarnQueue(classLow)}}}
	y.inside().Plug(&config)
	for _, name := range l.nodes {
		config.Nodes = append(config.Nodes, hadoop.Node{Name: name, VCores: yarnSlots, MemoryMB: yarnSlots * yarnUnit, Wrap: y.on(name)})
	}
	if y.cluster, err = hadoop.Start(ctx, config); err != nil {
		return err
	}
	y.shell = l.path("hadoop.sh")
	if err := os.WriteFile(y.shell, []byte(y.cluster.Shell()), 0o755); err != nil {
		return fmt.Errorf("demo: write %s: %w", y.shell, err)
	}
	return nil
}

func (y *yarnEngine) scheduler() string {
	return fmt.Sprintf("classes:\n  - {name: %s, sprint_after: 0s}\n  - {name: %s}\nyarn:\n  resourcemanager: [%q]\n  hooks: %q\n  container: {memory_mb: %d, vcores: 1}\n"+
		"  queues:\n    - {name: root.%s, class: %s, guarantee: 100%%, sprint_after: 0s}\n    - {name: root.%s, class: %s, guarantee: %g%%, deadline: %v}\n",
		classHigh, classLow, y.cluster.RM(), y.hooks, yarnUnit, yarnQueue(classHigh), classHigh, yarnQueue(classLow), classLow, 100*yarnFloor, yarnDeadline)
}

func (y *yarnEngine) submit(ctx context.Context, class string) error {
	job, err := y.cluster.Submit(ctx, y.job(class, y.lab.path("jobs", y.next(class))))
	if err == nil {
		y.jobs.Store(job.ID, job)
	}
	return err
}

// inside are the hooks inside of Hadoop.
func (y *yarnEngine) inside() hadoop.Hooks {
	return hadoop.Hooks{Jar: y.jar(yarnHook), Address: y.hooks, MasterMB: yarnUnit}
}

// job is a word count, or the most frequent words for class high, as a user submits it with the hook.
func (y *yarnEngine) job(class, out string) hadoop.Job {
	job := y.inside().Into(hadoop.Job{Program: "wordcount", Queue: yarnQueue(class), Args: []string{y.input(class), out}})
	if class == classHigh {
		job.Jar, job.Program, job.Args = y.jar(yarnApps), "topn", append(job.Args, "20")
	}
	return job
}

func (y *yarnEngine) queues(ctx context.Context) ([]queueLook, error) {
	uses, err := y.cluster.QueueUses(ctx)
	if err != nil {
		return nil, err
	}
	var looks []queueLook
	for _, class := range []string{classHigh, classLow} {
		for _, u := range uses {
			if u.Name == "root."+yarnQueue(class) {
				share := int(u.Max.VCores)
				looks = append(looks, queueLook{name: yarnQueue(class), used: int(u.Used.VCores), share: &share})
			}
		}
	}
	return looks, nil
}

func (y *yarnEngine) cancel(ctx context.Context, id string) error {
	return y.cluster.KillApplication(ctx, id)
}

// dropped implements engine: by the counters of the job's own history.
func (y *yarnEngine) dropped(ctx context.Context, id string) (tasks int, ok bool, err error) {
	j, known := y.jobs.Load(id)
	if !known {
		return 0, false, nil
	}
	r, err := j.(*hadoop.RunningJob).Wait(ctx) //nolint:forcetypeassert // submit stores no other
	if err != nil || r.History == nil {
		return 0, false, err
	}
	n, _ := r.History.Counters.Get("headroom.hadoop.EarlyStopCounter", "DROPPED_TASKS")
	return int(n), true, nil
}

func (y *yarnEngine) try() []string {
	shell := "sh " + y.shell
	return []string{
		y.cluster.RM() + "/cluster/scheduler   the queues on Hadoop's own page",
		"curl http://" + y.hooks + "/v1/shares   what the plug-in is told",
		shell + " org.apache.hadoop.yarn.client.cli.ApplicationCLI application -list",
		shell + " org.apache.hadoop.util.RunJar " + y.jars.Examples() + " pi -Dmapreduce.job.queuename=root." + yarnQueue(classHigh) + " 8 1000",
	}
}

func (y *yarnEngine) close() error {
	if y.cluster == nil {
		return nil
	}
	return y.cluster.Close()
}
