package spark

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Classes of the hook.
const (
	pluginClass  = "headroom.spark.HeadroomPlugin"
	shuffleClass = "headroom.spark.HeadroomShuffleManager"
)

// Properties that a job and the engine share.
const (
	pluginsKey = "spark.plugins"
	tagsKey    = "spark.yarn.tags"
	filesKey   = "spark.files"
)

// Properties of Spark that the engine reads too.
const (
	coresKey     = "spark.executor.cores"
	instancesKey = "spark.executor.instances"
	dynamicKey   = "spark.dynamicAllocation.enabled"
	dynamicMost  = "spark.dynamicAllocation.maxExecutors"
	dynamicLeast = "spark.dynamicAllocation.minExecutors"
	dynamicFirst = "spark.dynamicAllocation.initialExecutors"
	uiKey        = "spark.ui.enabled"
	uiPortKey    = "spark.ui.port"
)

// tokenEnv is the variable of the driver's environment that holds the run's token. A
// command line is readable by every user of the machine (/proc/PID/cmdline), and Spark
// hands its properties on to the executors; an environment is the driver's own.
const tokenEnv = "HEADROOM_SPARK_TOKEN" //nolint:gosec // the name of a variable

// Names of files in the folder of a driver that YARN runs.
const (
	tokenName = "headroom.token"
	caName    = "headroom-ca.crt"
)

// command returns the command line of a run's driver. url is where its hook reports, ca the
// file of the authority that it pins there; empty for none.
func (c Config) command(x *execution, url, ca string) []string {
	r := x.run
	argv := append(slices.Clone(c.Driver), c.submit(), "--master", c.Master, "--deploy-mode", c.DeployMode)
	if r.Spec.Main != "" {
		argv = append(argv, "--class", r.Spec.Main)
	}
	argv = append(argv, "--jars", strings.Join(append([]string{c.Plugin}, r.Spec.Jars...), ","))
	conf := c.properties(r, url)
	if ca != "" {
		conf["spark.headroom.ca"] = ca
	}
	if x.ui > 0 {
		conf[uiPortKey] = strconv.Itoa(x.ui)
	}
	if c.OnYARN() {
		c.onYARN(x, conf, ca)
	}
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		argv = append(argv, "--conf", key+"="+conf[key])
	}
	return append(append(argv, r.Spec.Application), r.Spec.Args...)
}

// properties returns the job's own and those of the hook.
func (c Config) properties(r Run, url string) map[string]string {
	conf := map[string]string{
		"spark.app.name":               r.Job,
		"spark.ui.showConsoleProgress": "false",
		ownKept:                        c.Stages,
	}
	if c.ExecutorCores > 0 {
		conf[coresKey] = strconv.Itoa(c.ExecutorCores)
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
	if most := c.most(r); most > 0 && dynamic(r) {
		bound(conf, dynamicMost, most)
		for _, key := range []string{dynamicLeast, dynamicFirst} {
			if conf[key] != "" {
				bound(conf, key, most)
			}
		}
	}
	return conf
}

// onYARN adds what YARN needs, which has no spark.cores.max.
func (c Config) onYARN(x *execution, conf map[string]string, ca string) {
	if _, set := conf["spark.yarn.queue"]; !set && c.Queue != "" {
		conf["spark.yarn.queue"] = c.Queue
	}
	conf[tagsKey] = join(x.tag, x.run.Spec.Conf[tagsKey])
	conf["spark.yarn.submit.waitAppCompletion"] = "true"
	conf["spark.yarn.maxAppAttempts"] = "1" // only the scheduler restarts the job of a lost driver
	if !dynamic(x.run) {
		conf[instancesKey] = strconv.Itoa(c.most(x.run))
	}
	if !c.cluster() {
		return
	}
	files := "file://" + filepath.Join(x.run.Folder, tokenFile) + "#" + tokenName
	conf["spark.headroom.token-file"] = tokenName
	if ca != "" {
		files = join(files, "file://"+ca+"#"+caName)
		conf["spark.headroom.ca"] = caName
	}
	conf["spark.yarn.dist.files"] = join(files, x.run.Spec.Conf["spark.yarn.dist.files"])
}

// join puts words together that stand between commas.
func join(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ",")
}

// unit returns how many cores an executor of the run has; 0 where Spark says it only once they
// are there.
func (c Config) unit(r Run) int {
	switch n := number(r.Spec.Conf[coresKey]); {
	case n > 0:
		return n
	case c.ExecutorCores > 0:
		return c.ExecutorCores
	case c.OnYARN():
		return 1 // Spark's own default there
	default:
		return 0
	}
}

// most returns how many executors a run may have at most by its slots; 0 while that is unknown.
func (c Config) most(r Run) int {
	unit := c.unit(r)
	if unit == 0 {
		return 0
	}
	return max(1, r.Slots/unit)
}

// dynamic reports whether Spark itself asks for the run's executors.
func dynamic(r Run) bool { return r.Spec.Conf[dynamicKey] == "true" }

// bound lowers a number of the configuration to most; one that is missing becomes it.
func bound(conf map[string]string, key string, most int) {
	if n := number(conf[key]); n == 0 || n > most {
		conf[key] = strconv.Itoa(most)
	}
}

// number returns a number above 0; 0 where there is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0
	}
	return n
}
