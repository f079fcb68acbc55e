package spark

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Drop is how much of its input an application drops.
type Drop struct {
	// Theta is the drop ratio, 0 to 1, Seed what chooses.
	Theta float64
	Seed  uint64
	// Stages are those that drop: input (also when empty), all or none.
	Stages string
}

// Answer is the line RESULT of an example application.
type Answer struct {
	// Theta, Kept and Total are how much of the input's partitions the answer was made from.
	Theta       float64
	Kept, Total int
	// Seconds is the time of the computation inside the driver.
	Seconds float64
	// Words are the most frequent, with their counts scaled to the whole input.
	Words []Word
	// Triangles is scaled to the whole graph, Found what was found in what was kept.
	Triangles, Found float64
	// Shuffles are those on the way to the answer.
	Shuffles []struct {
		ID, Kept, Total int
		Input           bool
	}
}

// Word is a word with its count, and the bounds that this lies within with 95 %; nil
// where they are unknown.
type Word struct {
	Word  string
	Count float64
	Low   *float64 `json:"count_low"`
	High  *float64 `json:"count_high"`
}

// Counts are the words' counts.
func (a Answer) Counts() map[string]float64 {
	counts := make(map[string]float64, len(a.Words))
	for _, w := range a.Words {
		counts[w.Word] = w.Count
	}
	return counts
}

// WordPopularity is the job that finds the top most frequent words of a file of posts,
// read in at least so many partitions. apps is headroom-spark-apps.jar.
func WordPopularity(apps, in string, partitions, top int, d Drop) Job {
	return Job{Name: "words", Application: apps, Main: "headroom.apps.spark.WordPopularity", Args: []string{in, strconv.Itoa(partitions), strconv.Itoa(top), "4"}, Drop: d}
}

// Triangles is the job that counts the triangles of a file of edges, read in at least so
// many partitions. apps is headroom-spark-apps.jar.
func Triangles(apps, in string, partitions int, d Drop) Job {
	return Job{Name: "triangles", Application: apps, Main: "headroom.apps.spark.Triangles", Args: []string{in, strconv.Itoa(partitions)}, Drop: d}
}

// Ask runs one of the example applications to its end and reads its answer.
func (c *Cluster) Ask(ctx context.Context, j Job) (Answer, Result, error) {
	r, err := c.Run(ctx, j)
	if err != nil {
		return Answer{}, r, err
	}
	a, err := ReadAnswer(r.Output)
	return a, r, err
}

// ReadAnswer finds the line RESULT in what an application printed.
func ReadAnswer(output string) (a Answer, err error) {
	for line := range strings.Lines(output) {
		if text, ok := strings.CutPrefix(line, "RESULT "); ok {
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				return a, fmt.Errorf("spark: the line RESULT: %w", err)
			}
			return a, nil
		}
	}
	return a, fmt.Errorf("%w: it printed no line RESULT", errJob)
}

// Section is the section spark of scheduler.yaml.
type Section struct {
	Home, Master, Web string
	// Plugin is headroom-spark.jar, ConfDir the drivers' folder of settings.
	Plugin, ConfDir string
	// Cores is the number of cores of an executor; 0 for all of its Worker.
	Cores int
	// Hosts are the nodes' names by their Workers' hosts.
	Hosts map[string]string
}

// Section is the section for a running cluster, with its Master's page.
func (c *Cluster) Section(plugin string, cores int) Section {
	return Section{Home: c.config.Release.Home, Master: c.master, Web: c.web, Plugin: plugin, ConfDir: c.ConfDir(), Cores: cores, Hosts: c.Hosts()}
}

// String is the section as it stands in the file.
func (s Section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "spark:\n  home: %q\n  master: %q\n", s.Home, s.Master)
	if s.Web != "" {
		fmt.Fprintf(&b, "  web: [%q]\n", s.Web)
	}
	if s.Cores > 0 {
		fmt.Fprintf(&b, "  executor_cores: %d\n", s.Cores)
	}
	fmt.Fprintf(&b, "  plugin: %q\n  kill_after: 5s\n  driver: [/usr/bin/env, %q]\n  nodes:\n", s.Plugin, "SPARK_CONF_DIR="+s.ConfDir)
	for _, host := range slices.Sorted(maps.Keys(s.Hosts)) {
		fmt.Fprintf(&b, "    %q: %q\n", host, s.Hosts[host])
	}
	return b.String()
}

// Spec is the section spark of the job file of an application that the scheduler starts: what runs, with Conf and Args.
func (j *Job) Spec() string {
	var b strings.Builder
	fmt.Fprintf(&b, "spark:\n  application: %q\n  main: %s\n  conf:\n", j.Application, j.Main)
	for _, key := range slices.Sorted(maps.Keys(j.Conf)) {
		fmt.Fprintf(&b, "    %s: %q\n", key, j.Conf[key])
	}
	b.WriteString("  args:\n")
	for _, arg := range j.Args {
		fmt.Fprintf(&b, "    - %q\n", arg)
	}
	return b.String()
}

// Decommission are the properties by which executors that must go pass on what they hold.
func Decommission() map[string]string {
	return map[string]string{
		"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true", "spark.storage.decommission.shuffleBlocks.enabled": "true",
	}
}
