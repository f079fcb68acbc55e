package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/metrics"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/agent/streams"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/internal/cli"
	"headroom/lease"
	"headroom/rapl"
	"headroom/systemd"
)

// mode is what the node does with its controls.
type mode int

const (
	observing mode = iota // never writes: enforce is false (see shadows), or nothing to write to
	holding               // holds its cap
	released              // the originals are back
)

// node is the whole of a running powerd. All fields belong to the owner
// goroutine, but for status.
type node struct {
	cfg     *config.Config
	log     *slog.Logger
	disk    statedir.Disk
	lock    *os.File
	claimed *os.File // of the machine; nil for a node that only observes
	root    *os.Root
	id      machine.Identity
	began   time.Duration
	health  *health.Items

	machine  *machine.Machine
	lease    *lease.Node
	fresh    bool // no state was found: this may be the node's first start ever
	meter    *wallMeter
	heat     heat
	caps     caps
	rivals   rivals
	tuner    tuner
	network  *network
	brake    brakeSide
	far      *far // nil until the first safe cap is written
	dial     func(context.Context) (systemd.Bus, error)
	openTree func(*os.Root) (*rapl.Tree, error) // nil: rapl.source is off
	env      func(string) string                // the service manager's variables
	manager  serviceManager
	counters counters
	law      capping.State
	parts    []capping.Socket
	slices   bandwidth
	turnAt   time.Duration // of the turn before
	tally    *metrics.Loop
	strayed  map[string]time.Duration // by control: when it last stood at another value than written
	stepAt   time.Duration            // when the cap last changed by much, until power has met it
	act      capping.Actions
	demand   capping.Demand
	overAt   time.Duration // when it was last looked whether power is over the cap
	busy     float64
	busyOK   bool
	driftAt  time.Duration // last drift seen
	writeErr error

	mode     mode
	records  *records
	draining bool // enforce is false but an earlier powerd left limits: release them

	storeAt   time.Duration // when the writer was given a memory
	streams   *streams.Streams
	cached    []string // coordinators.json as last written
	cacheBusy bool
	expiry    *time.Timer   // fires at the end of the lease
	leaderAt  time.Duration // when a leader was last known
	notAdmit  string

	restores chan *restoreCall
	calls    chan func(context.Context) // of the socket, to be run by the owner
	waiting  []*waiter
	asked    *restoreCall // waits for the leader's answer
	denied   saving
	answers  chan error // of askRelease
	retryAt  time.Duration
	stopping bool
	status   atomic.Pointer[headroomv1.GetAgentStatusResponse]
	leaseEnd atomic.Int64 // end of the lease on CLOCK_BOOTTIME, ns; 0: none
	servers  sync.WaitGroup
	kept     uint64 // seconds that were kept house of
}

// start does all that comes before the network: take the lock, find the devices,
// save or adopt the originals, and write the fail-safe cap.
func start(cfg config.Config, log *slog.Logger, d statedir.Disk) (*node, error) {
	began := instant().Boot
	file, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	n := newNode(cfg, log, d)
	n.lock, n.began = file, began
	return n, n.boot()
}

// newNode is a node that has not looked at anything yet.
func newNode(cfg config.Config, log *slog.Logger, d statedir.Disk) *node {
	n := &node{
		cfg: &cfg, log: log, manager: serviceManager{log: log}, disk: d, env: os.Getenv, openTree: machine.TreeOpener(cfg.RAPL.Source),
		health: health.New(log),
		calls:  make(chan func(context.Context)), dial: dialer(&cfg),
		streams: streams.New(cfg.Coordinators, cfg.Peers, log), restores: make(chan *restoreCall), answers: make(chan error, 1),
		expiry: time.NewTimer(time.Hour), tally: metrics.NewLoop(), strayed: map[string]time.Duration{},
	}
	n.meter = &wallMeter{cfg: &cfg, log: log, health: n.health}
	n.records = &records{cfg: &cfg, log: log, disk: d, health: n.health}
	n.tuner = tuner{
		cfg: &cfg, log: log, records: n.records, rivals: &n.rivals, health: n.health, counters: &n.counters,
		afar: func() originals.Remote { return n.far.hand() },
	}
	n.network = &network{cfg: &cfg, log: log, brake: &n.brake, servers: &n.servers}
	return n
}

// boot finds the machine and brings it to its fail-safe cap.
func (n *node) boot() error {
	n.manager.open(n.env)
	if err := n.open(); err != nil {
		return errors.Join(err, n.close())
	}
	if err := n.begin(); err != nil {
		return errors.Join(err, n.close())
	}
	return nil
}

// open finds everything and writes nothing.
func (n *node) open() error {
	var err error
	if err := n.network.loadKeys(); err != nil {
		return err
	}
	if err := n.openBrake(); err != nil {
		return err
	}
	if n.root, err = machine.OpenRoot(n.cfg.Root); err != nil {
		return err
	}
	n.records.root = n.root
	if n.id, err = machine.ReadIdentity(n.root); err != nil {
		return err
	}
	n.records.journal, err = originals.Load(n.disk)
	damage := err
	if damage != nil && !errors.Is(damage, originals.ErrDamaged) {
		return damage
	}
	n.draining = !n.cfg.Enforce && (n.records.journal != nil || damage != nil)
	if n.cfg.Enforce || n.draining {
		if n.claimed, err = statedir.Claim(n.root); err != nil {
			return err
		}
	}
	if n.machine, err = machine.Open(n.root, n.cfg, n.openTree, n.cfg.Enforce || n.draining); err != nil {
		return &cli.Error{
			Code: "no-rapl", Exit: cli.ExitFailed, Err: err, Message: err.Error(),
			Hint: "powerd needs to read " + n.cfg.Root + "/sys/class/powercap; see powerd zone list",
		}
	}
	n.meter.machine = n.machine
	n.tuner.open(n.machine)
	n.logMachine()
	n.meter.law = n.cfg.Model(n.machine.PackageMax(), n.machine.HasDRAM())
	n.machine.Look(instant()) // where the counters stand: the first turn of the loop has a sample then
	lowest := n.cfg.Power.Floor
	if n.cfg.Alone() {
		lowest = n.cfg.Power.FailSafe // nobody charges it
	}
	memory, fresh, err := loadMemory(n.disk, lowest)
	if err != nil {
		n.log.Warn("state cannot be used, starting without it", slog.Any("error", err))
	}
	memory.FailSafe = min(memory.FailSafe, n.cfg.Power.FailSafe)
	n.fresh = fresh
	n.lease = lease.NewNode(n.id.Process, memory.Memory, instant())
	n.recall(memory)
	n.heat = openHeat(n.root, n.cfg, n.log)
	if damage != nil {
		return n.refuseJournal(damage)
	}
	return nil
}

// resume takes over the journal of an earlier powerd. Without coordinators it is
// put back at once; otherwise its limits stay this node's until a release.
func (n *node) resume() error {
	if err := n.records.resume(n.machine.Tree); err != nil {
		return err
	}
	if !n.cfg.Alone() {
		return nil
	}
	out, err := n.records.putBack("an earlier powerd left them, and no coordinator is configured", n.far.hand())
	n.draining = n.draining && out.Failed > 0 // then keep them, and hold the fail-safe cap
	return err
}

// exactCover is what the node is about to hold, no more.
func (n *node) exactCover() cover {
	_, state := n.lease.Cap()
	c := cover{cap: n.caps.now, state: state.String(), stamp: n.lease.Memory().Highest}
	switch n.mode {
	case observing:
		return cover{cap: n.cfg.Power.Rated, state: stateObserving, stamp: c.stamp}
	case released:
		return cover{cap: n.cfg.Power.Rated, state: stateReleased, stamp: c.stamp}
	case holding:
	}
	if n.machine.Ladder.Use == capping.RungFreq {
		c.cap = max(c.cap, n.machine.Freq.WillCharge())
	}
	for _, s := range n.machine.Limited() {
		c.limits = append(c.limits, limit{s.Zone.Label, s.Requested.Long, s.Requested.Short})
	}
	return c
}

// run is the life of the node after its first safe cap.
func (n *node) run(ctx context.Context) error {
	n.manager.ready(n.words())
	err := n.serve(ctx)
	return errors.Join(err, n.close())
}

// close gives everything back but the limits.
func (n *node) close() error {
	var errs []error
	n.meter.close()
	errs = append(errs, n.heat.close(), n.manager.notify.Close())
	if n.far != nil {
		errs = append(errs, n.far.manager.Close()) // all that asked it has ended with the servers
	}
	if n.machine != nil {
		errs = append(errs, n.tuner.close(), n.machine.Close())
	}
	if n.records.trail != nil {
		errs = append(errs, n.records.trail.Close())
	}
	if n.root != nil {
		errs = append(errs, n.root.Close())
	}
	return errors.Join(append(errs, statedir.Unlock(n.claimed), statedir.Unlock(n.lock))...)
}
