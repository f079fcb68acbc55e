package spark

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Classes of the hook.
const (
	pluginClass  = "headroom.spark.HeadroomPlugin"
	shuffleClass = "headroom.spark.HeadroomShuffleManager"
)

// pluginsKey is the one property that a job and the engine share.
const pluginsKey = "spark.plugins"

// tokenEnv is the variable of the driver's environment that holds the run's token. A
// command line is readable by every user of the machine (/proc/PID/cmdline), and Spark
// hands its properties on to the executors; an environment is the driver's own.
const tokenEnv = "HEADROOM_SPARK_TOKEN" //nolint:gosec // the name of a variable

// command is the command line of a run's driver. url is where its hook reports, ca the
// file of the authority that it pins there; empty for none.
func (c Config) command(r Run, url, ca string) []string {
	argv := append(slices.Clone(c.Driver), c.submit(), "--master", c.Master, "--deploy-mode", "client")
	if r.Spec.Main != "" {
		argv = append(argv, "--class", r.Spec.Main)
	}
	argv = append(argv, "--jars", strings.Join(append([]string{c.Plugin}, r.Spec.Jars...), ","))
	conf := c.properties(r, url)
	if ca != "" {
		conf["spark.headroom.ca"] = ca
	}
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		argv = append(argv, "--conf", key+"="+conf[key])
	}
	return append(append(argv, r.Spec.Application), r.Spec.Args...)
}

// properties are the job's own and those of the hook.
func (c Config) properties(r Run, url string) map[string]string {
	conf := map[string]string{
		"spark.app.name":               r.Job,
		"spark.ui.showConsoleProgress": "false",
		ownKept:                        c.Stages,
	}
	maps.Copy(conf, r.Spec.Conf)
	conf[pluginsKey] = pluginClass
	if more := r.Spec.Conf[pluginsKey]; more != "" {
		conf[pluginsKey] += "," + more
	}
	maps.Copy(conf, map[string]string{
		"spark.shuffle.manager": shuffleClass,
		"spark.cores.max":       strconv.Itoa(max(1, r.Slots)),
		"spark.headroom.theta":  strconv.FormatFloat(r.Theta, 'g', -1, 64),
		"spark.headroom.seed":   strconv.FormatInt(int64(r.Seed), 10), // Java has no unsigned numbers,
		"spark.headroom.url":    url,
		"spark.headroom.job":    r.Job,
		"spark.headroom.run":    strconv.FormatUint(uint64(r.Number), 10),
	})
	return conf
}
