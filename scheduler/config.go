package scheduler

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/secure"
	"headroom/jobs/admission"
	"headroom/jobs/buffers"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/local"
	"headroom/scheduler/spark"
	"headroom/scheduler/yarn"
)

// Config is scheduler.yaml.
type Config struct {
	// Listen is the address for users and workers, host:port.
	Listen string `yaml:"listen"`
	// Socket is a unix socket for users of this machine; empty for none.
	Socket string `yaml:"socket"`
	// SocketGroup is the group whose members may operate through the socket; empty for only root and the scheduler's
	// user.
	SocketGroup string `yaml:"socket_group"`
	// Advertise is the address that the coordinators receive; empty for the one listened on.
	Advertise string `yaml:"advertise"`
	// Dir is the scheduler's own folder.
	Dir string `yaml:"dir"`
	// Coordinators are RPC addresses of coordinators, host:port; one is enough.
	Coordinators []string `yaml:"coordinators"`
	// TLS is the identity of this scheduler, of role scheduler, for users, workers and coordinators.
	TLS secure.Config `yaml:"tls"`
	// Dev permits connections without TLS, on loopback only.
	Dev bool `yaml:"dev"`
	// TaskSockets is the folder of the sockets of the users that run tasks; empty for the packaged one, and with Dev for
	// none: then the scheduler itself looks at the files of jobs.
	TaskSockets string `yaml:"task_sockets"`
	// TaskUsers are the users of the submitters' tasks, as the workers have them; empty for one of all submitters.
	TaskUsers map[string]string `yaml:"task_users"`
	// MaxWaiting bounds the waiting jobs of one submitter; 0 for no limit.
	MaxWaiting int `yaml:"max_waiting"`
	// Discipline is how the dispatcher treats running jobs and classes: shared, p, np, da, nps or dias.
	Discipline string `yaml:"discipline"`
	// Width is how many jobs run at once; shared ignores it.
	Width int `yaml:"width"`
	// Classes are the priority classes, highest first.
	Classes []Class `yaml:"classes"`
	// Sprint is the effect of a sprint, for timers that are to be found.
	Sprint Sprint `yaml:"sprint"`
	// Speculation is how copies of stragglers are decided.
	Speculation Speculation `yaml:"speculation"`
	// Admission is how jobs with a deadline are admitted.
	Admission Admission `yaml:"admission"`
	// Scaling is whether scaling curves of jobs are learned.
	Scaling Scaling `yaml:"scaling"`
	// Profiles is the folder of quality profiles; empty for none.
	Profiles string `yaml:"profiles"`
	// Yarn is a Hadoop cluster whose jobs the coordinators manage too; optional.
	Yarn yarn.Config `yaml:"yarn"`
	// Spark is a Spark cluster that jobs may run on; optional.
	Spark spark.Config `yaml:"spark"`
	// Dispatch are the groups whose masters dispatch tasks of jobs with dispatch: pigeon; optional.
	Dispatch Dispatch `yaml:"dispatch"`
	// Metrics is the listener for Prometheus.
	Metrics MetricsConfig `yaml:"metrics"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `yaml:"log_level"`
}

// ExampleConfig is scheduler.yaml with every key and its meaning.
const ExampleConfig = `# scheduler.yaml: the scheduler of a cluster.

listen: 127.0.0.1:7410                # host:port where users and workers reach it, with certificates
socket: ""                            # unix socket for users of this machine, /run/headroom-scheduler/scheduler.sock; empty: none
socket_group: ""                      # group whose members operate by the socket; root and the scheduler's own user always do
advertise: ""                         # host:port that the coordinators are told; empty: the one above
dir: /var/lib/headroom/scheduler      # its own folder; two schedulers never share one

# Any one coordinator that answers is enough: it names the leader.
coordinators: ["127.0.0.1:7400"]      # RPC addresses, host:port

# This scheduler's certificate, of role scheduler: "coordinator tls cert create scheduler/s1". Users and workers
# show certificates of the same authority: submitter/NAME, operator/NAME, observer/NAME, worker/NODE.
tls:
  mode: ""                            # on, off; empty: on with files, off without (then dev must be true)
  ca: /etc/headroom/ca.crt                    # authority of the cluster
  cert: /etc/headroom/scheduler/scheduler.crt # certificate, scheduler/NAME
  key: /etc/headroom/scheduler/scheduler.key  # its key
dev: false                            # true: connections in the clear, on loopback only, where every local user may do everything, and Spark drivers as the scheduler's user; for demos and tests

# The files that a job names are looked at by a process of the user that runs its submitter's tasks, never by the
# scheduler: a user's socket is active on this machine too (systemctl enable --now headroom-task@alice.socket).
task_sockets: ""                      # folder of the users' sockets; empty: /run/headroom-task, and with dev: true none (the scheduler's own user looks)
task_users: {}                        # users of the submitters, as --task-user of the workers, {submitter/alice: alice}; empty: headroom-task for all

# Jobs carry the name of the certificate that they were submitted with.
max_waiting: 200                      # jobs of one submitter that may wait; 0: no bound but that of all jobs

# How jobs share the cluster. shared: jobs run beside each other, free slots go by class and arrival. The others run
# width jobs at a time: p kills a running job for one of a higher class and starts it again later, np never does; da is np
# with a drop ratio for each class, nps is np with a sprint timer for each class, dias is both.
discipline: shared                    # shared, p, np, da, nps, dias
width: 1                              # jobs at once; shared ignores it

# A job names its class; inside a class jobs start in the order of their submission, and but for p a running job is never
# killed for another. "classes: [high, low]" names classes without anything else.
classes:                              # priority classes, highest first; 1 to 100
  - name: high                        # letters, digits, dots, dashes and underscores
    theta: 0%                         # da, dias: part of the map tasks that its jobs drop, never below a job's own floor; auto: found from max_error, latency and profile
    sprint_after: ""                  # nps, dias: how long after its start a job sprints, 65s, 0s at once; empty: never; auto: found from latency and the sprint budget
    deadline: ""                      # deadline of its jobs that name none, from their submission, 10m; empty: none
    quality_price: ""                 # how much sooner a job must end for one percent of its tasks to be given up, 3s; empty: the arbiter's own price
    max_error: ""                     # auto: the most error of a result, 15%; empty: none is taken
    profile: ""                       # auto: the profile that says how the error grows with the drop ratio
    latency:                          # auto: bounds of the time from submission to end; empty: none
      mean: ""                        # 100s
      p95: ""                         # 200s
  - name: low

# For sprint_after: auto, what a sprint does. The coordinators hold the sprint budget; this is what the model takes it for.
sprint:
  speed_up: 0                         # how many times as fast a sprint makes a job, 2.5; 0: unknown
  extra: 0W                           # what a sprint draws beyond the same job without one, 90W
  budget: 0J                          # joules that the sprint budget holds, 22kJ; 0J: every sprint is taken to be granted
  refill: 0W                          # watts that refill it

# A job that names a deadline is accepted only if the slots that it needs can be promised to it; otherwise scheduler submit
# ends with exit code 6 and says which deadline could be kept. adaptive learns what jobs of each size and user need;
# pythia, reactive and nodrop are those of the paper.
admission:
  policy: adaptive                    # adaptive, pythia, reactive, nodrop; off: every job is accepted

# Jobs with a deadline or an error bound run copies of map tasks that straggle; the first to end counts. ours knows of the
# nodes' caps, grass does not; both learn from a part of the jobs when to stop saving slots.
speculation:
  policy: ours                        # ours, grass, gs, ras, late, mantri, none
  xi: 15%                             # part of such jobs that run gs or ras all through, as samples for the others

# How a job's speed follows its slots is learned from earlier runs of its name, in scaling.json in dir. The coordinators give a job
# no slots that would slow it down.
scaling:
  policy: learned                     # learned; off: every job may use as many slots as it has tasks

# Quality profiles, one file NAME.json for each, as "scheduler profile --out NAME.json" writes them; read again when
# they change. A job that asks for an accuracy (quality: 90% in its file, -Dheadroom.quality=90% in Hadoop) does as many
# of its map tasks as its profile (profile: NAME, -Dheadroom.profile=NAME; otherwise the one of the job's name) says that
# the worst run needs. Where none can be used the job does all of them, and scheduler job show tells why.
profiles: ""                          # folder, /etc/headroom/profiles; empty: none

# A Hadoop cluster: the MapReduce applications of its queues are jobs for the coordinators.
# They may hold its queues to their shares of the power, and stop its jobs early.
yarn:
  resourcemanager: []                 # web addresses, http://rm1:8088, the standbys' too; empty: no YARN
  web_proxy: ""                       # yarn.web-proxy.address where the proxy is a process of its own, http://proxy1:8089; empty: the ResourceManagers'
  ca: ""                              # file of the authority that https addresses are checked against, no other counts; empty: this machine's
  certificate: ""                     # file shown where the ResourceManager asks for a certificate; empty: none
  key: ""                             # its key
  kerberos:                           # for web services that ask for SPNEGO (hadoop.http.authentication.type: kerberos)
    principal: ""                     # headroom/HOST@REALM; empty: no Kerberos
    keytab: /etc/headroom/scheduler/headroom.keytab  # its key, mode 0640; a new one is used without a restart
    krb5_conf: /etc/krb5.conf         # names the KDCs
  queues:                             # whose applications are jobs; applications of others are left alone
    - name: root.q1                   # full name
      guarantee: 100%                 # least part of a job's map tasks that is done, whatever the power; a job may demand more: -Dheadroom.min-tasks=90%, -Dheadroom.quality=90%
      class: ""                       # class of its jobs, one of classes; empty: the lowest. A job may name a lower one: -Dheadroom.class=low
      deadline: 0s                    # deadline of its jobs, from their submission, 10m; 0s: that of their class. A job may name an earlier one: -Dheadroom.deadline=5m
      sprint_after: ""                # how long after its first task a job sprints, 60s, 0s at once; empty: that of its class. A job may name a later one, or never: -Dheadroom.sprint-after=90s
      deflate: true                   # drop ratios may give up map tasks of its jobs, down to the guarantee, where their hook asks; a job may refuse: -Dheadroom.deflate=false
      overrides: false                # true: a job may also name a higher class, a later deadline, an earlier sprint, and deflate where the queue does not
  container:                          # the unit that shares are counted in: what a map task asks for
    memory_mb: 1024                   # MiB, as mapreduce.map.memory.mb
    vcores: 1                         # as mapreduce.map.cpu.vcores
  nodes: {"10.0.0.11:45454": n01}     # names of nodes, as in powerd.yaml, by their NodeManagers' host:port; others are called by their host
  shares: hook                        # how queues are held to their shares: hook (fair scheduler with the plug-in, at once), capacity (capacity scheduler, by its web service), none
  lower: drain                        # containers above a lowered share: drain (they end by themselves), preempt (hook only: the newest are ended)
  hooks: ""                           # host:port that the hooks inside Hadoop ask, by TLS with the certificate above; empty: off
  hooks_auth: cluster                 # what these hooks prove themselves by: cluster (one token for all), job (each job has its own: scheduler hook token)
  hooks_token_file: ""                # cluster: the token that all hooks share, /etc/headroom/scheduler/hooks.token; needed with hooks
  hooks_key_file: ""                  # job: the key that tokens are made from, /etc/headroom/scheduler/hooks.key; it leaves this machine never
  poll: 1s                            # time between two looks at the ResourceManager

# A Spark cluster, standalone or on YARN: jobs with a section spark run there, each with a driver of its own.
spark:
  home: ""                            # folder of a Spark distribution, /opt/spark, with bin/spark-submit in it
  master: ""                          # spark://10.0.0.20:7077, or yarn; empty: no Spark
  web: []                             # web addresses of a standalone master and its standbys, http://10.0.0.20:8080; empty: their hosts at port 8080
  cores: 0                            # cores that jobs divide; 0: those of the cluster's nodes, as its master or YARN says, less what others hold
  executor_cores: 0                   # cores of an executor of jobs that do not set spark.executor.cores; 0: Spark's own (standalone: all of a worker's, yarn: 1)
  deploy_mode: client                 # yarn: where drivers run: client (beside the scheduler), cluster (in a container)
  queue: ""                           # yarn: queue of jobs that do not set spark.yarn.queue; empty: Spark's default
  hadoop_conf: ""                     # yarn: folder with yarn-site.xml, /etc/hadoop/conf
  resourcemanager: []                 # yarn: web addresses of the ResourceManagers; empty: those of section yarn
  plugin: ""                          # the hook, /usr/share/java/headroom-spark.jar, on this machine
  hooks: 127.0.0.1:0                  # host:port that the hooks inside the drivers ask, by TLS too; port 0: of the system's choice
  stages: input                       # which stages drop tasks: input (those that read the input), all, none
  nodes: {"10.0.0.11": n01}           # names of nodes, as in powerd.yaml, by the hosts of their Spark workers; others are called by their host
  kill_after: 10s                     # time for a driver to end before it is killed
  driver: []                          # words before spark-submit: [/usr/bin/scheduler, start-driver, /run/headroom-driver.sock] runs drivers as a user of their own; needed, unless dev: true

# Groups of workers, each with a master and its standby: "scheduler master" runs one. Jobs with "dispatch: pigeon" in their
# file are split over the groups, and the masters hand their tasks to the workers.
dispatch:
  groups: {}                          # addresses of each group's masters, {rack/r1: ["10.0.1.1:7420", "10.0.1.2:7420"]}; empty: none
  cutoff: 10s                         # jobs with a task_time below it are short: their tasks go first
  spread: power                       # how a job is split: power (by what each group can do now), level (each task where least waits), even
  placement: round-robin              # which task goes where: round-robin, block (neighbours together)
  max_tasks: 300000                   # tasks of such jobs that have not ended; a job beyond it is refused

# Served to Prometheus at http://ADDRESS/metrics: what the process uses, and the connections that were turned out.
metrics:
  listen: ""                          # host:port, e.g. 127.0.0.1:7413; empty: none. Who reaches it may ask: loopback or a network that you trust

log_level: info                       # debug, info, warn, error
`

// Defaults returns the values of keys that are not set.
func Defaults() Config {
	return Config{LogLevel: "info", MaxWaiting: 200, Discipline: string(buffers.Shared), Width: 1, Speculation: speculationDefaults(), Admission: Admission{admission.Adaptive.String()}, Scaling: Scaling{scalingLearned}, Yarn: yarn.Defaults(), Spark: spark.Defaults(), Dispatch: dispatchDefaults()}
}

// classesMax bounds the priority classes; the papers use two or three. widthMax bounds the concurrent jobs.
const (
	classesMax = 100
	widthMax   = 1000
)

var classRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// LoadConfig reads and checks scheduler.yaml. Errors are *cli.Error with exit
// code 2 and a hint.
func LoadConfig(path string) (*Config, error) {
	c := new(Defaults())
	if err := config.Load(path, c); err != nil {
		return nil, moved(err)
	}
	if err := c.check(); err != nil {
		e := *err
		e.Message = path + ": " + e.Message
		return nil, &e
	}
	data, err := config.ReadFile(path, 1<<20) // Load has read it, so it is within bounds
	if err != nil {
		return nil, fmt.Errorf("scheduler: read %s: %w", path, err)
	}
	source := jobfile.NewSource(path, data)
	if err := c.checkClasses(source); err != nil {
		return nil, err
	}
	if err := c.checkQueues(source); err != nil {
		return nil, err
	}
	return c, nil
}

// moved gives the error about a key of an earlier version a hint.
func moved(err error) error {
	e, ok := errors.AsType[*cli.Error](err)
	if !ok || !strings.HasSuffix(e.Message, `unknown key "allocation_file"`) && !strings.HasSuffix(e.Message, `unknown key "refresh"`) {
		return err
	}
	old := *e
	old.Hint = yarn.FileHint
	return &old
}

func (c *Config) check() *cli.Error {
	switch {
	case c.Listen == "":
		return config.Bad("for example listen: 127.0.0.1:7410, for this machine only", "listen is missing")
	case c.Dir == "":
		return config.Bad("the usual folder is dir: /var/lib/headroom/scheduler", "dir is missing")
	case len(c.Coordinators) == 0:
		return config.Bad("for example coordinators: [127.0.0.1:7400]; one is enough", "coordinators is missing")
	case len(c.Classes) == 0:
		return config.Bad("for example classes: [high, low], highest first", "classes is missing")
	case !slices.Contains(buffers.Disciplines(), buffers.Discipline(c.Discipline)):
		return config.Bad("want one of shared, p, np, da, nps, dias", "discipline %q is unknown", c.Discipline)
	case c.Width < 1 || c.Width > widthMax:
		return config.Bad("width: 1 runs one job at a time on the whole cluster", "width is %d; it must be from 1 to %d", c.Width, widthMax)
	case len(c.Classes) > classesMax:
		return config.Bad(fmt.Sprintf("use at most %d classes", classesMax), "%d classes; the maximum is %d", len(c.Classes), classesMax)
	}
	for _, a := range append([]string{c.Listen}, c.Coordinators...) {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return config.Bad("write host:port, for example 127.0.0.1:7400", "%q is not an address", a)
		}
	}
	if c.Profiles != "" && !filepath.IsAbs(c.Profiles) {
		return config.Bad("the usual folder is profiles: /etc/headroom/profiles", "profiles %q is not an absolute path", c.Profiles)
	}
	if err := c.checkAccess(); err != nil {
		return err
	}
	if err := c.Yarn.Check(); err != nil {
		return err
	}
	if err := c.Sprint.check(c.Classes); err != nil {
		return err
	}
	if err := c.Scaling.check(); err != nil {
		return err
	}
	if err := c.Admission.check(); err != nil {
		return err
	}
	if err := c.Speculation.check(); err != nil {
		return err
	}
	if err := c.Spark.Check(); err != nil {
		return err
	}
	if err := c.Dispatch.check(); err != nil {
		return err
	}
	if c.Spark.OnYARN() && len(c.Spark.ResourceManager)+len(c.Yarn.ResourceManager) == 0 {
		return config.Bad("for example resourcemanager: [http://rm1:8088]; drivers are monitored and killed there", "spark.master is yarn, but neither spark.resourcemanager nor yarn.resourcemanager is set")
	}
	if _, err := LogLevel(c.LogLevel); err != nil {
		return config.Bad("want one of debug, info, warn, error", "log_level %q is unknown", c.LogLevel)
	}
	return nil
}

// checkAccess refuses a configuration that gives access to anyone.
func (c *Config) checkAccess() *cli.Error {
	const way = "create a certificate with coordinator tls cert create scheduler/NAME and name its files in tls; dev: true is for demos and tests on loopback"
	if err := c.TLS.Check(false, slices.Concat([]string{c.Listen}, c.Coordinators, c.Dispatch.masters())...); err != nil {
		return config.Bad(way, "%v", err)
	}
	switch {
	case c.TLS.Off() && !c.Dev:
		return config.Bad(way, "tls is off and dev is not true: any local user could run jobs as another user through %s", c.Listen)
	case c.SocketGroup != "" && c.Socket == "":
		return config.Bad("the usual path is socket: /run/headroom-scheduler/scheduler.sock", "socket_group without a socket")
	case c.Socket != "" && !filepath.IsAbs(c.Socket):
		return config.Bad("the usual path is socket: /run/headroom-scheduler/scheduler.sock", "socket %q is not an absolute path", c.Socket)
	case c.taskUsers().Check() != nil:
		return config.Bad("for example task_sockets: /run/headroom-task and task_users: {submitter/alice: alice}", "task_sockets, task_users: %v", c.taskUsers().Check())
	case c.MaxWaiting < 0 || c.MaxWaiting > jobsMax:
		return config.Bad("max_waiting: 200 is the default; 0 means no limit per submitter", "max_waiting is %d; it must be from 0 to %d", c.MaxWaiting, jobsMax)
	}
	if _, _, err := net.SplitHostPort(c.Metrics.Listen); c.Metrics.Listen != "" && err != nil {
		return config.Bad("for example metrics: {listen: \"127.0.0.1:7413\"}", "metrics.listen: %q is not host:port", c.Metrics.Listen)
	}
	return c.checkHooks()
}

// packagedSockets is the folder of the packaged sockets of users.
const packagedSockets = "/run/headroom-task"

// taskUsers returns who looks at the files of jobs.
func (c *Config) taskUsers() local.Users {
	u := local.Users{Sockets: c.TaskSockets, BySubmitter: c.TaskUsers}
	if u.Sockets == "" && !c.Dev {
		u.Sockets = packagedSockets
	}
	return u
}

// checkHooks refuses hooks that anyone could reach or impersonate.
func (c *Config) checkHooks() *cli.Error {
	hadoop, spark := c.Yarn.On() && c.Yarn.Hooks != "", c.Spark.On()
	switch {
	case hadoop && c.TLS.Off() && !secure.Loopback(c.Yarn.Hooks):
		return config.Bad("set tls, or use yarn.hooks: 127.0.0.1:7411", "yarn.hooks: tls is off, and %s is not a loopback address", c.Yarn.Hooks)
	case spark && c.TLS.Off() && !secure.Loopback(c.Spark.Hooks):
		return config.Bad("set tls, or use spark.hooks: 127.0.0.1:0", "spark.hooks: tls is off, and %s is not a loopback address", c.Spark.Hooks)
	case spark && !c.Dev && !c.Spark.Apart():
		return config.Bad("set spark.driver: [/usr/bin/scheduler, start-driver, /run/headroom-driver.sock]; dev: true permits it for demos and tests", "spark.driver does not run drivers as a user of their own: jobs could read the key of this scheduler")
	case hadoop && c.TLS.Off() && c.Yarn.HooksTokenFile != "":
		return config.Bad("set tls, or remove hooks_token_file", "yarn.hooks_token_file: tls is off; the token would be sent unencrypted")
	case hadoop && c.TLS.Off() && c.Yarn.HooksKeyFile != "":
		return config.Bad("set tls, or remove hooks_key_file", "yarn.hooks_key_file: tls is off; tokens would be sent unencrypted")
	case hadoop && !c.TLS.Off() && c.Yarn.HooksAuth == yarn.AuthCluster && c.Yarn.HooksTokenFile == "":
		return config.Bad("the usual path is hooks_token_file: /etc/headroom/scheduler/hooks.token; create a token with head -c 32 /dev/urandom | base64", "yarn.hooks_token_file is missing: anyone who can connect to %s could drop tasks", c.Yarn.Hooks)
	}
	return nil
}

// LogLevel returns the level of a name, and info for an unknown one.
func LogLevel(name string) (slog.Level, error) {
	var l slog.Level
	if name == "" {
		return slog.LevelInfo, nil
	}
	err := l.UnmarshalText([]byte(name))
	return l, err
}
