package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"connectrpc.com/connect"

	"headroom/agent/statedir"
	"headroom/agent/streams"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
)

// take is one event of the streams.
func (n *node) take(e streams.Event) error {
	counts, newLeader := n.streams.Take(e)
	switch {
	case !counts:
	case e.Down != nil:
		return n.refusedBy(e.Down)
	case e.Msg != nil:
		n.message(e.Msg)
	}
	if newLeader {
		l := n.streams.Leader()
		n.log.Info("leader known", slog.String("coordinator", l.Addr), slog.String("epoch", l.Epoch.String()))
		n.health.Clear("no-leader")
		n.heartbeat()
	}
	return nil
}

// refusedBy takes why a stream ended. The one refusal that ends powerd is that of
// a name which is another machine's, on a start that had nothing to hold before.
func (n *node) refusedBy(why error) error {
	if connect.CodeOf(why) != connect.CodeAlreadyExists {
		return nil
	}
	first := (n.records.own || n.mode == observing) && n.fresh && !n.lease.EverHeld()
	if !first || n.stopping {
		n.health.Fail(true, "name-taken",
			"the coordinator refuses this node: "+why.Error(),
			"two machines use one name: change node: in powerd.yaml on one of them")
		return nil
	}
	refusal := nameTaken(n.cfg.Node, why)
	if n.mode == holding {
		n.putBackNow()
	}
	return refusal
}

func (n *node) message(m *headroomv1.CoordinatorMessage) {
	switch msg := m.GetMessage().(type) {
	case *headroomv1.CoordinatorMessage_Lease:
		n.counters.renewals++
		n.notAdmit = ""
		n.health.Clear("not-admitted")
		n.health.Clear("name-taken")
		n.granted(wire.Grant(msg.Lease))
	case *headroomv1.CoordinatorMessage_Denied:
		n.deniedTold(msg.Denied)
	case *headroomv1.CoordinatorMessage_NotAdmitted:
		n.lease.Answered(n.lease.Beats())
		n.notAdmit = msg.NotAdmitted.GetReason()
		n.health.Warn(true, "not-admitted",
			"the leader grants no lease yet: "+n.notAdmit,
			"see coordinator node show "+n.cfg.Node)
	}
}

// granted takes in a lease; a node that holds no cap only hears what it says.
func (n *node) granted(g lease.Grant) {
	if n.mode != holding || n.stopping && n.records.journal == nil {
		n.lease.Told(g)
		return
	}
	n.carryOut(n.lease.Grant(g, instant()))
}

// carryOut does what the exchange asks for, in its order.
func (n *node) carryOut(outputs []lease.Output) {
	for _, o := range outputs {
		switch o := o.(type) {
		case lease.Act:
			now := instant()
			n.gather(now)
			n.decide(now)
			n.apply()
		case lease.Store:
			n.store(o.Memory)
		case lease.Beat:
			n.heartbeat()
			n.publish(instant())
		case lease.Took:
			n.took(o)
		case lease.Refused:
			n.counters.refusals++
			n.log.Debug("grant refused", slog.Any("error", o.Err))
		case lease.Lost:
			n.log.Warn("lease ended, holding the fail-safe cap",
				slog.String("reason", o.Why.String()), slog.Float64("cap_w", n.lease.Memory().FailSafe.Watts()))
			n.leaseEnd.Store(0)
			n.counters.expiries++
		}
	}
}

// took notes a lease that has been taken.
func (n *node) took(o lease.Took) {
	n.leaseEnd.Store(int64(o.End))
	n.expiry.Reset(o.End - instant().Boot)
	if o.Began {
		n.log.Info("lease taken", slog.Float64("cap_w", o.Grant.Cap.Watts()), slog.String("stamp", o.Grant.Stamp.String()))
		n.health.Clear("lease-expired")
	}
}

// memoryStored takes what came of a write to the state directory.
func (n *node) memoryStored(err error) {
	n.health.Fail(err != nil, "state-not-stored",
		fmt.Sprintf("state.json cannot be written (%v): no new grant is taken", err),
		"make room in "+n.cfg.StateDir+"; the node holds its present cap until the lease ends")
	n.brake.failed = err != nil
	n.carryOut(n.lease.Stored(err, instant()))
	n.watchBrake()
}

// heartbeat numbers and sends one heartbeat: to the leader, or to everybody when
// none is known or it does not answer.
//
//headroom:control
func (n *node) heartbeat() {
	if n.cfg.Alone() {
		return
	}
	excess, known := n.excessWall()
	now := instant()
	hb, outputs := n.lease.NextBeat(now, excess, known)
	n.streams.Send(&headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: n.beatOf(hb, now)}}, hb.All)
	n.carryOut(outputs)
}

func (n *node) beatOf(hb lease.Heartbeat, now lease.Instant) *headroomv1.Heartbeat {
	b := &headroomv1.Heartbeat{
		Number: hb.Number, Highest: wire.StampMessage(hb.Highest), Holding: n.holdingOf(hb), BrakeGeneration: hb.Brake, Health: n.health.List(),
	}
	if n.lease.Braked() {
		b.Brake = n.brakeProof(b.GetBrakeGeneration())
	}
	if p, ok := n.meter.mean.value(); ok {
		b.PowerUw = (*int64)(&p)
	}
	if n.meter.drawn.time > 0 {
		b.EnergyUj, b.EnergyMs, b.EnergyFrom = new(int64(n.meter.drawn.energy)), n.meter.drawn.time.Milliseconds(), n.meter.source()
	}
	if p, ok := n.demand.Watts(now.Boot, n.cfg.Power.Floor, n.cfg.Power.Max); ok {
		b.DemandUw = (*int64)(&p)
	}
	if r, ok := n.demand.LimitedRatio(now.Boot); ok {
		b.LimitedRatio = &r
	}
	return b
}

// holdingOf is the acknowledgement: what is in force and what reads back.
func (n *node) holdingOf(hb lease.Heartbeat) *headroomv1.Holding {
	h := wire.HoldingMessage(hb)
	if n.mode != holding {
		return &headroomv1.Holding{
			State: headroomv1.LeaseState_LEASE_STATE_OBSERVING, Applied: h.GetApplied(), CapUw: int64(n.cfg.Power.Rated), FailSafeUw: h.GetFailSafeUw(),
		}
	}
	return h
}

// hello is the first message of each stream.
func (n *node) hello() *headroomv1.Hello {
	p := n.cfg.Power
	return &headroomv1.Hello{
		Node: n.cfg.Node, MachineId: n.id.Machine, BootId: n.id.Boot, ProcessId: n.id.Process, Domain: n.cfg.Domain,
		RatedUw: int64(p.Rated), FloorUw: int64(p.Floor), MaxUw: int64(p.Max), FailSafeUw: int64(p.FailSafe),
		Weight: n.cfg.Weight, Controlled: n.mode == holding, Rung: n.rung(), Version: Version,
	}
}

// addresses are where coordinators may be, by the streams and the gossip.
func (n *node) addresses() (settled, onTrial []string) {
	settled, onTrial = n.streams.Addresses(n.network.gossiped(), instant().Boot)
	n.network.tellCoordinators(slices.Concat(settled, onTrial))
	return settled, onTrial
}

// reconcile keeps a stream to every coordinator known.
func (n *node) reconcile(ctx context.Context) {
	if !n.streams.Ready() {
		return
	}
	settled, onTrial := n.addresses()
	n.streams.Keep(ctx, slices.Concat(settled, onTrial), n.hello())
	n.cacheAddresses(settled)
}

// certified takes what reading the node's certificate came to, and opens the streams.
func (n *node) certified(ctx context.Context, c streams.Certificate) {
	n.streams.Believe(c)
	n.health.Fail(c.Err != nil, "tls",
		fmt.Sprintf("no coordinator can be asked: %v", c.Err),
		"coordinator tls cert create node/"+n.cfg.Node+" makes this node's certificate; tls in powerd.yaml names the files")
	if c.Err == nil {
		n.reconcile(ctx)
	}
}

// reopen starts every stream anew, so that Hello tells what has changed.
func (n *node) reopen(ctx context.Context) {
	n.streams.Reset()
	n.reconcile(ctx)
}

// addressCache is coordinators.json.
type addressCache struct {
	Addresses []string `json:"addresses"`
}

// cacheAddresses keeps the addresses for `powerd limit restore` with a dead agent.
func (n *node) cacheAddresses(addrs []string) {
	if len(addrs) == 0 || slices.Equal(addrs, n.cached) || n.cacheBusy {
		return
	}
	data, err := json.Marshal(addressCache{addrs})
	if err != nil {
		return
	}
	n.cached, n.cacheBusy = addrs, true
	n.records.writer.Do(statedir.Job{Kind: statedir.Coordinators, Name: statedir.CoordinatorsFile, Data: data})
}
