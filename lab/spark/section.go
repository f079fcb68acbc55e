package spark

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Section is the section spark of scheduler.yaml for a running cluster; plugin is headroom-spark.jar, cores is how many
// an executor has.
func (c *Cluster) Section(plugin string, cores int) string {
	return section(c.config.Release.Home, c.Master(), c.Web(), plugin, c.ConfDir(), cores, c.Hosts())
}

func section(home, master, web, plugin, conf string, cores int, hosts map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "spark:\n  home: %q\n  master: %q\n  web: [%q]\n  executor_cores: %d\n  plugin: %q\n  kill_after: 5s\n  driver: [/usr/bin/env, %q]\n  nodes:\n",
		home, master, web, cores, plugin, "SPARK_CONF_DIR="+conf)
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		fmt.Fprintf(&b, "    %q: %q\n", host, hosts[host])
	}
	return b.String()
}
