package spark

import (
	"errors"
	"io/fs"
	"net"
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
	// Master is the standalone master, spark://HOST:PORT; standbys follow after commas.
	Master string `yaml:"master"`
	// Plugin is headroom-spark.jar, on the machine where drivers run.
	Plugin string `yaml:"plugin"`
	// Hooks is where the hooks are served, host:port; port 0 lets the system choose.
	Hooks string `yaml:"hooks"`
	// Stages says which stages drop: input, all or none.
	Stages string `yaml:"stages"`
	// Nodes names the nodes by the hosts of their workers; others are called by their host.
	Nodes map[string]string `yaml:"nodes"`
	// KillAfter is how long a driver may take to end before it is killed, 0s to 10m.
	KillAfter config.Duration `yaml:"kill_after"`
	// Driver are words before spark-submit, to place the driver.
	Driver []string `yaml:"driver"`
}

// Defaults are the values of keys that the section does not have.
func Defaults() Config {
	return Config{Hooks: "127.0.0.1:0", Stages: stagesInput, KillAfter: config.Duration(10 * time.Second)}
}

const killAfterMax = 10 * time.Minute

var masterRule = regexp.MustCompile(`^spark://[^\s/,]+:[0-9]+(,[^\s/,]+:[0-9]+)*$`)

// On tells whether there is a Spark to run jobs on.
func (c Config) On() bool { return c.Master != "" }

// Check tells what is wrong, as a *cli.Error with exit code 2 and a hint; nil when nothing is.
func (c Config) Check() *cli.Error {
	if !c.On() {
		return nil // whatever else stands there is for later
	}
	for _, check := range []func() *cli.Error{c.checkPlaces, c.checkHooks, c.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkPlaces() *cli.Error {
	switch {
	case !masterRule.MatchString(c.Master):
		return config.Bad("the engine speaks to a standalone master: spark://10.0.0.20:7077", "spark.master: %q is not spark://HOST:PORT", c.Master)
	case !filepath.IsAbs(c.Home):
		return config.Bad("home: /opt/spark is the folder that has bin/spark-submit in it", "spark.home: %q is not an absolute path", c.Home)
	case !filepath.IsAbs(c.Plugin) || strings.ContainsRune(c.Plugin, ','):
		return config.Bad("plugin: /usr/share/java/headroom-spark.jar is where the package puts it", "spark.plugin: %q is not the absolute path of one jar", c.Plugin)
	}
	return nil
}

func (c Config) checkHooks() *cli.Error {
	host, port, err := net.SplitHostPort(c.Hooks)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" {
		return config.Bad("write host:port, for example 127.0.0.1:7411: drivers ask it by this very address", "spark.hooks: %q is not an address", c.Hooks)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return config.Bad("write the address of this machine that drivers reach", "spark.hooks: %q is no address that a driver could ask", c.Hooks)
	}
	return nil
}

func (c Config) checkRest() *cli.Error {
	switch k := c.KillAfter.Std(); {
	case !slices.Contains([]string{stagesInput, stagesAll, stagesNone}, c.Stages):
		return config.Bad("one of input, all, none", "spark.stages %q is unknown", c.Stages)
	case k < 0 || k > killAfterMax:
		return config.Bad("kill_after: 10s is the usual time", "spark.kill_after is %v; it must be from 0s to %v", k, killAfterMax)
	case len(c.Driver) > 0 && c.Driver[0] == "":
		return config.Bad("driver: [taskset, -c, \"0\"] runs drivers so; [] as they are", "spark.driver names an empty program")
	}
	for host, node := range c.Nodes {
		if host == "" || strings.ContainsAny(host, "/ ") || node == "" {
			return config.Bad(`nodes: {"10.0.0.11": n01} names one; the master's page lists the workers' hosts`, "spark.nodes: %q: %q does not name a node by its worker's host", host, node)
		}
	}
	return nil
}

// CheckPlaces tells whether the distribution and the jar are there, as a *cli.Error.
func (c Config) CheckPlaces() *cli.Error {
	if !c.On() {
		return nil
	}
	submit := c.submit()
	info, err := os.Stat(submit)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = errors.New("it is not a program")
	}
	if err != nil {
		return config.Bad("spark.home is the folder of an unpacked Spark, for example /opt/spark", "spark.home: %s: %v", submit, cause(err))
	}
	if info, err = os.Stat(c.Plugin); err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		return config.Bad("the package headroom-spark brings it; \"make hooks\" builds it", "spark.plugin: %s: %v", c.Plugin, cause(err))
	}
	return nil
}

func (c Config) submit() string { return filepath.Join(c.Home, "bin", "spark-submit") }

// node is the name of the node whose worker has this host.
func (c Config) node(host string) string {
	if name := c.Nodes[host]; name != "" {
		return name
	}
	return host
}

// cause leaves out what the message says already.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
