package demo

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/lab/cluster"
	"headroom/lab/emulator"
	"headroom/units"
)

// The cluster's shape.
const (
	servers = 3
	// site is the domain whose budget the demo changes, rack the one the nodes are in.
	site, rack = "site/demo", "rack/r1"
	// cutTo is the budget after the cut, as a part of the first one.
	cutTo = 0.60
	// restartDelay is how long a powerd that ended stays ended.
	restartDelay = 2 * time.Second
)

// lab is the cluster: its folder, its addresses, its processes.
type lab struct {
	opts  options
	dir   string // absolute
	bin   string // absolute
	spec  emulator.Spec
	fleet *fleet

	servers   *cluster.Servers
	members   []member
	client    *client
	scheduler string // RPC address
	nodes     []string
	slots     int
}

// member is one coordinator and its process.
type member struct {
	cluster.Member

	program *program
}

// newLab lays the cluster out; nothing is started yet.
func newLab(opts options) (*lab, error) {
	dir := opts.out
	l := &lab{opts: opts, dir: dir, bin: opts.bin, spec: emulator.DefaultSpec()}
	for _, sub := range []string{"logs", "jobs", "nodes"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("demo: output folder: %w", err)
		}
	}
	var err error
	if l.servers, err = cluster.NewServers(dir, servers, 1); err != nil {
		return nil, err
	}
	for _, m := range l.servers.Members {
		l.members = append(l.members, member{Member: m})
	}
	l.scheduler = l.servers.Spare[0]
	l.client = newClient(l.servers.Addresses(), l.scheduler)
	for i := range opts.nodes {
		l.nodes = append(l.nodes, fmt.Sprintf("n%02d", i+1))
	}
	l.slots = slotsFor(l.nodeCPUs())
	if err := l.servers.Configure(site, l.full(), rack); err != nil {
		return nil, fmt.Errorf("demo: write configuration: %w", err)
	}
	l.fleet, err = newFleet(filepath.Join(dir, "logs"), opts.keep && opts.engine == engineLocal)
	return l, err
}

// nodeCPUs is how many of the host's CPUs one node owns.
func (l *lab) nodeCPUs() float64 {
	return emulator.HostShare * float64(runtime.NumCPU()) / float64(l.opts.nodes)
}

// slotsFor is enough slots to use the node's CPUs, and enough that a lower cap
// takes some of them away and still leaves both classes one.
func slotsFor(cpus float64) int { return max(4, int(math.Ceil(1.5*cpus))) }

// full is the budget at which every node may run at full speed, as powerd
// declares its most: whole watts.
func (l *lab) full() units.Power {
	return units.FromWatts(math.Ceil(l.spec.Rated().Watts())) * units.Power(l.opts.nodes)
}

// cut is the budget after the cut.
func (l *lab) cut() units.Power { return units.FromWatts(math.Round(l.full().Watts() * cutTo)) }

func (l *lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

// plainClasses are the classes of jobs that the workers run.
const plainClasses = "classes: [" + classHigh + ", " + classLow + "]\n"

func (l *lab) startMembers() (err error) {
	for i := range l.members {
		err = errors.Join(err, l.startMember(&l.members[i]))
	}
	return err
}

// startScheduler starts the scheduler; more is added to its configuration.
func (l *lab) startScheduler(more string) error {
	config := fmt.Sprintf("dev: true\nlisten: %q\ndir: %q\ncoordinators: [%q, %q, %q]\nlog_level: info\n%s",
		l.scheduler, l.path("scheduler"), l.members[0].RPC, l.members[1].RPC, l.members[2].RPC, more)
	if err := os.WriteFile(l.path("scheduler.yaml"), []byte(config), 0o644); err != nil {
		return fmt.Errorf("demo: write configuration: %w", err)
	}
	_, err := l.fleet.start("scheduler", filepath.Join(l.bin, "scheduler"), "run", "--config", l.path("scheduler.yaml"))
	return err
}

// startNodes starts the emulated nodes, with a worker each where no other engine runs on them.
func (l *lab) startNodes() error {
	worker := []string{"--scheduler", l.scheduler, "--slots", strconv.Itoa(l.slots)}
	if l.opts.engine != engineLocal {
		worker = []string{"--no-worker", "--weight", strconv.Itoa(engineWeight)}
	}
	for _, name := range l.nodes {
		if _, err := l.fleet.start(name, append([]string{
			filepath.Join(l.bin, "powerlab"), "node", name, "--dir", l.path("nodes"),
			"--nodes", strconv.Itoa(l.opts.nodes), "--join", l.members[0].Gossip, "--join", l.members[1].Gossip,
			"--key-file", l.path("gossip.key"), "--brake-key-file", l.path("brake.pub"),
			"--domain", rack, "--bin", l.bin, "--throttle", l.opts.throttle, "--restart-delay", restartDelay.String(),
		}, worker...)...); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) startMember(m *member) (err error) {
	m.program, err = l.fleet.start(m.ID, filepath.Join(l.bin, "coordinator"), "run", "--config", l.path(m.ID+".yaml"))
	return err
}

// member is the coordinator with this id, or nil.
func (l *lab) member(id string) *member {
	for i := range l.members {
		if l.members[i].ID == id {
			return &l.members[i]
		}
	}
	return nil
}

// stop ends everything: the nodes while their coordinators still answer, then the others.
func (l *lab) stop() error {
	l.fleet.stopAll(func(name string) bool { return strings.HasPrefix(name, "n") })
	l.fleet.stopAll(func(string) bool { return true })
	return l.fleet.close()
}

// binaries checks that the programs are there.
func binaries(bin string) error {
	for _, name := range []string{"coordinator", "scheduler", "powerd", "powerlab"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return &cli.Error{
				Code: "no-program", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("program %s not found in %s", name, bin),
				Hint: "build the four programs with make build, or set their folder with --bin",
			}
		}
	}
	return nil
}
