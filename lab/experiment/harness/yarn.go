package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"headroom/internal/cli"
	"headroom/lab/cluster"
	"headroom/lab/experiment"
	"headroom/lab/hadoop"
	"headroom/lab/spark"
)

// Jars of the hooks and of their example applications.
const (
	JarHadoop     = "headroom-hadoop.jar"
	JarHadoopApps = "headroom-apps.jar"
	JarSpark      = "headroom-spark.jar"
	JarSparkApps  = "headroom-spark-apps.jar"
)

// The shape of a Hadoop on two nodes.
const (
	// yarnSlots is how many containers a node takes: more than its CPUs, which a slower node then divides. An
	// application master takes one of them.
	yarnSlots = 5
	// YARNUnit is a container's memory, MiB.
	YARNUnit = 256
	// yarnText is the length of a map task's input, bytes: some two seconds of CPU, of which the start of its JVM is the most.
	yarnText = 1_000_000
	// top is how many words jobs find.
	top = 100
)

// Class is a class of jobs on YARN: a queue of this weight that guarantees a part of the map tasks. More are
// further fields of its entry in scheduler.yaml.
type Class struct {
	Name      string
	Weight    float64
	Guarantee float64
	More      string
}

// YARN is an unmodified Hadoop with a NodeManager on each node. Jobs find the most frequent words of their input.
func YARN(classes ...Class) Engine {
	return Engine{
		Files: []string{JarHadoop, JarHadoopApps}, Blind: true,
		Prepare: func(_ context.Context, r *experiment.Run, s *Setup) error {
			return writeInputs(r, s.Jobs, hadoop.Text{Bytes: yarnText, Spread: 0.2, Topical: 0.5})
		},
		Begin: func(ctx context.Context, l *Lab, s *Setup) (*Running, error) {
			var queues []hadoop.Queue
			for _, c := range classes {
				queues = append(queues, hadoop.Queue{Name: c.Name, Weight: c.Weight})
			}
			config := hadoop.Config{Queues: queues}
			hooks, err := l.Hooks()
			if err != nil {
				return nil, err
			}
			hooks.Plug(&config)
			if s.Variant.Stock != nil {
				config.Properties = nil // without an address the plug-in is Hadoop's own fair scheduler
			}
			config.Nodes = l.HadoopNodes(yarnSlots, YARNUnit)
			c, err := StartHadoop(ctx, l.Run, config)
			if err != nil {
				return nil, err
			}
			var taking sync.Map // jobs by id
			submit := func(ctx context.Context, j *Job) (string, error) {
				taken, err := c.Submit(ctx, yarnJob(j, &s.Variant, hooks, l))
				if err != nil {
					return "", fmt.Errorf("experiment: submit: %w", err)
				}
				taking.Store(taken.ID, taken)
				return taken.ID, nil
			}
			return &Running{
				Name: "Hadoop " + hadoop.Version, Section: YARNSection(c.RM(), hooks.Address, yarnQueues(classes, &s.Variant)),
				Submit: submit, Cancel: c.KillApplication, Close: c.Close,
				Queues: func(ctx context.Context) ([]Queue, error) { return classUses(c.QueueUses(ctx)) },
				Dropped: func(ctx context.Context, id string) *int {
					taken, known := taking.Load(id)
					if !known {
						return nil
					}
					return droppedBy(taken.(*hadoop.RunningJob).Wait(ctx)) //nolint:forcetypeassert // submit stores no other
				},
				Pages: []string{c.RM() + "/cluster/scheduler", "http://" + hooks.Address + "/v1/shares"},
			}, nil
		},
	}
}

// classUses are what the queues below root have, by name.
func classUses(uses []hadoop.QueueUse, err error) (queues []Queue, _ error) {
	for _, u := range uses {
		if name, below := strings.CutPrefix(u.Name, "root."); below {
			queues = append(queues, Queue{name, int(u.Used.VCores), new(int(u.Max.VCores))})
		}
	}
	slices.SortFunc(queues, func(a, b Queue) int { return cmp.Compare(a.Name, b.Name) })
	return queues, err
}

// droppedBy is how many tasks a job has dropped, by the counters of its own history.
func droppedBy(r hadoop.Result, err error) *int {
	if err != nil || r.History == nil {
		return nil
	}
	n, _ := r.History.Counters.Get("headroom.hadoop.EarlyStopCounter", "DROPPED_TASKS")
	return new(int(n))
}

// Hooks are the hooks inside of Hadoop, on a free address.
func (l *Lab) Hooks() (hadoop.Hooks, error) {
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return hadoop.Hooks{}, err
	}
	return hadoop.Hooks{Jar: l.Program(JarHadoop), Address: ports[0], MasterMB: YARNUnit}, nil
}

// StartHadoop starts a Hadoop in the run's folder, and fetches its jars where they are missing.
func StartHadoop(ctx context.Context, r *experiment.Run, config hadoop.Config) (*hadoop.Cluster, error) {
	var err error
	if config.Jars, err = hadoop.Fetch(ctx, ""); err != nil {
		return nil, unavailable(err)
	}
	r.Note("starting Hadoop %s", hadoop.Version)
	config.Dir = r.Path("hadoop")
	return hadoop.Start(ctx, config)
}

// unavailable adds the way out to the error of a machine that lacks something.
func unavailable(err error) error {
	if errors.Is(err, hadoop.ErrUnavailable) || errors.Is(err, spark.ErrUnavailable) {
		return cli.Failed("install the missing programs: sh lab/test/install.sh", "%w", err)
	}
	return err
}

// YARNSection is the section yarn of scheduler.yaml; queues are its entries.
func YARNSection(rm, hooks string, queues string) string {
	return fmt.Sprintf("yarn:\n  resourcemanager: [%q]\n  hooks: %q\n  container: {memory_mb: %d, vcores: 1}\n  queues:\n%s", rm, hooks, YARNUnit, queues)
}

func yarnQueues(classes []Class, v *Variant) string {
	var b strings.Builder
	for _, c := range classes {
		if v.Exact || v.Stock != nil {
			c.Guarantee = 1
		}
		fmt.Fprintf(&b, "    - {name: root.%s, class: %s, guarantee: %.0f%%%s}\n", c.Name, c.Name, 100*c.Guarantee, c.More)
	}
	return b.String()
}

// yarnJob is a job as a user submits it: with the hooks and its terms, or as Hadoop alone has it.
func yarnJob(j *Job, v *Variant, hooks hadoop.Hooks, l *Lab) hadoop.Job {
	set := map[string]string{}
	if j.Slow != nil {
		set["headroom.apps.slow"] = j.draws()
	}
	job := hadoop.Job{
		Jar: l.Program(JarHadoopApps), Program: "topn", Queue: j.Class, Args: []string{l.input(j), l.Path("out-" + j.Name), strconv.Itoa(top)}, Properties: set,
	}
	if v.Stock != nil {
		set["yarn.app.mapreduce.am.resource.mb"] = strconv.Itoa(hooks.MasterMB)
		maps.Copy(set, v.Stock)
		return job
	}
	if j.Slow != nil {
		set["headroom.speculation"], set["headroom.end-running"] = "ours", "true"
	}
	if j.Deadline > 0 {
		set["headroom.deadline"] = j.Deadline.String()
		if j.Waits {
			set["headroom.min-tasks"] = fmt.Sprintf("%.0f%%", 100*cmp.Or(j.Floor, 1))
			set["mapreduce.job.tags"] = strings.Join([]string{"headroom-deadline:" + j.Deadline.String(), "headroom-tasks:" + strconv.Itoa(j.Tasks), "headroom-queue"}, ",")
		}
	}
	if j.Error > 0 {
		set["headroom.error"] = fmt.Sprintf("%.0f%%", 100*j.Error)
	}
	return hooks.Into(job)
}

// attempts is for how many attempts of a task it is drawn how slow they are. Later ones repeat these in turn.
const attempts = 3

// draws are how many times as long the attempts of a job's tasks take, as the applications for Hadoop and
// Spark read them: a number for each task, and those of the next attempts after a semicolon.
func (j *Job) draws() string {
	var all []string
	for attempt := range attempts {
		var of []string
		for task := range j.Tasks {
			of = append(of, fmt.Sprintf("%.2f", j.Slow(task, attempt)))
		}
		all = append(all, strings.Join(of, ","))
	}
	return strings.Join(all, ";")
}
