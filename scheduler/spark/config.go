package spark

import (
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
)

// Name is the engine's name in job specifications.
const Name = "spark"

// Which shuffle-map stages the hook drops from.
const (
	// stagesInput are those that read the job's input.
	stagesInput = "input"
	// stagesAll are all of them, as in the paper.
	stagesAll = "all"
	// stagesNone drops nothing.
	stagesNone = "none"
)

// Config is the section "spark" of scheduler.yaml. Without a master there is no Spark.
type Config struct {
	// Home is the folder of a Spark distribution, with bin/spark-submit.
	Home string `yaml:"home"`
	// Master is the standalone master, spark://HOST:PORT; standbys follow after commas. Or it is yarn.
	Master string `yaml:"master"`
	// Web are the web addresses of the standalone masters; none stands for their hosts at port 8080.
	Web []string `yaml:"web"`
	// Cores is what jobs divide; 0 means the number that the cluster reports.
	Cores int `yaml:"cores"`
	// ExecutorCores are the cores of an executor of jobs that do not say it themselves; 0 leaves it to Spark.
	ExecutorCores int `yaml:"executor_cores"`
	// DeployMode is where drivers run on YARN: client, beside the scheduler, or cluster, in a container.
	DeployMode string `yaml:"deploy_mode"`
	// Queue is the queue on YARN of jobs that name none; empty for Spark's default.
	Queue string `yaml:"queue"`
	// HadoopConf is the folder of YARN's configuration.
	HadoopConf string `yaml:"hadoop_conf"`
	// ResourceManager are the web addresses of YARN's ResourceManagers; none stands for those of the section yarn.
	ResourceManager []string `yaml:"resourcemanager"`
	// Plugin is headroom-spark.jar, on the machine where drivers run.
	Plugin string `yaml:"plugin"`
	// Hooks is where the hooks are served, host:port; port 0 lets the system choose.
	Hooks string `yaml:"hooks"`
	// Stages states which stages drop: input, all or none.
	Stages string `yaml:"stages"`
	// Nodes names the nodes by the hosts of their workers; others are called by their host.
	Nodes map[string]string `yaml:"nodes"`
	// KillAfter is how long a driver may take to end before it is killed, 0s to 10m.
	KillAfter config.Duration `yaml:"kill_after"`
	// Driver are words before spark-submit, to place the driver.
	Driver []string `yaml:"driver"`
}

// Defaults returns the values of keys that the section does not have.
func Defaults() Config {
	return Config{Hooks: "127.0.0.1:0", Stages: stagesInput, DeployMode: deployClient, KillAfter: config.Duration(10 * time.Second)}
}

// Where drivers run on YARN.
const (
	deployClient  = "client"
	deployCluster = "cluster"
)

// masterYARN is the master that is no address.
const masterYARN = "yarn"

const (
	killAfterMax = 10 * time.Minute
	// coresMax bounds what a cluster may have, mastersMax how many answer for it.
	coresMax   = 10_000_000
	mastersMax = 8
)

var masterRule = regexp.MustCompile(`^spark://[^\s/,]+:[0-9]+(,[^\s/,]+:[0-9]+)*$`)

// On reports whether there is a Spark to run jobs on.
func (c Config) On() bool { return c.Master != "" }

// OnYARN reports whether jobs run on YARN.
func (c Config) OnYARN() bool { return c.Master == masterYARN }

// Apart reports whether drivers run as a user of their own.
func (c Config) Apart() bool { return slices.Contains(c.Driver, "start-driver") }

// cluster reports whether drivers run in containers.
func (c Config) cluster() bool { return c.OnYARN() && c.DeployMode == deployCluster }

// Check returns an error in the configuration as a *cli.Error with exit code 2 and a hint; nil if there is none.
func (c Config) Check() *cli.Error {
	if !c.On() {
		return nil // whatever else stands there is for later
	}
	for _, check := range []func() *cli.Error{c.checkPlaces, c.checkHooks, c.checkCluster, c.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkPlaces() *cli.Error {
	switch {
	case !c.OnYARN() && !masterRule.MatchString(c.Master):
		return config.Bad("use spark://HOST:PORT for a standalone master, or yarn", "spark.master: %q is neither spark://HOST:PORT nor yarn", c.Master)
	case !filepath.IsAbs(c.Home):
		return config.Bad("home is the folder that contains bin/spark-submit, for example /opt/spark", "spark.home: %q is not an absolute path", c.Home)
	case !filepath.IsAbs(c.Plugin) || strings.ContainsRune(c.Plugin, ','):
		return config.Bad("the package installs plugin: /usr/share/java/headroom-spark.jar", "spark.plugin: %q is not the absolute path of one jar", c.Plugin)
	}
	return nil
}

func (c Config) checkHooks() *cli.Error {
	host, port, err := net.SplitHostPort(c.Hooks)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" {
		return config.Bad("write host:port, for example 127.0.0.1:7411; drivers connect to this address", "spark.hooks: %q is not an address", c.Hooks)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return config.Bad("write an address of this machine that drivers can reach", "spark.hooks: %q is not an address that drivers can reach", c.Hooks)
	}
	return nil
}

// checkCluster checks the settings of the cluster, standalone or YARN.
func (c Config) checkCluster() *cli.Error {
	switch {
	case c.Cores < 0 || c.Cores > coresMax:
		return config.Bad("use cores: 0 to read it from the cluster", "spark.cores is %d; it must be from 0 to %d", c.Cores, coresMax)
	case c.ExecutorCores < 0 || c.ExecutorCores > coresMax:
		return config.Bad("use executor_cores: 0 for Spark's default", "spark.executor_cores is %d; it must be from 0 to %d", c.ExecutorCores, coresMax)
	case c.DeployMode != deployClient && c.DeployMode != deployCluster:
		return config.Bad("want client or cluster", "spark.deploy_mode %q is unknown", c.DeployMode)
	case !c.OnYARN() && c.DeployMode == deployCluster:
		return config.Bad("use deploy_mode: client", "spark.deploy_mode: cluster needs spark.master: yarn")
	case c.OnYARN() && !filepath.IsAbs(c.HadoopConf):
		return config.Bad("hadoop_conf is the folder that contains yarn-site.xml, for example /etc/hadoop/conf", "spark.hadoop_conf: %q is not an absolute path; spark.master: yarn needs it", c.HadoopConf)
	case c.OnYARN() && len(c.Web) > 0:
		return config.Bad("remove web, and use resourcemanager", "spark.web is for a standalone master, but spark.master is yarn")
	case strings.ContainsAny(c.Queue, " ,\t\n"):
		return config.Bad("for example queue: root.spark", "spark.queue: %q is not a valid name of a queue", c.Queue)
	}
	for key, addresses := range map[string][]string{"spark.web": c.Web, "spark.resourcemanager": c.ResourceManager} {
		if err := checkWeb(key, addresses); err != nil {
			return err
		}
	}
	return nil
}

func checkWeb(key string, addresses []string) *cli.Error {
	if len(addresses) > mastersMax {
		return config.Bad("list the active one and its standbys", "%s lists %d; the maximum is %d", key, len(addresses), mastersMax)
	}
	for _, text := range addresses {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return config.Bad("write its web address, for example http://10.0.0.20:8080", "%s: %q is not the address of a web server", key, text)
		}
	}
	return nil
}

// webs returns the addresses of the standalone masters' pages.
func (c Config) webs() []string {
	if len(c.Web) > 0 || c.OnYARN() {
		return c.Web
	}
	var all []string
	for place := range strings.SplitSeq(strings.TrimPrefix(c.Master, "spark://"), ",") {
		if host, _, err := net.SplitHostPort(place); err == nil {
			all = append(all, "http://"+net.JoinHostPort(host, webPort))
		}
	}
	return all
}

// webPort is where a standalone master's page is, unless its operator has moved it.
const webPort = "8080"

func (c Config) checkRest() *cli.Error {
	switch k := c.KillAfter.Std(); {
	case !slices.Contains([]string{stagesInput, stagesAll, stagesNone}, c.Stages):
		return config.Bad("want input, all or none", "spark.stages %q is unknown", c.Stages)
	case k < 0 || k > killAfterMax:
		return config.Bad("for example kill_after: 10s", "spark.kill_after is %v; it must be from 0s to %v", k, killAfterMax)
	case len(c.Driver) > 0 && c.Driver[0] == "":
		return config.Bad("for example driver: [taskset, -c, \"0\"]; [] runs drivers directly", "spark.driver starts with an empty program")
	}
	for host, node := range c.Nodes {
		if host == "" || strings.ContainsAny(host, "/ ") || node == "" {
			return config.Bad(`for example nodes: {"10.0.0.11": n01}; the master's page lists the hosts`, "spark.nodes: %q: %q is not a map from a worker's host to a node", host, node)
		}
	}
	return nil
}

// CheckPlaces reports whether the distribution and the jar are there, as a *cli.Error.
func (c Config) CheckPlaces() *cli.Error {
	if !c.On() {
		return nil
	}
	submit := c.submit()
	info, err := os.Stat(submit)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = errors.New("not an executable program")
	}
	if err != nil {
		return config.Bad("spark.home must be the folder of a Spark installation, for example /opt/spark", "spark.home: %s: %v", submit, cause(err))
	}
	if info, err = os.Stat(c.Plugin); err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return config.Bad("install the package headroom-spark, or build it with \"make hooks\"", "spark.plugin: %s: %v", c.Plugin, cause(err))
	}
	if _, err := os.Stat(filepath.Join(c.HadoopConf, "yarn-site.xml")); c.OnYARN() && err != nil {
		return config.Bad("the usual folder is hadoop_conf: /etc/hadoop/conf", "spark.hadoop_conf: %s: %v", filepath.Join(c.HadoopConf, "yarn-site.xml"), cause(err))
	}
	return nil
}

func (c Config) submit() string { return filepath.Join(c.Home, "bin", "spark-submit") }

// node returns the name of the node whose worker has this host.
func (c Config) node(host string) string {
	if name := c.Nodes[host]; name != "" {
		return name
	}
	return host
}

// cause returns the error without what the message already contains.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
