package spark

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Section is the section spark of scheduler.yaml. What is empty is left out.
type Section struct {
	Home, Master, Web string
	// Plugin is headroom-spark.jar, ConfDir the drivers' folder of settings.
	Plugin, ConfDir string
	// Cores is the number of cores of an executor.
	Cores int
	// Hosts are the nodes' names by their Workers' hosts.
	Hosts map[string]string
}

// Section is the section for a running cluster, with its Master's page; cores is how many an executor has, 0 for all of its Worker.
func (c *Cluster) Section(plugin string, cores int) Section {
	return Section{Home: c.config.Release.Home, Master: c.Master(), Web: c.Web(), Plugin: plugin, ConfDir: c.ConfDir(), Cores: cores, Hosts: c.Hosts()}
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
