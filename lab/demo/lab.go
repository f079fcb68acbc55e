package demo

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"headroom/gossip/brake"
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
	// hostShare is the part of the host's CPU that the emulated nodes own together.
	hostShare = 0.75
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

	members   []member
	scheduler string // RPC address
	nodes     []string
	slots     int
}

// member is one coordinator: its id, its addresses and its process.
type member struct {
	id, rpc, raft, gossip string
	program               *program
}

// newLab lays the cluster out; nothing is started yet.
func newLab(opts options, dir, bin string) (*lab, error) {
	l := &lab{opts: opts, dir: dir, bin: bin, spec: emulator.DefaultSpec()}
	for _, sub := range []string{"logs", "jobs", "nodes"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("demo: output folder: %w", err)
		}
	}
	ports, err := cluster.FreePorts(3*servers + 1)
	if err != nil {
		return nil, err
	}
	for i := range servers {
		l.members = append(l.members, member{id: "c" + strconv.Itoa(i+1), rpc: ports[3*i], raft: ports[3*i+1], gossip: ports[3*i+2]})
	}
	l.scheduler = ports[3*servers]
	for i := range opts.nodes {
		l.nodes = append(l.nodes, fmt.Sprintf("n%02d", i+1))
	}
	l.slots = slotsFor(l.nodeCPUs())
	if err := l.configure(); err != nil {
		return nil, err
	}
	l.fleet, err = newFleet(filepath.Join(dir, "logs"), opts.keep)
	return l, err
}

// nodeCPUs is how many of the host's CPUs one node owns.
func (l *lab) nodeCPUs() float64 {
	return hostShare * float64(runtime.NumCPU()) / float64(l.opts.nodes)
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

// addresses are the RPC addresses of all coordinators.
func (l *lab) addresses() []string {
	var out []string
	for _, m := range l.members {
		out = append(out, m.rpc)
	}
	return out
}

// configure writes the programs' configuration files.
func (l *lab) configure() error {
	var key [32]byte
	_, _ = rand.Read(key[:])
	errs := []error{
		os.WriteFile(l.path("gossip.key"), []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"), 0o600),
		brake.WriteKey(l.path("brake.key"), l.path("brake.pub")),
		os.WriteFile(l.path("scheduler.yaml"), []byte(l.schedulerConfig()), 0o644),
	}
	for i := range l.members {
		m := &l.members[i]
		errs = append(errs, os.WriteFile(l.path(m.id+".yaml"), []byte(l.coordinatorConfig(m)), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("demo: write configuration: %w", err)
	}
	return nil
}

func (l *lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l *lab) coordinatorConfig(m *member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s\nstate_dir: %s\ntls: {mode: off}\nservers:\n", m.id, strconv.Quote(l.path(m.id)))
	for _, s := range l.members {
		fmt.Fprintf(&b, "  - {id: %s, rpc: %q, raft: %q}\n", s.id, s.rpc, s.raft)
	}
	fmt.Fprintf(&b, "gossip:\n  bind: %q\n  join: [%q]\n  key_file: %s\n", m.gossip, l.members[0].gossip, strconv.Quote(l.path("gossip.key")))
	fmt.Fprintf(&b, "brake:\n  public_key_file: %s\n  private_key_file: %s\n", strconv.Quote(l.path("brake.pub")), strconv.Quote(l.path("brake.key")))
	fmt.Fprintf(&b, "site:\n  - {name: %s, budget: %gW, unmanaged: 0W}\n  - {name: %s, parent: %s, budget: %gW, unmanaged: 0W}\n",
		site, l.full().Watts(), rack, site, l.full().Watts())
	b.WriteString("lease: 10s\nlog_level: info\n")
	return b.String()
}

func (l *lab) schedulerConfig() string {
	return fmt.Sprintf("dev: true\nlisten: %q\ndir: %s\ncoordinators: [%q, %q, %q]\nclasses: [%s, %s]\nlog_level: info\n",
		l.scheduler, strconv.Quote(l.path("scheduler")), l.members[0].rpc, l.members[1].rpc, l.members[2].rpc, classHigh, classLow)
}

// start starts every process of the cluster.
func (l *lab) start() error {
	for i := range l.members {
		if err := l.startMember(&l.members[i]); err != nil {
			return err
		}
	}
	if _, err := l.fleet.start("scheduler", filepath.Join(l.bin, "scheduler"), "run", "--config", l.path("scheduler.yaml")); err != nil {
		return err
	}
	for _, name := range l.nodes {
		if _, err := l.fleet.start(name, filepath.Join(l.bin, "powerlab"), "node", name, "--dir", l.path("nodes"),
			"--nodes", strconv.Itoa(l.opts.nodes), "--join", l.members[0].gossip, "--join", l.members[1].gossip,
			"--key-file", l.path("gossip.key"), "--brake-key-file", l.path("brake.pub"), "--scheduler", l.scheduler, "--slots", strconv.Itoa(l.slots),
			"--domain", rack, "--bin", l.bin, "--throttle", l.opts.throttle, "--restart-delay", restartDelay.String()); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) startMember(m *member) (err error) {
	m.program, err = l.fleet.start(m.id, filepath.Join(l.bin, "coordinator"), "run", "--config", l.path(m.id+".yaml"))
	return err
}

// member is the coordinator with this id, or nil.
func (l *lab) member(id string) *member {
	for i := range l.members {
		if l.members[i].id == id {
			return &l.members[i]
		}
	}
	return nil
}

// stop ends everything: the nodes while their coordinators still answer, then the others.
func (l *lab) stop() error {
	isNode := func(name string) bool { return strings.HasPrefix(name, "n") }
	l.fleet.stopAll(isNode)
	l.fleet.stopAll(func(name string) bool { return !isNode(name) })
	return l.fleet.close()
}

// binaries checks that the programs are there.
func binaries(bin string) error {
	for _, name := range []string{"coordinator", "scheduler", "powerd", "powerlab"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return &cli.Error{
				Code: "no-program", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("the demo needs the program %s in %s", name, bin),
				Hint: "make build puts all four programs into bin/; --bin names another folder",
			}
		}
	}
	return nil
}
