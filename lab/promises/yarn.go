package promises

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"headroom/lab/cluster"
	"headroom/lab/hadoop"
	"headroom/lab/papers"
)

// The shape of a Hadoop.
const (
	jarHadoop, jarHadoopApps = "headroom-hadoop.jar", "headroom-apps.jar"
	// yarnMost is how many containers a node takes, more than its CPUs, which a slower node then divides; yarnSlots is about
	// how many tasks the first caps let run at once beside the jobs' application masters.
	yarnMost, yarnSlots = 5, 4
	// yarnUnit is a container's memory, MiB.
	yarnUnit = 256
	// yarnText is the length of a map task's input, bytes: some two seconds of CPU, of which the start of its JVM is the most.
	yarnText = 1_000_000
	// yarnTop is how many words jobs find.
	yarnTop = 100
)

// yarnLoad has fewer and longer jobs than localLoad: a job's master takes some six seconds of CPU before its first task, and
// each task a JVM of its own.
func yarnLoad(quick bool) load {
	l := load{count: 12, within: 4 * time.Minute, least: 2, most: 12, start: 15 * time.Second, task: 8 * time.Second, slots: yarnSlots}
	if !quick {
		l.count, l.within, l.most = 24, 8*time.Minute, 20
	}
	return l
}

// yarnVariants are ways to decide of Hadoop. Stock jobs know nothing of Headroom, whose scheduler only watches them.
func yarnVariants() []variant {
	return []variant{
		{name: ours, says: "admission adaptive at the door, copies ours by the hooks, container policy joint", policy: "joint", configuration: decides("adaptive", ours)},
		{name: stock, says: "Hadoop at its defaults: DefaultSpeculator, reduces from 5 % of the maps on; no admission", policy: "fair", configuration: decides("off", "none"), properties: map[string]string{
			"mapreduce.map.speculative": "true", "mapreduce.reduce.speculative": "true", slowStart: "0.05",
		}},
		{name: stockBest, says: "DefaultSpeculator that copies soon and more, reduces after all maps; no admission", policy: "fair", configuration: decides("off", "none"), properties: map[string]string{
			"mapreduce.map.speculative": "true", "mapreduce.reduce.speculative": "true", slowStart: "1.0",
			speculative + "minimum-allowed-tasks": "10", speculative + "speculative-cap-running-tasks": "0.5", speculative + "speculative-cap-total-tasks": "0.5",
			speculative + "slowtaskthreshold": "0.5", speculative + "retry-after-no-speculate": "500", speculative + "retry-after-speculate": "1000",
		}},
	}
}

const (
	speculative = "mapreduce.job.speculative."
	slowStart   = "mapreduce.job.reduce.slowstart.completedmaps"
)

// yarnLab is Hadoop on the nodes of a run's site.
type yarnLab struct {
	*papers.Real

	jars hadoop.Jars
}

// onYARN is an unmodified Hadoop with a NodeManager on each node, again for each run.
func onYARN(ctx context.Context, r *papers.Real, quick bool) (*engine, error) {
	y, l := &yarnLab{Real: r}, yarnLoad(quick)
	var err error
	if y.jars, err = r.Hadoop(ctx); err != nil {
		return nil, err
	}
	text := hadoop.Text{Files: l.most, Bytes: yarnText, Topical: 0.5, Seed: r.Seed}
	if _, err := text.Write(r.Path("pool")); err != nil {
		return nil, err
	}
	if err := links(r, &l); err != nil {
		return nil, err
	}
	return &engine{load: l, drain: 15 * time.Minute, variants: yarnVariants(), blind: true, begin: y.begin}, nil
}

func (y *yarnLab) begin(ctx context.Context, name string, v *variant, run int) (*running, error) {
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	hooks := hadoop.Hooks{Jar: y.Program(jarHadoop), Address: ports[0], MasterMB: yarnUnit}
	config := hadoop.Config{
		Dir: y.Path("hadoop-" + name), Jars: y.jars,
		Queues: []hadoop.Queue{{Name: bounded.class(), Weight: 1}, {Name: exact.class(), Weight: 1}},
	}
	hooks.Plug(&config)
	if v.stock() {
		config.Properties = nil // without an address the plug-in is Hadoop's own fair scheduler
	}
	config.Nodes = y.HadoopNodes(yarnMost, yarnUnit)
	c, err := hadoop.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	submit := func(ctx context.Context, j *job) (string, error) {
		job := yarnJob(j, v, hooks, y.Seed+uint64(run), y.Path("in", strconv.Itoa(j.tasks)), y.Path("out", name, j.name))
		job.Jar = y.Program(jarHadoopApps)
		taken, err := c.Submit(ctx, job)
		if err != nil {
			return "", fmt.Errorf("promises: submit: %w", err)
		}
		return taken.ID, nil
	}
	return &running{configuration: yarnSection(c.RM(), hooks.Address, v), submit: submit, logs: filepath.Join(c.Dir(), "logs"), end: c.Close}, nil
}

// yarnJob is a job as a user submits it: with the hooks and what it promises, or as Hadoop alone knows it.
func yarnJob(j *job, v *variant, hooks hadoop.Hooks, seed uint64, in, out string) hadoop.Job {
	set := map[string]string{"headroom.apps.slow": j.draws(seed)}
	job := hadoop.Job{Program: "topn", Queue: j.kind.class(), Args: []string{in, out, strconv.Itoa(yarnTop)}, Properties: set}
	if v.stock() {
		set["yarn.app.mapreduce.am.resource.mb"] = strconv.Itoa(hooks.MasterMB)
		maps.Copy(set, v.properties)
		return job
	}
	set["headroom.speculation"], set["headroom.end-running"] = ours, "true"
	for name, value := range j.asks() {
		set["headroom."+name] = value
	}
	if j.deadline > 0 {
		tags := []string{"headroom-deadline:" + j.deadline.String(), "headroom-tasks:" + strconv.Itoa(j.tasks), "headroom-queue"}
		set["mapreduce.job.tags"] = strings.Join(tags, ",")
	}
	return hooks.Into(job)
}

// asks are what a job promises, by the names that Headroom has for it.
func (j *job) asks() map[string]string {
	switch j.kind {
	case strict:
		return map[string]string{"deadline": j.deadline.String(), "min-tasks": "100%"}
	case partial:
		return map[string]string{"deadline": j.deadline.String(), "min-tasks": fmt.Sprintf("%.0f%%", 100*partialFloor)}
	case bounded:
		return map[string]string{"error": fmt.Sprintf("%.0f%%", 100*j.error)}
	case exact:
	}
	return nil
}

// yarnSection is the section yarn of scheduler.yaml: a queue for each class. Only jobs of ours may give tasks up, down to what
// their owners ask for.
func yarnSection(rm, hooks string, v *variant) string {
	floor := partialFloor
	if v.stock() {
		floor = 1
	}
	return fmt.Sprintf("yarn:\n  resourcemanager: [%q]\n  hooks: %q\n  container: {memory_mb: %d, vcores: 1}\n  queues:\n"+
		"    - {name: root.%s, class: %[4]s, guarantee: %.0[5]f%%}\n    - {name: root.%[6]s, class: %[6]s, guarantee: 100%%}\n", rm, hooks, yarnUnit, bounded.class(), 100*floor, exact.class())
}
