package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/heat"
	"headroom/agent/machine"
	"headroom/agent/meter"
	"headroom/agent/network"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/remote"
	"headroom/agent/statedir"
	"headroom/agent/streams"
	"headroom/internal/cli"
	"headroom/lease"
	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/systemd"
)

// node is a running powerd: its parts, and the loop that owns them. Everything belongs to
// the loop's goroutine, except for what report publishes and what channels carry.
type node struct {
	cfg     *config.Config
	log     *slog.Logger
	health  *health.Items
	disk    statedir.Disk
	lock    *os.File
	claimed *os.File // of the machine; nil for a node that only observes
	root    *os.Root
	files   *sysfs.Files // of the root

	lease    *lease.Node
	machine  *machine.Machine
	meter    *meter.Meter
	heat     *heat.Heat
	tuner    *tuner
	records  *records.Records
	network  *network.Network
	remote   *remote.Remote
	tally    *tally
	drift    *driftWatch
	brake    *brakeTracker
	denied   *denials
	control  *controller
	exchange *exchange
	ladder   *ladder
	locals   *localLimits
	release  *releaser
	slices   *bandwidth
	limit    *bmcLimit
	hotplug  *hotplug
	report   *reporter
	manager  serviceManager

	dial     func(context.Context) (systemd.Bus, error)
	openTree func(*os.Root) (*rapl.Tree, error) // nil: rapl.source is off
	env      func(string) string                // the service manager's variables
	calls    chan func(context.Context)         // of the socket, to be run by the owner
	restores chan *restoreCall
	servers  sync.WaitGroup
	turnAt   time.Duration // of the turn before
	seconds  uint64        // number of calls of housekeep
}

// start does everything that precedes the network: it takes the lock, finds the devices,
// saves or adopts the originals, and writes the fail-safe cap.
func start(cfg config.Config, log *slog.Logger, d statedir.Disk) (*node, error) {
	began := instant().Boot
	if err := machine.CheckFiles(); err != nil {
		return nil, err
	}
	file, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	n := newNode(cfg, log, d)
	n.lock, n.control.began = file, began
	return n, n.boot()
}

// newNode returns a node that has not opened anything. A part knows only parts created
// before it; attach adds what open finds.
func newNode(cfg config.Config, log *slog.Logger, d statedir.Disk) *node {
	n := &node{
		cfg: &cfg, log: log, health: health.New(log), disk: d, manager: serviceManager{log: log},
		dial: remote.Dialer(&cfg), openTree: machine.TreeOpener(cfg.RAPL.Source), env: os.Getenv,
		calls: make(chan func(context.Context)), restores: make(chan *restoreCall),
	}
	sources := streams.New(cfg.Coordinators, cfg.Peers, cfg.CheckCertificate, log)
	n.tally = newTally()
	n.meter = meter.New(n.cfg, log, n.health)
	n.records = records.New(n.cfg, log, n.health, d)
	n.remote = remote.New()
	n.brake = &brakeTracker{cfg: n.cfg, health: n.health}
	n.denied = &denials{cfg: n.cfg, log: log, health: n.health, records: n.records, streams: sources}
	n.network = network.New(n.cfg, log, &n.servers, n.brake.known)
	n.drift = &driftWatch{cfg: n.cfg, log: log, health: n.health, records: n.records, tally: n.tally}
	n.tuner = &tuner{cfg: n.cfg, log: log, health: n.health, records: n.records, drift: n.drift, tally: n.tally, remote: n.remote}
	n.control = &controller{cfg: n.cfg, log: log, health: n.health, meter: n.meter, records: n.records, tally: n.tally, drift: n.drift}
	n.slices = &bandwidth{cfg: n.cfg, log: log, health: n.health, control: n.control, records: n.records, tally: n.tally, remote: n.remote}
	n.limit = &bmcLimit{cfg: n.cfg, log: log, health: n.health, control: n.control, records: n.records, tally: n.tally, remote: n.remote}
	n.exchange = &exchange{
		cfg: n.cfg, log: log, health: n.health, streams: sources, network: n.network, control: n.control, records: n.records,
		brake: n.brake, denied: n.denied, tally: n.tally, expiry: time.NewTimer(time.Hour),
	}
	n.hotplug = &hotplug{log: log, health: n.health, control: n.control, tuner: n.tuner, records: n.records, exchange: n.exchange}
	n.ladder = &ladder{cfg: n.cfg, log: log, health: n.health, control: n.control, tuner: n.tuner, records: n.records, tally: n.tally, remote: n.remote}
	n.locals = &localLimits{cfg: n.cfg, log: log, control: n.control, records: n.records, ladder: n.ladder, changed: n.changed}
	n.report = &reporter{
		cfg: n.cfg, health: n.health, control: n.control, exchange: n.exchange, locals: n.locals, meter: n.meter, tuner: n.tuner,
		records: n.records, network: n.network, brake: n.brake, drift: n.drift, slices: n.slices, limit: n.limit, tally: n.tally,
	}
	n.release = &releaser{
		cfg: n.cfg, log: log, health: n.health, control: n.control, exchange: n.exchange, tuner: n.tuner, records: n.records,
		report: n.report, remote: n.remote, servers: &n.servers, answers: make(chan error, 1),
	}
	n.exchange.publish = n.report.publish
	return n
}

// attach passes what open has found to the parts.
func (n *node) attach(id machine.Identity) {
	n.control.machine, n.drift.machine, n.ladder.machine = n.machine, n.machine, n.machine
	n.hotplug.machine, n.slices.machine, n.locals.machine, n.release.machine, n.report.machine = n.machine, n.machine, n.machine, n.machine, n.machine
	n.control.lease, n.drift.lease, n.exchange.lease, n.ladder.lease = n.lease, n.lease, n.lease, n.lease
	n.brake.lease, n.locals.lease, n.release.lease, n.report.lease = n.lease, n.lease, n.lease, n.lease
	n.control.heat, n.hotplug.heat, n.report.heat = n.heat, n.heat, n.heat
	n.exchange.id, n.release.id, n.ladder.boot = id, id, id.Boot
}

// changed applies a local change of an operator, and publishes the status.
func (n *node) changed(now lease.Instant) {
	n.turn(now)
	n.report.publish(now)
}

// boot finds the machine and brings it to its fail-safe cap.
func (n *node) boot() error {
	n.manager.open(n.env)
	if err := n.open(); err != nil {
		return errors.Join(err, n.close())
	}
	if err := n.ladder.begin(); err != nil {
		return errors.Join(err, n.close())
	}
	n.heat.Open(n.root)
	return nil
}

// open opens all devices and files; it writes nothing.
func (n *node) open() error {
	var err error
	signers := n.network.LoadKeys()
	if n.root, err = machine.OpenRoot(n.cfg.Root); err != nil {
		return err
	}
	id, err := machine.ReadIdentity(n.root)
	if err != nil {
		return err
	}
	if n.files, err = sysfs.NewFiles(n.root); err != nil {
		return err
	}
	damage := n.records.Load(n.files)
	if damage != nil && !errors.Is(damage, originals.ErrDamaged) {
		return damage
	}
	n.control.draining = !n.cfg.Enforce && (n.records.Journal != nil || damage != nil)
	if n.cfg.Enforce || n.control.draining {
		if n.claimed, err = statedir.Claim(n.root); err != nil {
			return err
		}
	}
	if n.machine, err = machine.Open(n.files, n.cfg, n.openTree, n.cfg.Enforce || n.control.draining); err != nil {
		return &cli.Error{
			Code: "no-rapl", Exit: cli.ExitFailed, Err: err, Message: err.Error(),
			Hint: "powerd must be able to read " + n.cfg.Root + "/sys/class/powercap; see powerd zone list",
		}
	}
	n.machine.Found(n.records.Journal)
	n.meter.Attach(n.machine)
	n.tuner.open(n.machine)
	n.machine.Look(instant()) // so that the first step of the loop has a sample
	lowest := n.cfg.Power.Floor
	if n.cfg.Alone() {
		lowest = n.cfg.Power.FailSafe // no coordinator charges it
	}
	memory, fresh, err := records.LoadState(n.disk, lowest)
	if err != nil {
		n.log.Warn("state.json unusable, starting without it", slog.Any("error", err))
	}
	memory.FailSafe = min(memory.FailSafe, n.cfg.Power.FailSafe)
	n.exchange.fresh = fresh
	n.lease = lease.NewNode(id.Process, memory.Memory, instant())
	n.heat = heat.New(n.cfg, n.log)
	n.remote.Open(n.root, n.dial)
	n.attach(id)
	n.brake.recall(memory, signers)
	n.ladder.logMachine()
	if damage != nil {
		return n.ladder.refuseJournal(damage)
	}
	return nil
}

// run serves after the first safe cap, until ctx ends.
func (n *node) run(ctx context.Context) error {
	n.manager.ready(n.report.summary())
	err := n.serve(ctx)
	return errors.Join(err, n.close())
}

// close closes everything; limits stay as they are.
func (n *node) close() error {
	var errs []error
	n.meter.Close()
	errs = append(errs, n.heat.Close(), n.manager.notify.Close(), n.records.Close(), n.remote.Close()) // their users have ended with the servers
	if n.machine != nil {
		errs = append(errs, n.tuner.close(), n.machine.Close())
	}
	if n.files != nil {
		errs = append(errs, n.files.Close())
	}
	if n.root != nil {
		errs = append(errs, n.root.Close())
	}
	return errors.Join(append(errs, statedir.Unlock(n.claimed), statedir.Unlock(n.lock))...)
}
