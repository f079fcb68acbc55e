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
	client    *client
	scheduler string // RPC address
	nodes     []string
	slots     int
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

// full is the budget at which every node may run at full speed.
func (l *lab) full() units.Power { return cluster.Rated() * units.Power(l.opts.nodes) }

// cut is the budget after the cut.
func (l *lab) cut() units.Power { return units.FromWatts(math.Round(l.full().Watts() * cutTo)) }

func (l *lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l *lab) startMembers() (err error) {
	for _, m := range l.servers.Members {
		err = errors.Join(err, l.startMember(m))
	}
	return err
}

// startScheduler starts the scheduler; more is added to its configuration.
func (l *lab) startScheduler(more string) error {
	argv, err := l.servers.Scheduler(l.bin, more)
	if err == nil {
		_, err = l.fleet.start("scheduler", argv...)
	}
	return err
}

// startNodes starts the emulated nodes, with a worker each where no other engine runs on them.
func (l *lab) startNodes() (err error) {
	more := []string{"--throttle", l.opts.throttle, "--restart-delay", restartDelay.String()}
	if l.opts.engine == engineLocal {
		more = append(more, "--scheduler", l.scheduler, "--slots", strconv.Itoa(l.slots))
	} else {
		more = append(more, "--no-worker", "--weight", strconv.Itoa(engineWeight))
	}
	for _, name := range l.nodes {
		_, failed := l.fleet.start(name, l.servers.Node(l.bin, name, rack, len(l.nodes), more...)...)
		err = errors.Join(err, failed)
	}
	return err
}

func (l *lab) startMember(m cluster.Member) error {
	_, err := l.fleet.start(m.ID, filepath.Join(l.bin, "coordinator"), "run", "--config", l.servers.Config(m))
	return err
}

// stop ends everything: the nodes while their coordinators still answer, then the others.
func (l *lab) stop() error {
	l.fleet.stopAll(func(name string) bool { return strings.HasPrefix(name, "n") })
	l.fleet.stopAll(func(string) bool { return true })
	return l.fleet.close()
}
