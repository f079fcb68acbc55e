package bench

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
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

const (
	// beat is the time between heartbeats.
	beat = time.Second
	// sentKept is how many heartbeats may wait for their answer; it is longer than a lease.
	sentKept = 64
	// loadLasts is how long a node's load stays what it is; the nodes' loads change one after the other.
	loadLasts = 10 * time.Second
)

// fleet is many nodes in this process, and what they hold, as reported by themselves.
type fleet struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	stood []standing
	sum   units.Power
	took  []float64 // exchanges, s

	// Since watch: the budget, the integral of what is above it in W s, the epoch that the nodes had,
	// and when the first of them had a lease of a later one.
	budget units.Power
	over   float64
	at     time.Time
	old    lease.Epoch
	first  time.Time
}

// startFleet starts n nodes that connect to the coordinators at addrs. Their loads follow the seed.
func startFleet(ctx context.Context, n int, addrs []string, seed uint64) *fleet {
	f := &fleet{stood: make([]standing, n)}
	ctx, f.cancel = context.WithCancel(ctx)
	for i := range n {
		node := newStreamNode(f, i, seed, addrs)
		f.running.Go(func() { node.run(ctx, addrs) })
	}
	return f
}

// stop ends every node.
func (f *fleet) stop() {
	f.cancel()
	f.running.Wait()
}

// integrate brings over up to date; the caller holds the lock.
func (f *fleet) integrate(now time.Time) {
	if f.sum > f.budget && now.After(f.at) {
		f.over += (f.sum - f.budget).Watts() * now.Sub(f.at).Seconds()
	}
	f.at = now
}

// stands stores a node's standing.
func (f *fleet) stands(i int, s standing, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.integrate(at)
	f.sum += s.cap - f.stood[i].cap
	f.stood[i] = s
	if f.first.IsZero() && s.held && s.epoch.Compare(f.old) > 0 {
		f.first = at
	}
}

func (f *fleet) replied(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took = append(f.took, took.Seconds())
}

// exchanges returns how long the exchanges since the previous call took, s.
func (f *fleet) exchanges() []float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := f.took
	f.took = nil
	return took
}

// holds returns the sum of the caps in force, and how many nodes hold a lease.
func (f *fleet) holds() (sum units.Power, held int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.stood {
		if s.held {
			held++
		}
	}
	return f.sum, held
}

// watch starts to integrate what the nodes hold above a budget, and to look for leases of a later epoch.
func (f *fleet) watch(budget units.Power, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.budget, f.over, f.at, f.first = budget, 0, now, time.Time{}
	f.old = slices.MaxFunc(f.stood, func(a, b standing) int { return a.epoch.Compare(b.epoch) }).epoch
}

// watched returns when the first node had a lease of a later epoch, the integral so far, and whether every node
// has such a lease.
func (f *fleet) watched(now time.Time) (first time.Time, over float64, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.integrate(now)
	return f.first, f.over, !slices.ContainsFunc(f.stood, func(s standing) bool { return s.epoch.Compare(f.old) <= 0 })
}

// standing is what a node holds.
type standing struct {
	cap   units.Power // in force; the fail-safe cap without a lease
	held  bool
	epoch lease.Epoch // of the newest grant that was applied whole
}

// streamNode acts as powerd towards the coordinators: it has powerd's own streams and drives powerd's
// own exchange (lease.Node). Its hardware takes a cap in no time and draws what its load demands,
// up to the cap; its memory is no disk: the coordinators are measured, not the nodes.
type streamNode struct {
	index    int
	fleet    *fleet
	hello    *headroomv1.Hello
	began    time.Time
	seed     uint64 // of the load, which is phase ahead
	phase    time.Duration
	streams  *streams.Streams
	exchange *lease.Node
	expiry   *time.Timer
	demand   capping.Demand
	looked   time.Duration // when the load was last updated
	drawn    units.Power
	inForce  units.Power
	sentAt   [sentKept]time.Duration
	answered uint64 // newest heartbeat that a lease has answered
}

// newStreamNode describes a node of 60 to 200 W, rated 250 W, fail-safe 80 W.
func newStreamNode(f *fleet, index int, seed uint64, addrs []string) *streamNode {
	name := fmt.Sprintf("n%05d", index)
	n := &streamNode{index: index, fleet: f, began: time.Now(), seed: seed, hello: &headroomv1.Hello{
		Node: name, MachineId: "machine-" + name, BootId: "boot-" + name, ProcessId: rand.Uint64() | 1, Domain: rackName,
		RatedUw: int64(nodeRated), FloorUw: int64(nodeFloor), MaxUw: int64(nodeMost), FailSafeUw: int64(nodeLeast),
		Weight: 1, Controlled: true, Rung: "rapl", Version: "bench",
	}}
	n.phase = time.Duration(rand.New(rand.NewPCG(seed, uint64(index))).Int64N(int64(loadLasts)))
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
		_, state := n.exchange.Cap()
		n.fleet.stands(n.index, standing{cap: n.inForce, held: state == lease.Held, epoch: n.exchange.Applied().Epoch}, time.Now())
	}
}

// look updates the load, between half and all of the CPUs: it draws its demand, up to the cap in force.
func (n *streamNode) look() {
	now := n.now().Boot
	part := (now + n.phase) / loadLasts
	busy := 0.5 + 0.5*rand.New(rand.NewPCG(n.seed^uint64(part)<<32, uint64(n.index))).Float64()
	n.drawn = nodeFloor + units.Power(busy*float64(nodeMost-nodeFloor))
	limited := n.inForce > 0 && n.drawn > n.inForce
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
