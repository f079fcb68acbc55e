package live

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"headroom/lab/arbitration"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/papers"
)

// The shape of a Hadoop.
const (
	jarHadoop = "headroom-hadoop.jar"
	// yarnSlots is how many containers a node takes: more than its CPUs, which a slower node then divides. An
	// application master takes one of them.
	yarnSlots = 5
	// yarnUnit is a container's memory, MiB.
	yarnUnit = 256
	// yarnText is the length of a map task's input, bytes: some two seconds of CPU, of which the start of its JVM is the most.
	yarnText = 1_000_000
	// yarnFirst is the weight of the urgent queue in Hadoop's own fair scheduler: it gets nearly all that it can use.
	yarnFirst = 100
)

// yarnPlan has fewer and longer jobs than localPlan: a job's master takes some six seconds of CPU before its first task, and
// each task a JVM of its own.
//
// Container policy fair leaves the division to Hadoop's fair scheduler, in which the queue of urgent jobs weighs most.
func yarnPlan() plan {
	return plan{
		streams: streams(
			each{8, 90 * time.Second, 75 * time.Second},
			each{16, 180 * time.Second, 2 * time.Minute},
			each{40, 200 * time.Second, 0},
		),
		drain:    10 * time.Minute,
		variants: against("fair", "", fmt.Sprintf("container policy fair: Hadoop's fair scheduler divides, with weight %d for the queue of urgent jobs and 1 for the other", yarnFirst)),
	}
}

// yarnLab is Hadoop on the nodes of a run's site.
type yarnLab struct {
	*papers.Real

	plan plan
	jars hadoop.Jars
}

// onYARN is an unmodified Hadoop with a NodeManager on each node, again for each run.
func onYARN(ctx context.Context, r *papers.Real) (*engine, error) {
	y := &yarnLab{Real: r, plan: yarnPlan()}
	var err error
	if y.jars, err = r.Hadoop(ctx); err != nil {
		return nil, err
	}
	for i, s := range y.plan.streams {
		text := hadoop.Text{Files: s.tasks, Bytes: yarnText, Spread: 0.2, Topical: 0.5, Seed: r.Seed + uint64(i)}
		if _, err := text.Write(r.Path("in", s.name)); err != nil {
			return nil, err
		}
	}
	return &engine{plan: y.plan, begin: y.begin}, nil
}

func (y *yarnLab) begin(ctx context.Context, name string, v *variant) (*running, error) {
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	hooks := hadoop.Hooks{Jar: y.Program(jarHadoop), Address: ports[0], MasterMB: yarnUnit}
	config := hadoop.Config{
		Dir: y.Path("hadoop-" + name), Jars: y.jars,
		Queues: []hadoop.Queue{{Name: string(arbitration.Urgent), Weight: yarnFirst}, {Name: string(arbitration.Tolerant), Weight: 1}},
	}
	hooks.Plug(&config)
	config.Nodes = y.HadoopNodes(yarnSlots, yarnUnit)
	c, err := hadoop.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	submit := func(ctx context.Context, a *arrival) (string, error) {
		job, err := c.Submit(ctx, yarnJob(a, hooks, y.Path("in", a.stream), y.Path("out", name, fmt.Sprintf("%s-%d", a.stream, a.Arrival.Milliseconds()))))
		if err != nil {
			return "", fmt.Errorf("arbitrate: submit: %w", err)
		}
		return job.ID, nil
	}
	return &running{configuration: yarnSection(c.RM(), hooks.Address, v.exact, y.plan.streams), submit: submit, logs: filepath.Join(c.Dir(), "logs"), end: c.Close}, nil
}

// yarnJob is the word count of an arrival, as a user submits it with the hook.
func yarnJob(a *arrival, hooks hadoop.Hooks, in, out string) hadoop.Job {
	job := hadoop.Job{Program: "wordcount", Queue: string(a.Class), Args: []string{in, out}, Properties: map[string]string{}}
	if a.Deadline > 0 {
		job.Properties["headroom.deadline"] = a.Deadline.String()
	}
	return hooks.Into(job)
}

// yarnSection is the section yarn of scheduler.yaml: a queue for each class. exact: both guarantee all tasks.
func yarnSection(rm, hooks string, exact bool, streams []stream) string {
	text := fmt.Appendf(nil, "yarn:\n  resourcemanager: [%q]\n  hooks: %q\n  container: {memory_mb: %d, vcores: 1}\n  queues:\n", rm, hooks, yarnUnit)
	said := map[arbitration.Class]bool{}
	for _, s := range streams {
		if said[s.class] {
			continue
		}
		said[s.class] = true
		floor := s.floor
		if exact {
			floor = 1
		}
		text = fmt.Appendf(text, "    - {name: root.%s, class: %s, guarantee: %.0f%%}\n", s.class, s.class, 100*floor)
	}
	return string(text)
}
