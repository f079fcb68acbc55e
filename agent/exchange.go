package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"connectrpc.com/connect"

	"headroom/agent/statedir"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/lease"
)

// take is one message of the streams.
func (n *node) take(e linkEvent) error {
	l := e.link
	if n.links[l.addr] != l {
		return nil // a stream that was given up
	}
	switch {
	case e.up:
		l.up = true
		n.log.Info("stream open", slog.String("coordinator", l.addr))
	case e.down != nil:
		return n.linkDown(l, e.down)
	default:
		l.proven = true
		n.trials.prove(l.addr)
		n.message(l, e.msg)
	}
	return nil
}

// linkDown takes the end of a stream. The one refusal that ends powerd is that of
// a name which is another machine's, on a start that had nothing to hold before.
func (n *node) linkDown(l *link, why error) error {
	if l.up {
		n.log.Info("stream closed", slog.String("coordinator", l.addr), slog.Any("error", why))
	}
	l.up, l.leads = false, false
	if connect.CodeOf(why) != connect.CodeAlreadyExists {
		return nil
	}
	first := (n.ownJournal || n.mode == observing) && n.fresh && !n.lease.EverHeld()
	if !first || n.stopping {
		n.health.set(true, item{
			"name-taken", fail, "the coordinator refuses this node: " + why.Error(),
			"two machines use one name: change node: in powerd.yaml on one of them",
		})
		return nil
	}
	refusal := nameTaken(n.cfg.Node, why)
	if n.mode == holding {
		n.putBackNow()
	}
	return refusal
}

func (n *node) message(l *link, m *headroomv1.CoordinatorMessage) {
	switch msg := m.GetMessage().(type) {
	case *headroomv1.CoordinatorMessage_Lease:
		n.counters.renewals++
		n.notAdmit = ""
		n.health.clear("not-admitted")
		n.health.clear("name-taken")
		n.granted(wire.Grant(msg.Lease))
	case *headroomv1.CoordinatorMessage_Denied:
		n.deniedTold(msg.Denied)
	case *headroomv1.CoordinatorMessage_Leader:
		n.leaderSays(l, msg.Leader)
	case *headroomv1.CoordinatorMessage_NotAdmitted:
		n.lease.Answered(n.lease.Beats())
		n.notAdmit = msg.NotAdmitted.GetReason()
		n.health.set(true, item{
			"not-admitted", warn, "the leader grants no lease yet: " + n.notAdmit,
			"see coordinator node show " + n.cfg.Node,
		})
	}
}

func (n *node) leaderSays(l *link, m *headroomv1.Leader) {
	was := n.leader()
	l.leads, l.name, l.epoch = m.GetSelf(), m.GetId(), wire.Epoch(m.GetEpoch())
	if a := m.GetAddress(); a != "" && !m.GetSelf() {
		if len(n.hints) >= linksMax {
			clear(n.hints)
		}
		n.hints[a] = true
	}
	if now := n.leader(); now != was && now != nil {
		n.log.Info("leader known", slog.String("coordinator", now.addr), slog.String("epoch", now.epoch.String()))
		n.health.clear("no-leader")
		n.heartbeat()
	}
}

// leader is the stream whose coordinator leads by the highest epoch, or nil.
func (n *node) leader() *link {
	var best *link
	for _, l := range n.links {
		if l.up && l.leads && (best == nil || l.epoch.Compare(best.epoch) > 0) {
			best = l
		}
	}
	return best
}

// granted takes in a lease; a node that holds no cap only hears what it says.
func (n *node) granted(g lease.Grant) {
	if n.mode != holding || n.stopping && n.journal == nil {
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
		n.health.clear("lease-expired")
	}
}

// memoryStored takes what came of a write to the state directory.
func (n *node) memoryStored(err error) {
	n.health.set(err != nil, item{
		"state-not-stored", fail, fmt.Sprintf("state.json cannot be written (%v): no new grant is taken", err),
		"make room in " + n.cfg.StateDir + "; the node holds its present cap until the lease ends",
	})
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
	leader := n.leader()
	msg := &headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: n.beatOf(hb, now)}}
	for _, l := range n.links {
		if l.up && (hb.All || leader == nil || l == leader) {
			l.offer(msg)
		}
	}
	n.carryOut(outputs)
}

func (n *node) beatOf(hb lease.Heartbeat, now lease.Instant) *headroomv1.Heartbeat {
	b := &headroomv1.Heartbeat{
		Number: hb.Number, Highest: wire.StampMessage(hb.Highest), Holding: n.holdingOf(hb), BrakeGeneration: hb.Brake, Health: n.health.list(),
	}
	if n.lease.Braked() {
		b.Brake = n.brakeProof(b.GetBrakeGeneration())
	}
	if p, ok := n.wall.value(); ok {
		b.PowerUw = (*int64)(&p)
	}
	if n.drawn.time > 0 {
		b.EnergyUj, b.EnergyMs, b.EnergyFrom = new(int64(n.drawn.energy)), n.drawn.time.Milliseconds(), n.wallSource()
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
		Node: n.cfg.Node, MachineId: n.id.machine, BootId: n.id.boot, ProcessId: n.id.process, Domain: n.cfg.Domain,
		RatedUw: int64(p.Rated), FloorUw: int64(p.Floor), MaxUw: int64(p.Max), FailSafeUw: int64(p.FailSafe),
		Weight: n.cfg.Weight, Controlled: n.mode == holding, Rung: n.rung(), Version: Version,
	}
}

// addresses are where coordinators may be: configured, or proven, and those on
// trial that the gossip or a follower names.
func (n *node) addresses() (settled, onTrial []string) {
	var named []string
	if n.gossip != nil {
		named = gossiped(n.gossip.Coordinators())
	}
	for a := range n.hints {
		named = append(named, a)
	}
	settled, onTrial = n.trials.choose(n.cfg.Coordinators, named, instant().Boot)
	n.tellCoordinators(slices.Concat(settled, onTrial))
	return settled, onTrial
}

// reconcile opens a stream to every coordinator known and gives up those to
// addresses that nobody names any more.
func (n *node) reconcile(ctx context.Context) {
	if !n.openPeers() {
		return
	}
	settled, onTrial := n.addresses()
	want := slices.Concat(settled, onTrial)
	for addr, l := range n.links {
		if !slices.Contains(want, addr) && !(l.up && l.proven) {
			l.cancel()
			n.servers.Go(l.close)
			delete(n.links, addr)
		}
	}
	for _, addr := range want {
		if n.links[addr] == nil {
			n.links[addr] = openLink(ctx, *n.peers, addr, n.hello(), n.events)
		}
	}
	n.cacheAddresses(settled)
}

// peersRead is what reading this node's certificate came to.
type peersRead struct {
	peers rpc.Peers
	err   error
}

// openPeers has this node's certificate read, beside the loop: its files may lie on a
// disk that does not answer. A node without one holds its fail-safe cap as one that is
// cut off does, says so, and looks again the next time.
func (n *node) openPeers() bool {
	if n.peers == nil && !n.peersBusy {
		n.peersBusy = true
		cfg, read := n.cfg, n.peersRead
		go func() {
			p, err := cfg.Peers()
			read <- peersRead{p, err} // buffered: one at a time
		}()
	}
	return n.peers != nil
}

// peersTold takes the certificate, and opens the streams.
func (n *node) peersTold(ctx context.Context, r peersRead) {
	n.peersBusy = false
	n.health.set(r.err != nil, item{
		"tls", fail, fmt.Sprintf("no coordinator can be asked: %v", r.err),
		"coordinator tls cert create node/" + n.cfg.Node + " makes this node's certificate; tls in powerd.yaml names the files",
	})
	if r.err != nil {
		return
	}
	n.peers = &r.peers
	n.denials = r.peers.Denials()
	n.reconcile(ctx)
}

// reopen starts every stream anew, so that Hello tells what has changed.
func (n *node) reopen(ctx context.Context) {
	for addr, l := range n.links {
		l.cancel()
		n.servers.Go(l.close)
		delete(n.links, addr)
	}
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
	n.clerk.errands <- errand{kind: storeCoordinators, name: statedir.CoordinatorsFile, data: data}
}
