package bench

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"headroom/agent/streams"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/units"
)

// beat is the time between heartbeats.
const beat = time.Second

// sentKept is how many heartbeats may wait for their answer; it is longer than a lease.
const sentKept = 64

// streamNode acts as powerd towards the coordinators: it has powerd's own streams and drives powerd's
// own exchange (lease.Node). Its hardware takes a cap in no time and draws what its load demands,
// up to the cap; its memory is no disk: the coordinators are measured, not the nodes.
type streamNode struct {
	index    int
	fleet    *fleet
	hello    *headroomv1.Hello
	began    time.Time
	busy     func(since time.Duration) float64 // the load's use of the node's CPUs, 0 to 1
	streams  *streams.Streams
	exchange *lease.Node
	expiry   *time.Timer
	demand   capping.Demand
	looked   time.Duration // when the load was last updated
	drawn    units.Power
	inForce  units.Power
	told     standing
	sentAt   [sentKept]time.Duration
	answered uint64 // newest heartbeat that a lease has answered
}

// standing is what a node holds.
type standing struct {
	cap   units.Power // in force; the fail-safe cap without a lease
	held  bool
	stamp lease.Stamp // of the newest grant that was applied whole
}

// newStreamNode describes a node of 60 to 200 W, rated 250 W, fail-safe 80 W.
func newStreamNode(f *fleet, index int, name string, addrs []string, busy func(time.Duration) float64) *streamNode {
	n := &streamNode{index: index, fleet: f, began: time.Now(), busy: busy, hello: &headroomv1.Hello{
		Node: name, MachineId: "machine-" + name, BootId: "boot-" + name, ProcessId: rand.Uint64() | 1, Domain: rackName,
		RatedUw: int64(nodeRated), FloorUw: int64(nodeFloor), MaxUw: int64(nodeMost), FailSafeUw: int64(nodeLeast),
		Weight: 1, Controlled: true, Rung: "rapl", Version: "bench",
	}}
	n.streams = streams.New(addrs, func() (rpc.Peers, error) { return rpc.PlainPeers(), nil }, func() error { return nil }, slog.New(slog.DiscardHandler))
	n.exchange = lease.NewNode(n.hello.GetProcessId(), lease.Memory{FailSafe: nodeLeast}, n.now())
	return n
}

func (n *streamNode) now() lease.Instant {
	d := time.Since(n.began)
	return lease.Instant{Boot: d, Awake: d}
}

// run is the node until ctx ends.
func (n *streamNode) run(ctx context.Context, addrs []string) {
	if !pause.For(ctx, rand.N(beat)) {
		return
	}
	defer n.streams.End()
	n.streams.Ready() // reads the certificate, of which there is none
	tick := time.NewTicker(beat)
	defer tick.Stop()
	n.expiry = time.NewTimer(beat)
	defer n.expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-n.streams.Certificates():
			n.streams.Believe(c)
			n.streams.Keep(ctx, addrs, n.hello)
		case <-tick.C:
			n.look()
			n.turn()
			n.heartbeat()
		case <-n.expiry.C:
			n.turn()
		case e := <-n.streams.Told():
			n.take(e)
		}
		n.tell()
	}
}

// look updates the load: it draws its demand, up to the cap in force.
func (n *streamNode) look() {
	now := n.now().Boot
	busy := n.busy(now)
	wants := nodeFloor + units.Power(busy*float64(nodeMost-nodeFloor))
	limited := n.inForce > 0 && wants > n.inForce
	n.drawn = wants
	if limited {
		n.drawn = n.inForce
	}
	n.demand.Observe(now, capping.Look{
		Elapsed: now - n.looked, Wall: capping.Reading{Power: n.drawn, Known: true}, Busy: busy, BusyKnown: true, Limited: limited,
	})
	n.looked = now
}

// turn applies the decision of the exchange; the hardware holds it at once.
func (n *streamNode) turn() {
	now := n.now()
	n.carryOut(n.exchange.Advance(now))
	n.inForce = n.exchange.Turn(now, lease.TurnInput{Rated: nodeRated, Effective: capping.Reading{Power: n.inForce, Known: n.inForce > 0}})
	n.carryOut(n.exchange.Wrote(lease.WriteResult{Known: true, Whole: true}))
	n.renewed()
}

// renewed sets the timer to the end of the lease.
func (n *streamNode) renewed() {
	if left, held := n.exchange.Remaining(n.now()); held {
		n.expiry.Reset(left)
	}
}

func (n *streamNode) carryOut(outputs []lease.Output) {
	for _, o := range outputs {
		switch o.(type) {
		case lease.Act:
			n.turn()
		case lease.Store:
			n.carryOut(n.exchange.Stored(nil, n.now()))
		case lease.Beat:
			n.heartbeat()
		}
	}
}

func (n *streamNode) take(e streams.Event) {
	counts, newLeader := n.streams.Take(e)
	if counts && e.Msg != nil {
		switch m := e.Msg.GetMessage().(type) {
		case *headroomv1.CoordinatorMessage_Lease:
			if m.Lease.GetProcessId() == n.hello.GetProcessId() {
				n.replied(min(m.Lease.GetHeartbeat(), n.exchange.Beats()))
			}
			n.carryOut(n.exchange.Grant(wire.Grant(m.Lease), n.now()))
			n.renewed()
		case *headroomv1.CoordinatorMessage_NotAdmitted:
			n.exchange.Waits(m.NotAdmitted.GetBrakeLifted())
		}
	}
	if newLeader {
		n.heartbeat()
	}
}

// replied times the heartbeats up to this one, which a lease has just answered.
func (n *streamNode) replied(upTo uint64) {
	now := n.now().Boot
	for n.answered < upTo {
		n.answered++
		if n.exchange.Beats()-n.answered < sentKept {
			n.fleet.replied(now - n.sentAt[n.answered%sentKept])
		}
	}
}

// tell reports a new standing to the fleet.
func (n *streamNode) tell() {
	_, state := n.exchange.Cap()
	s := standing{cap: n.inForce, held: state == lease.Held, stamp: n.exchange.Applied()}
	if s != n.told {
		n.told = s
		n.fleet.stands(n.index, s, time.Now())
	}
}

// heartbeat goes to the leader, or to all coordinators if none is known or it does not answer.
func (n *streamNode) heartbeat() {
	now := n.now()
	hb, outputs := n.exchange.NextBeat(now, 0, true)
	n.sentAt[hb.Number%sentKept] = now.Boot
	demand, _ := n.demand.Watts(n.looked, nodeFloor, nodeMost)
	n.streams.Send(&headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: &headroomv1.Heartbeat{
		Number: hb.Number, Highest: wire.StampMessage(hb.Highest), Holding: wire.HoldingMessage(hb),
		PowerUw: new(int64(n.drawn)), DemandUw: new(int64(demand)), BrakeGeneration: hb.Brake,
	}}}, hb.All)
	n.carryOut(outputs)
}
