package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/network"
	"headroom/agent/records"
	"headroom/agent/statedir"
	"headroom/agent/streams"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
)

// exchange communicates with the coordinators: it keeps the streams, sends heartbeats,
// receives leases, and carries out the outputs of lease.Node in order. It belongs to the
// owner goroutine, except for leaseEnd.
type exchange struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items
	id     machine.Identity

	lease   *lease.Node
	streams *streams.Streams
	network *network.Network
	control *controller
	records *records.Records
	brake   *brakeTracker
	denied  *denials
	tally   *tally
	publish func(lease.Instant) // of the report

	fresh    bool          // no state file: this may be the first start of the node
	expiry   *time.Timer   // fires at the end of the lease
	leaseEnd atomic.Int64  // on CLOCK_BOOTTIME, ns; 0: none
	storeAt  time.Duration // when the last write of state.json began
	leaderAt time.Duration // when a leader was last known
	waiting  []*waiter

	cached    []string // coordinators.json as last written
	cacheBusy bool
}

// take handles one event of the streams. An error ends powerd.
func (x *exchange) take(e streams.Event) error {
	counts, newLeader := x.streams.Take(e)
	switch {
	case !counts:
	case e.Down != nil:
		return x.refusedBy(e.Down)
	case e.Msg != nil:
		x.message(e.Msg)
	}
	if newLeader {
		l := x.streams.Leader()
		x.log.Info("leader known", slog.String("coordinator", l.Addr), slog.String("epoch", l.Epoch.String()))
		x.health.Clear("no-leader")
		x.heartbeat()
	}
	return nil
}

// refusedBy handles the end of a stream. Only one refusal ends powerd: the name belongs to
// another machine, and this node never held a lease.
func (x *exchange) refusedBy(why error) error {
	if connect.CodeOf(why) != connect.CodeAlreadyExists {
		return nil
	}
	if first := (x.records.Own || x.control.mode == observing) && x.fresh && !x.lease.EverHeld(); !first || x.control.stopping {
		x.health.Fail(true, "name-taken",
			"node refused by the coordinator: "+why.Error(),
			"two machines use the same name; change node: in powerd.yaml on one of them")
		return nil
	}
	return nameTaken(x.cfg.Node, why)
}

func (x *exchange) message(m *headroomv1.CoordinatorMessage) {
	switch msg := m.GetMessage().(type) {
	case *headroomv1.CoordinatorMessage_Lease:
		x.tally.counters.renewals++
		x.health.Clear("not-admitted")
		x.health.Clear("name-taken")
		x.granted(wire.Grant(msg.Lease))
	case *headroomv1.CoordinatorMessage_Denied:
		x.denied.told(msg.Denied)
	case *headroomv1.CoordinatorMessage_NotAdmitted:
		x.lease.Waits(msg.NotAdmitted.GetBrakeLifted())
		x.health.Warn(true, "not-admitted",
			"no lease granted yet: "+msg.NotAdmitted.GetReason(),
			"see coordinator node explain "+x.cfg.Node)
	}
}

// granted handles a lease; a node that holds no cap only remembers it.
func (x *exchange) granted(g lease.Grant) {
	if x.control.mode != holding || x.control.stopping && x.records.Journal == nil {
		x.lease.Told(g)
		return
	}
	x.carryOut(x.lease.Grant(g, instant()))
}

// carryOut carries out the outputs of lease.Node in order.
func (x *exchange) carryOut(outputs []lease.Output) {
	for _, o := range outputs {
		switch o := o.(type) {
		case lease.Act:
			now := instant()
			x.control.gather(now)
			x.control.decide(now)
			x.carryOut(x.control.apply())
		case lease.Store:
			x.store(o.Memory)
		case lease.Beat:
			x.heartbeat()
			x.publish(instant())
		case lease.Took:
			x.took(o)
		case lease.Refused:
			x.tally.counters.refusals++
			x.log.Debug("grant refused", slog.Any("error", o.Err))
		case lease.Lost:
			x.log.Warn("lease expired, holding fail-safe cap",
				slog.String("reason", o.Why.String()), slog.Float64("cap_w", x.lease.Memory().FailSafe.Watts()))
			x.leaseEnd.Store(0)
			x.tally.counters.expiries++
		}
	}
}

// took records an accepted lease.
func (x *exchange) took(o lease.Took) {
	x.leaseEnd.Store(int64(o.End))
	x.expiry.Reset(o.End - instant().Boot)
	if o.Began {
		x.log.Info("lease acquired", slog.Float64("cap_w", o.Grant.Cap.Watts()), slog.String("stamp", o.Grant.Stamp.String()))
		x.health.Clear("lease-expired")
	}
}

// memoryStored handles the result of a write of state.json.
func (x *exchange) memoryStored(err error) {
	x.health.Fail(err != nil, "state-not-stored",
		fmt.Sprintf("state.json not written (%v): no new grant is accepted", err),
		"free space in "+x.cfg.StateDir+"; the node holds its cap until the lease expires")
	x.brake.failed = err != nil
	x.carryOut(x.lease.Stored(err, instant()))
	x.brake.watch(x.control.mode == holding)
}

// heartbeat sends one numbered heartbeat: to the leader, or to all coordinators if none is
// known or it does not answer.
//
//headroom:control
func (x *exchange) heartbeat() {
	if x.cfg.Alone() {
		return
	}
	excess, known := x.control.excessWall()
	now := instant()
	hb, outputs := x.lease.NextBeat(now, excess, known)
	x.streams.Send(&headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: x.beatOf(hb, now)}}, hb.All)
	x.carryOut(outputs)
}

func (x *exchange) beatOf(hb lease.Heartbeat, now lease.Instant) *headroomv1.Heartbeat {
	b := &headroomv1.Heartbeat{
		Number: hb.Number, Highest: wire.StampMessage(hb.Highest), Holding: x.holdingOf(hb), BrakeGeneration: hb.Brake, Health: x.health.List(),
	}
	if x.lease.Braked() {
		b.Brake = x.brake.proof(b.GetBrakeGeneration())
	}
	if p, ok := x.control.meter.Mean.Value(); ok {
		b.PowerUw = (*int64)(&p)
	}
	if x.control.meter.Drawn.Time > 0 {
		b.EnergyUj, b.EnergyMs, b.EnergyFrom = new(int64(x.control.meter.Drawn.Energy)), x.control.meter.Drawn.Time.Milliseconds(), x.control.meter.Source()
	}
	if p, ok := x.control.demand.Watts(now.Boot, x.cfg.Power.Floor, x.cfg.Power.Max); ok {
		b.DemandUw = (*int64)(&p)
	}
	if r, ok := x.control.demand.LimitedRatio(now.Boot); ok {
		b.LimitedRatio = &r
	}
	return b
}

// holdingOf returns the acknowledgement: the cap in force and the value that reads back.
func (x *exchange) holdingOf(hb lease.Heartbeat) *headroomv1.Holding {
	h := wire.HoldingMessage(hb)
	if x.control.mode != holding {
		return &headroomv1.Holding{
			State: headroomv1.LeaseState_LEASE_STATE_OBSERVING, Applied: h.GetApplied(), CapUw: int64(x.cfg.Power.Rated), FailSafeUw: h.GetFailSafeUw(),
		}
	}
	return h
}

// hello returns the first message of each stream.
func (x *exchange) hello() *headroomv1.Hello {
	p, floor := x.cfg.Power, x.control.floor()
	p.Floor, p.FailSafe, p.Max = floor, max(p.FailSafe, floor), max(p.Max, floor) // no lower cap would be held
	return &headroomv1.Hello{
		Node: x.cfg.Node, MachineId: x.id.Machine, BootId: x.id.Boot, ProcessId: x.id.Process, Domain: x.cfg.Domain,
		RatedUw: int64(p.Rated), FloorUw: int64(p.Floor), MaxUw: int64(p.Max), FailSafeUw: int64(p.FailSafe),
		Weight: x.cfg.Weight, Controlled: x.control.mode == holding, Rung: x.control.rung(), Version: Version,
	}
}

// addresses returns possible addresses of coordinators, from streams and gossip.
func (x *exchange) addresses() (settled, onTrial []string) {
	settled, onTrial = x.streams.Addresses(x.network.Gossiped(), instant().Boot)
	x.network.TellCoordinators(slices.Concat(settled, onTrial))
	return settled, onTrial
}

// reconcile keeps a stream to every coordinator known.
func (x *exchange) reconcile(ctx context.Context) {
	settled, onTrial := x.addresses() // also for the network, which looks for a link to them
	if !x.streams.Ready() {
		return
	}
	x.streams.Keep(ctx, slices.Concat(settled, onTrial), x.hello())
	x.cacheAddresses(settled)
}

// certified handles the result of reading the certificate, and opens the streams. One that no coordinator
// accepts leaves the node at its cap, later at its fail-safe cap; its files are read again every second.
func (x *exchange) certified(ctx context.Context, c streams.Certificate) {
	x.streams.Believe(c)
	x.health.Fail(c.Err != nil, "tls", fmt.Sprintf("this node's certificate: %v", c.Err), config.HintOf(c.Err))
	if c.Err == nil {
		x.reconcile(ctx)
	}
}

// reopen restarts every stream, so that Hello carries the changes.
func (x *exchange) reopen(ctx context.Context) {
	x.streams.Reset()
	x.reconcile(ctx)
}

// addressCache is coordinators.json.
type addressCache struct {
	Addresses []string `json:"addresses"`
}

// cacheAddresses stores the addresses for `powerd limit restore` without a running powerd.
func (x *exchange) cacheAddresses(addrs []string) {
	if len(addrs) == 0 || slices.Equal(addrs, x.cached) || x.cacheBusy {
		return
	}
	data, err := json.Marshal(addressCache{addrs})
	if err != nil {
		return
	}
	x.cached, x.cacheBusy = addrs, true
	x.records.Writer.Do(statedir.Job{Kind: statedir.Coordinators, Name: statedir.CoordinatorsFile, Data: data})
}

const (
	// quietLeader is the time without a leader after which a warning is raised.
	quietLeader = 5 * time.Second
	// quietDisk is the time of a write after which a failure is raised.
	quietDisk = 3 * time.Second
)

// watch runs once a second: it raises items for a missing leader, an expired lease and a
// slow state directory, and ends calls that waited too long.
func (x *exchange) watch(now time.Duration) {
	if x.streams.Leader() != nil {
		x.leaderAt = now
	}
	why := ""
	if text := x.streams.Why(); text != "" {
		why = "; " + text
	}
	x.health.Warn(!x.cfg.Alone() && now-x.leaderAt > quietLeader, "no-leader",
		fmt.Sprintf("no leader reachable for %.0fs%s", (now-x.leaderAt).Seconds(), why),
		"the node holds its cap until the lease expires, then its fail-safe cap; see coordinator status")
	_, state := x.lease.Cap()
	x.health.Warn(x.control.mode == holding && x.lease.EverHeld() && state != lease.Held && !x.lease.Braked(), "lease-expired",
		fmt.Sprintf("no lease (%v): holding fail-safe cap %v", x.lease.Why(), x.lease.Memory().FailSafe),
		"the lease returns once a leader grants it; see coordinator status")
	if x.lease.Storing() && now-x.storeAt > quietDisk {
		x.health.Fail(true, "state-not-stored",
			fmt.Sprintf("state directory not responding for %.0fs: caps are lowered but not raised",
				(now-x.storeAt).Seconds()),
			"check the disk of "+x.cfg.StateDir+"; the node holds its present cap until the lease ends")
	}
	x.answerWaiters(now)
}
