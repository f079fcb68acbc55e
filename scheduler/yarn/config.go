package yarn

import (
	"cmp"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/profiles"
	"headroom/scheduler/webclient"
	"headroom/units"
)

// How shares reach the ResourceManager.
const (
	// sharesHook serves them to the scheduler plug-in, which polls twice a second.
	sharesHook = "hook"
	// sharesCapacity writes them into the capacity scheduler's configuration, through its web service.
	sharesCapacity = "capacity"
	// sharesNone does not change the queues.
	sharesNone = "none"
)

// How hooks authenticate.
const (
	// AuthCluster uses one token for all of them; tokens of jobs are accepted too if there is a key.
	AuthCluster = "cluster"
	// AuthJob uses one token per job, and one for the scheduler plug-in.
	AuthJob = "job"
)

// What happens to containers above a lowered maximum.
const (
	// lowerDrain lets them finish.
	lowerDrain = "drain"
	// lowerPreempt lets the plug-in kill the newest first.
	lowerPreempt = "preempt"
)

// Config is the section "yarn" of scheduler.yaml. Without a ResourceManager YARN is off.
type Config struct {
	// ResourceManager are the web addresses of the ResourceManagers, tried in order.
	ResourceManager []string `yaml:"resourcemanager"`
	// WebProxy is the web address of a separate proxy to application masters; empty for the ResourceManagers' own.
	WebProxy string `yaml:"web_proxy"`
	// CA is a file with the only CAs trusted for https; empty for this machine's.
	CA string `yaml:"ca"`
	// Certificate and Key are the client certificate for web services that require one.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// Kerberos authenticates to web services that require SPNEGO.
	Kerberos webclient.Kerberos `yaml:"kerberos"`
	// Queues are those whose applications are jobs of Headroom.
	Queues []Queue `yaml:"queues"`
	// Container is the unit in which shares are counted.
	Container Container `yaml:"container"`
	// Nodes maps NodeManagers' addresses, host:port, to node names; the default is the host.
	Nodes map[string]string `yaml:"nodes"`
	// Shares is how queue shares are set: hook, capacity or none.
	Shares string `yaml:"shares"`
	// Lower is what happens to containers above a lowered maximum: drain or preempt.
	Lower string `yaml:"lower"`
	// Hooks is where the hooks are served, host:port; empty serves none.
	Hooks string `yaml:"hooks"`
	// HooksAuth is how hooks authenticate: cluster or job.
	HooksAuth string `yaml:"hooks_auth"`
	// HooksTokenFile contains the token that all hooks share, for hooks_auth: cluster; it needs TLS.
	HooksTokenFile string `yaml:"hooks_token_file"`
	// HooksKeyFile contains the key from which the tokens of users and jobs are derived.
	HooksKeyFile string `yaml:"hooks_key_file"`
	// Poll is the interval of reads of the ResourceManager.
	Poll config.Duration `yaml:"poll"`
}

// Queue is a queue whose applications are jobs of Headroom.
type Queue struct {
	// Name is the queue's full name, root.q1.
	Name string `yaml:"name"`
	// Guarantee is the minimum fraction of a job's map tasks that must be done; 0 for all.
	Guarantee config.Fraction `yaml:"guarantee"`
	// Class is the class of its jobs; empty for the lowest.
	Class string `yaml:"class"`
	// Deadline is for its jobs, from their submission; 0 for none.
	Deadline config.Duration `yaml:"deadline"`
	// SprintAfter is the sprint timer of its jobs, from their first task, "60s"; empty for that of their class.
	SprintAfter string `yaml:"sprint_after"`
	// Deflate is whether drop ratios may drop map tasks of its jobs; nil for true.
	Deflate *bool `yaml:"deflate"`
	// Overrides lets jobs request more: a higher class, a later deadline, an earlier sprint, a drop ratio.
	Overrides bool `yaml:"overrides"`
}

// Container is the unit of a container.
type Container struct {
	// MemoryMB is its memory in MiB.
	MemoryMB int `yaml:"memory_mb"`
	// VCores are its virtual cores.
	VCores int `yaml:"vcores"`
}

// times returns how many units are needed to hold what; at least one.
func (c Container) times(what Container) int {
	return max(1, (what.MemoryMB+c.MemoryMB-1)/c.MemoryMB, (what.VCores+c.VCores-1)/c.VCores)
}

// Defaults returns the values of keys that are not set.
func Defaults() Config {
	return Config{
		Container: Container{MemoryMB: 1024, VCores: 1}, Shares: sharesHook, Lower: lowerDrain, Poll: config.Duration(time.Second),
		Kerberos: webclient.Defaults(), HooksAuth: AuthCluster,
	}
}

// Limits of the configuration, so that one read of the cluster stays small.
const (
	managersMax = 8
	queuesMax   = 1000
	pollMin     = 100 * time.Millisecond
	pollMax     = time.Minute
	memoryMax   = 1 << 24 // MiB: 16 TiB
	vcoresMax   = 1 << 16
)

var queueRule = regexp.MustCompile(`^root(\.[^.\s"<>&']+)+$`)

// On reports whether YARN is configured.
func (c Config) On() bool { return len(c.ResourceManager) > 0 }

// Check returns the first error as a *cli.Error with exit code 2 and a hint, or nil.
func (c Config) Check() *cli.Error {
	if !c.On() {
		return nil // other keys are checked later
	}
	for _, check := range []func() *cli.Error{c.checkManagers, c.checkQueues, c.checkContainer, c.checkNodes, c.checkShares, c.checkHooks} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkManagers() *cli.Error {
	if len(c.ResourceManager) > managersMax {
		return config.Bad("list the active one and its standbys", "yarn.resourcemanager lists %d; the maximum is %d", len(c.ResourceManager), managersMax)
	}
	for _, text := range c.ResourceManager {
		if !isWeb(text) {
			return config.Bad("write its web address, for example http://rm1:8088", "yarn.resourcemanager: %q is not the address of a web server", text)
		}
	}
	if c.WebProxy != "" && !isWeb(c.WebProxy) {
		return config.Bad("write yarn.web-proxy.address of yarn-site.xml, for example http://proxy1:8089", "yarn.web_proxy: %q is not the address of a web server", c.WebProxy)
	}
	if err := c.web().Check(c.addresses()); err != nil {
		return err
	}
	if p := c.Poll.Std(); p < pollMin || p > pollMax {
		return config.Bad("for example poll: 1s", "yarn.poll is %v; it must be from %v to %v", p, pollMin, pollMax)
	}
	return nil
}

// isWeb reports whether text is the address of a web server, without a path.
func isWeb(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
}

// addresses returns all web addresses that are used.
func (c Config) addresses() []string {
	if c.WebProxy == "" {
		return c.ResourceManager
	}
	return append(slices.Clone(c.ResourceManager), c.WebProxy)
}

// web returns the TLS and Kerberos configuration of the web client.
func (c Config) web() webclient.Config {
	return webclient.Config{Section: "yarn", CA: c.CA, Certificate: c.Certificate, Key: c.Key, Kerberos: c.Kerberos}
}

// CheckFiles returns the first error in the files of the section, or nil.
func (c Config) CheckFiles() *cli.Error {
	if !c.On() {
		return nil
	}
	return c.web().CheckFiles()
}

// Notes returns warnings about a valid configuration.
func (c Config) Notes() []string {
	if !c.On() || !c.Kerberos.On() || !slices.ContainsFunc(c.addresses(), func(a string) bool { return strings.HasPrefix(a, "http:") }) {
		return nil
	}
	return []string{"yarn.kerberos over http: the session can be read from the network; use https with yarn.ca"}
}

func (c Config) checkQueues() *cli.Error {
	switch {
	case len(c.Queues) == 0:
		return config.Bad("for example queues: [{name: root.q1, guarantee: 100%}]", "yarn.queues is missing")
	case len(c.Queues) > queuesMax:
		return config.Bad("list only the queues of Headroom's jobs", "yarn.queues lists %d; the maximum is %d", len(c.Queues), queuesMax)
	}
	for i, q := range c.Queues {
		if !queueRule.MatchString(q.Name) {
			return config.Bad("write the full name as the ResourceManager shows it, for example root.q1", "yarn.queues: %q is not a valid name of a queue", q.Name)
		}
		if q.Deadline.Std() > hookserver.DeadlineMost {
			return config.Bad("write a duration, for example 10m, or omit it", "yarn.queues: the deadline of %s is %v; the maximum is %v", q.Name, q.Deadline, hookserver.DeadlineMost)
		}
		if slices.ContainsFunc(c.Queues[:i], func(other Queue) bool { return other.Name == q.Name }) {
			return config.Bad("list each queue once", "yarn.queues lists %s twice", q.Name)
		}
		for _, other := range c.Queues {
			if strings.HasPrefix(q.Name, other.Name+".") {
				return config.Bad("applications run in leaf queues; remove the parent", "yarn.queues lists %s and its parent %s", q.Name, other.Name)
			}
		}
	}
	return nil
}

func (c Config) checkContainer() *cli.Error {
	if k := c.Container; k.MemoryMB < 1 || k.MemoryMB > memoryMax || k.VCores < 1 || k.VCores > vcoresMax {
		return config.Bad("the default of a map task is container: {memory_mb: 1024, vcores: 1}",
			"yarn.container is %d MB and %d vcores; both must be at least 1, at most %d MB and %d vcores", k.MemoryMB, k.VCores, memoryMax, vcoresMax)
	}
	return nil
}

func (c Config) checkNodes() *cli.Error {
	for address, node := range c.Nodes {
		if _, _, err := net.SplitHostPort(address); err != nil || node == "" {
			return config.Bad(`for example nodes: {"10.0.0.11:45454": n01}; the ResourceManager lists the addresses`, "yarn.nodes: %q: %q is not a map from a NodeManager's host:port to a node", address, node)
		}
	}
	return nil
}

func (c Config) checkShares() *cli.Error {
	switch {
	case c.Shares == sharesFile:
		return config.Bad(FileHint, "yarn.shares is file, but the allocation file is no longer written")
	case !slices.Contains([]string{sharesHook, sharesCapacity, sharesNone}, c.Shares):
		return config.Bad("want hook, capacity or none", "yarn.shares %q is unknown", c.Shares)
	case c.Lower != lowerDrain && c.Lower != lowerPreempt:
		return config.Bad("want drain or preempt", "yarn.lower %q is unknown", c.Lower)
	case c.Shares == sharesHook && c.Hooks == "":
		return config.Bad("set hooks, for example 127.0.0.1:7411; or use shares: capacity, or shares: none", "yarn.shares is hook, but yarn.hooks is missing")
	case c.Shares == sharesCapacity && c.Lower == lowerPreempt:
		return config.Bad("use lower: drain", "yarn.lower is preempt, but the capacity scheduler only drains queues above their maximum")
	}
	return nil
}

func (c Config) checkHooks() *cli.Error {
	switch {
	case c.HooksAuth != AuthCluster && c.HooksAuth != AuthJob:
		return config.Bad("want cluster or job", "yarn.hooks_auth %q is unknown", c.HooksAuth)
	case c.HooksAuth == AuthJob && c.HooksKeyFile == "":
		return config.Bad("the usual path is hooks_key_file: /etc/headroom/scheduler/hooks.key; create a key with head -c 32 /dev/urandom | base64",
			"yarn.hooks_auth is job, but yarn.hooks_key_file is missing")
	case c.HooksAuth == AuthJob && c.HooksTokenFile != "":
		return config.Bad("remove it, or use hooks_auth: cluster while jobs still need it", "yarn.hooks_auth is job, but with yarn.hooks_token_file any hook could act for any job")
	case c.HooksKeyFile != "" && c.HooksKeyFile == c.HooksTokenFile:
		return config.Bad("create a new key; every machine of the cluster knows the token", "yarn.hooks_key_file and yarn.hooks_token_file are one file")
	}
	if c.Hooks == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.Hooks)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return config.Bad("write host:port, for example 10.0.0.20:7411", "yarn.hooks: %q is not an address", c.Hooks)
	}
	return nil
}

// queue returns the configured queue of that name, or nil.
func (c Config) queue(name string) *Queue {
	for i := range c.Queues {
		if c.Queues[i].Name == name {
			return &c.Queues[i]
		}
	}
	return nil
}

// Timer returns the queue's sprint timer; nil for none. The error is a *cli.Error.
func (q Queue) Timer() (*time.Duration, error) {
	if q.SprintAfter == "" {
		return nil, nil
	}
	after, err := config.ParseDuration(q.SprintAfter)
	if err != nil {
		return nil, err
	}
	return &after, nil
}

// bound returns the queue's guarantee.
func (q Queue) bound() profiles.Bound {
	x := cmp.Or(float64(q.Guarantee), 1)
	return profiles.Bound{Fraction: x, Why: "queue " + q.Name + " guarantees " + units.Percent(x)}
}

// node returns the name of the node of a NodeManager.
func (c Config) node(address string) string {
	if name := c.Nodes[address]; name != "" {
		return name
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
