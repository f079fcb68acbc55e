package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/gossip"
	"headroom/internal/cli"
	"headroom/lease"
	"headroom/units"
)

// mode is what the node does with its controls.
type mode int

const (
	observing mode = iota // never writes: enforce is false, or nothing to write to
	holding               // holds its cap
	released              // the originals are back
)

// node is the whole of a running powerd. All fields belong to the owner
// goroutine, but for status.
type node struct {
	cfg    Config
	log    *slog.Logger
	disk   disk
	lock   *os.File
	root   *os.Root
	id     identity
	began  time.Duration
	key    []byte // of the gossip
	health health

	machine  *machine
	holder   *lease.Holder
	fresh    bool // no state was found: this may be the node's first start ever
	law      capping.State
	lawCfg   capping.Config
	sample   capping.Sample
	parts    []capping.Socket
	act      capping.Actions
	demand   capping.Demand
	wall     wallMean
	busy     float64
	busyOK   bool
	knownAt  time.Duration // last known sample
	driftAt  time.Duration // last drift seen
	excess   units.Power   // highest since the last heartbeat
	excessOK bool
	writeErr error

	mode       mode
	journal    *journal
	trail      *trail
	ownJournal bool // made by this process: nothing was written before it
	everHeld   bool // a lease was taken by this process
	draining   bool // enforce is false but an earlier powerd left limits: release them

	cover     cover // what held.json on disk allows
	covering  *cover
	heldBusy  bool
	storing   *headroomv1.Lease // a grant whose memory is on its way to disk
	storeNext *headroomv1.Lease
	storeBusy bool
	remember  lease.Memory // what storing will make durable
	applied   lease.Stamp

	clerk     *clerk
	events    chan linkEvent
	links     map[string]*link
	gossip    *gossip.Gossip
	hints     map[string]bool // leader addresses that followers named
	cached    string          // coordinators.json as last written
	cacheBusy bool
	expiry    *time.Timer   // fires at the end of the lease
	beats     uint64        // heartbeats sent
	answered  uint64        // number of the newest answered
	leaderAt  time.Duration // when a leader was last known
	notAdmit  string

	restores chan *restoreCall
	asked    *restoreCall // waits for the leader's answer
	answers  chan error   // of askRelease
	retryAt  time.Duration
	stopping bool
	status   atomic.Pointer[headroomv1.GetAgentStatusResponse]
	leaseEnd atomic.Int64 // end of the lease on CLOCK_BOOTTIME, ns; 0: none
	servers  sync.WaitGroup
}

// start does all that comes before the network: take the lock, find the devices,
// save or adopt the originals, and write the fail-safe cap.
func start(cfg Config, log *slog.Logger, d disk) (*node, error) {
	began := instant().Boot
	file, err := lock(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	n := &node{
		cfg: cfg, log: log, disk: d, lock: file, began: began,
		health: health{log: log, items: map[string]item{}},
		links:  map[string]*link{}, hints: map[string]bool{},
		events: make(chan linkEvent, eventQueue), restores: make(chan *restoreCall), answers: make(chan error, 1),
		expiry: time.NewTimer(time.Hour), excessOK: true,
	}
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	if err := n.begin(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// open finds everything and writes nothing.
func (n *node) open() error {
	var err error
	if n.cfg.Gossip.Bind != "" {
		if n.key, err = gossip.LoadKey(n.cfg.Gossip.KeyFile); err != nil {
			return err
		}
	}
	if n.root, err = openRoot(n.cfg.Root); err != nil {
		return err
	}
	if n.id, err = readIdentity(n.root); err != nil {
		return err
	}
	n.journal, err = loadJournal(n.disk)
	damage := err
	if damage != nil && !errors.Is(damage, ErrDamaged) {
		return damage
	}
	n.draining = !n.cfg.Enforce && (n.journal != nil || damage != nil)
	if n.machine, err = openMachine(n.root, n.cfg.Root, n.cfg.Enforce || n.draining); err != nil {
		return &cli.Error{
			Code: "no-rapl", Exit: cli.ExitFailed, Err: err, Message: err.Error(),
			Hint: "powerd needs to read " + n.cfg.Root + "/sys/class/powercap; see powerd zone list",
		}
	}
	if t := n.machine.tree; t != nil && t.Skipped() != nil {
		n.log.Warn("zones left out", slog.Any("error", t.Skipped()))
	}
	n.lawCfg = n.cfg.law(n.machine)
	n.machine.look(n.began) // where the counters stand: the first turn of the loop has a sample then
	lowest := n.cfg.Power.Floor
	if n.cfg.alone() {
		lowest = n.cfg.Power.FailSafe // nobody charges it
	}
	memory, fresh, err := loadMemory(n.disk, lowest)
	if err != nil {
		n.log.Warn("state cannot be used, starting without it", slog.Any("error", err))
	}
	memory.FailSafe = min(memory.FailSafe, n.cfg.Power.FailSafe)
	n.fresh, n.remember = fresh, memory
	n.holder = lease.New(n.id.process, memory, instant())
	if damage != nil {
		return n.refuseJournal(damage)
	}
	return nil
}

// refuseJournal leaves the node at its fail-safe cap without touching the damaged
// journal: its present limits may not be saved as originals.
func (n *node) refuseJournal(damage error) error {
	if n.machine.capable() {
		n.act, n.law = capping.Step(instant().Boot, n.sample, n.holder.Memory().FailSafe, n.law, n.lawCfg)
		n.parts = n.machine.share(n.act, n.parts)
		n.machine.readBack()
		unrecorded := func(string, int64, int64) error { return nil }
		for _, s := range n.machine.sockets {
			if s.readable && s.effective.long <= s.requested.long {
				continue // never raise here
			}
			damage = errors.Join(damage, s.write(s.requested, unrecorded))
		}
	}
	return damaged(n.cfg.StateDir+"/"+journalFile, damage)
}

// begin decides the mode and, when holding, brings the node to its fail-safe cap.
func (n *node) begin() error {
	if n.journal != nil {
		if err := n.resume(); err != nil {
			return err
		}
	}
	if !(n.cfg.Enforce || n.draining) || !n.machine.capable() {
		n.mode = observing
		n.health.set(n.cfg.Enforce, item{
			"no-rapl", warn, "this node cannot hold a cap: " + n.machine.why,
			"it is charged its rated watts; set enforce: false if that is meant",
		})
		return n.writeHeld(n.exactCover())
	}
	if err := n.saveOriginals(); err != nil {
		return err
	}
	if err := n.holdFailSafe(); err != nil {
		return err
	}
	n.log.Info("fail-safe cap written", slog.Float64("cap_w", n.holder.Memory().FailSafe.Watts()),
		slog.Int64("after_ms", (instant().Boot-n.began).Milliseconds()), slog.Bool("adopted", !n.ownJournal))
	return nil
}

// resume takes over the journal of an earlier powerd. Without coordinators it is
// put back at once; otherwise its limits stay this node's until a release.
func (n *node) resume() error {
	var err error
	if n.trail, err = openTrail(n.cfg.StateDir, n.journal, false); err != nil {
		return err
	}
	if !n.cfg.alone() {
		return nil
	}
	out := putBack(n.root, n.journal, n.trail)
	n.logOutcome("an earlier powerd left them, and no coordinator is configured", out)
	if out.failed > 0 {
		return nil // keep them, and hold the fail-safe cap
	}
	n.draining = false
	return n.forget()
}

// forget removes the journal: nothing is left to be put back.
func (n *node) forget() error {
	err := errors.Join(n.disk.Remove(journalFile), n.trail.close())
	n.journal, n.trail = nil, nil
	return errors.Join(err, n.disk.Remove(writtenFile))
}

// saveOriginals makes the journal durable. Nothing has been written yet, or an
// earlier process wrote under the journal that is there.
func (n *node) saveOriginals() error {
	controls := n.machine.controls()
	if n.journal != nil {
		return n.saveMore(controls)
	}
	j, err := newJournal(n.cfg.Node, n.id.boot, controls)
	if err != nil {
		return err
	}
	if err := j.store(n.disk); err != nil {
		return &cli.Error{
			Code: "state-dir", Exit: cli.ExitFailed, Err: err,
			Message: fmt.Sprintf("cannot save the original limits: %v; nothing was written", err),
			Hint:    "make room in " + n.cfg.StateDir + " and start powerd again",
		}
	}
	n.journal, n.ownJournal = j, true
	n.trail, err = openTrail(n.cfg.StateDir, j, true)
	return err
}

// saveMore brings an earlier process's journal up to date. Where that cannot be
// stored, the fail-safe cap goes before fresh originals: those that are on disk
// are of the boot before.
func (n *node) saveMore(controls []control) error {
	changed := n.journal.adopt(n.root, n.id.boot, n.trail)
	more, err := n.journal.extend(controls)
	if err != nil || !(changed || more) {
		return err
	}
	err = n.journal.store(n.disk)
	if err != nil && !more {
		n.log.Warn("journal not brought up to this boot", slog.Any("error", err))
		return nil
	}
	if err != nil || !more {
		return err
	}
	old := n.trail
	n.trail, err = openTrail(n.cfg.StateDir, n.journal, false)
	return errors.Join(err, old.close())
}

// holdFailSafe writes the fail-safe cap and verifies it. On a machine whose
// firmware does not take limits, a first start puts back what it touched and
// only observes from then on.
func (n *node) holdFailSafe() error {
	n.mode = holding
	n.machine.readBack()
	n.act, n.law = capping.Step(instant().Boot, n.sample, n.holder.Memory().FailSafe, n.law, n.lawCfg)
	n.parts = n.machine.share(n.act, n.parts)
	want := n.exactCover()
	raise := cover{cap: math.MaxInt64, limits: make([]pair, len(want.limits)), state: want.state, stamp: want.stamp}
	for i, s := range n.machine.sockets {
		raise.limits[i] = s.effective // a predecessor's limits, or the factory's
	}
	covered := raise.allows(want) || n.writeHeld(want) == nil
	var failed error
	for i, s := range n.machine.sockets {
		to := s.requested
		if !covered {
			to = pair{min(to.long, raise.limits[i].long), min(to.short, raise.limits[i].short)}
		}
		failed = errors.Join(failed, s.write(to, n.trail.note))
		windows, err := s.prepare(n.trail.note)
		failed = errors.Join(failed, err)
		n.health.set(windows != nil, item{
			"window-refused", warn, fmt.Sprintf("%s: %v", s.zone.Label, windows),
			"caps settle slower than they could; nothing else is wrong",
		})
	}
	if failed != nil && n.ownJournal {
		return n.cannotHold(failed)
	}
	n.writeErr = failed
	n.cover = n.exactCover() // no raise beyond this before held.json says so
	err := n.writeHeld(n.cover)
	n.noteHeld(err)
	return nil
}

// noteHeld shows whether held.json could be written.
func (n *node) noteHeld(err error) {
	n.health.set(err != nil, item{
		"held-not-stored", warn, fmt.Sprintf("held.json cannot be written (%v): no raise is carried out", err),
		"make room in " + n.cfg.StateDir,
	})
}

// cannotHold puts back what the first writes touched: this machine takes no limits.
func (n *node) cannotHold(why error) error {
	out := putBack(n.root, n.journal, n.trail)
	n.logOutcome("this machine does not take limits", out)
	if out.failed == 0 {
		if err := n.forget(); err != nil {
			return err
		}
	}
	n.mode = observing
	n.machine.rung, n.machine.why = rungNone, why.Error()
	n.health.set(true, item{
		"no-rapl", warn, "this node cannot hold a cap: " + why.Error(),
		"look for locked RAPL settings in the BIOS set-up; until then it is charged its rated watts",
	})
	return n.writeHeld(n.exactCover())
}

// exactCover is what the node is about to hold, no more.
func (n *node) exactCover() cover {
	granted, state := n.holder.Cap()
	c := cover{cap: granted, state: state.String(), stamp: n.holder.Memory().Highest}
	switch n.mode {
	case observing:
		return cover{cap: n.cfg.Power.Rated, state: stateObserving, stamp: c.stamp}
	case released:
		return cover{cap: n.cfg.Power.Rated, state: stateReleased, stamp: c.stamp}
	case holding:
	}
	c.limits = make([]pair, len(n.machine.sockets))
	for i, s := range n.machine.sockets {
		c.limits[i] = s.requested
	}
	return c
}

// writeHeld writes held.json here and now: before the loop runs, and when the
// originals go back.
func (n *node) writeHeld(c cover) error {
	data, err := encodeHeld(n.cfg, c, n.machine.sockets)
	if err == nil {
		err = n.disk.Replace(heldFile, data)
	}
	if err == nil {
		n.cover = c
	}
	return err
}

// run is the life of the node after its first safe cap.
func (n *node) run(ctx context.Context) error {
	err := n.serve(ctx)
	return errors.Join(err, n.close())
}

// close gives everything back but the limits.
func (n *node) close() error {
	var errs []error
	if n.machine != nil {
		errs = append(errs, n.machine.close())
	}
	if n.trail != nil {
		errs = append(errs, n.trail.close())
	}
	if n.root != nil {
		errs = append(errs, n.root.Close())
	}
	return errors.Join(append(errs, n.lock.Close())...)
}

func (n *node) logOutcome(why string, out outcome) {
	n.log.Info("originals put back", slog.String("because", why),
		slog.Int("restored", len(out.restored)), slog.Int("kept", len(out.kept)), slog.Int("failed", out.failed))
	for _, line := range out.kept {
		n.log.Warn("control not put back", slog.String("control", line))
	}
}
