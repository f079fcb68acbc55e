package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/capping"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/units"
)

const (
	beat = time.Second // between heartbeats
	// backoffMin and backoffMax bound the pause before a stream is opened again.
	backoffMin, backoffMax = 100 * time.Millisecond, 2 * time.Second
)

// streamNode does on its streams what a powerd does: it keeps one to every coordinator and
// drives powerd's own exchange (lease.Node). Its hardware takes a cap in no time and draws
// what its load asks for, up to the cap; its memory is no disk: what is measured is the
// coordinators'.
type streamNode struct {
	hello  *headroomv1.Hello
	began  time.Time
	events chan streamEvent
	links  []*streamLink
	http   *http.Client
	ended  sync.WaitGroup
	watch  streamWatch

	// The owner goroutine's own.
	exchange *lease.Node
	expiry   *time.Timer
	demand   capping.Demand
	looked   time.Duration // when the load was last looked at
	drawn    units.Power
	inForce  units.Power
	told     standing
	sentAt   [sentKept]time.Duration
	answered uint64 // newest heartbeat that a lease has answered

	cap  atomic.Int64 // in force, uW
	held atomic.Bool
}

// sentKept is how many heartbeats may wait for their answer; it is longer than a lease.
const sentKept = 64

// standing is what a node holds.
type standing struct {
	cap   units.Power // in force; the fail-safe cap without a lease
	held  bool
	stamp lease.Stamp // of the newest grant that was carried out whole
	why   lease.Ended // no lease is held; meaningless while held
}

// streamWatch sees what a node does. The functions run on its goroutine and must not
// wait; nil ones are not called.
type streamWatch struct {
	// busy is the load's use of the node's CPUs, 0 to 1, at a time since the node
	// began; without it the node draws its cap and could use its most.
	busy func(since time.Duration) float64
	// taken is called with every grant taken.
	taken func(g lease.Grant, at time.Time)
	// stands is called when the standing has changed.
	stands func(s standing)
	// replied is called, for every heartbeat, how long after its sending a lease came that answers it.
	replied func(took time.Duration)
}

// streamEvent is an event of a stream for its owner.
type streamEvent struct {
	link *streamLink
	up   bool // it has opened or, without a message, closed
	msg  *headroomv1.CoordinatorMessage
	at   time.Time
}

// streamLink is the stream to one coordinator. leads, epoch and up are the owner's.
type streamLink struct {
	client headroomv1connect.NodeServiceClient
	send   chan *headroomv1.NodeMessage
	up     bool
	leads  bool
	epoch  lease.Epoch
}

// declared is a stream node's description: 60 to 200 W, rated 250 W, fail-safe 80 W.
func declared(name string) *headroomv1.Hello {
	return &headroomv1.Hello{
		Node: name, MachineId: "machine-" + name, BootId: "boot-" + name, ProcessId: rand.Uint64() | 1, Domain: rackName,
		RatedUw: int64(nodeRated), FloorUw: int64(nodeFloor), MaxUw: int64(nodeMost), FailSafeUw: int64(nodeLeast),
		Weight: 1, Controlled: true, Rung: "rapl", Version: "bench",
	}
}

func newStreamNode(name string, watch streamWatch) *streamNode {
	n := &streamNode{hello: declared(name), began: time.Now(), events: make(chan streamEvent, 64), http: rpc.NewClient(), watch: watch}
	n.exchange = lease.NewNode(n.hello.GetProcessId(), lease.Memory{FailSafe: nodeLeast}, n.now())
	return n
}

// openNode starts a node with streams to all addresses.
func openNode(ctx context.Context, name string, addrs []string, watch streamWatch) *streamNode {
	n := newStreamNode(name, watch)
	for _, a := range addrs {
		l := &streamLink{
			client: headroomv1connect.NewNodeServiceClient(n.http, rpc.BaseURL(a), rpc.ClientOptions()...),
			send:   make(chan *headroomv1.NodeMessage, 4),
		}
		n.links = append(n.links, l)
		n.ended.Go(func() { n.keep(ctx, l) })
	}
	n.ended.Go(func() { n.run(ctx) })
	return n
}

// wait returns once the node's context has ended and everything of it too.
func (n *streamNode) wait() {
	n.ended.Wait()
	n.http.CloseIdleConnections()
}

func (n *streamNode) now() lease.Instant {
	d := time.Since(n.began)
	return lease.Instant{Boot: d, Awake: d}
}

// run is the owner.
func (n *streamNode) run(ctx context.Context) {
	if !pause.For(ctx, rand.N(beat)) {
		return
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	n.expiry = time.NewTimer(beat)
	defer n.expiry.Stop()
	n.second()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.second()
		case <-n.expiry.C:
			n.turn()
		case e := <-n.events:
			n.take(e)
		}
		n.tell()
	}
}

// second is what happens once a second: a look at the load, a turn, a heartbeat.
func (n *streamNode) second() {
	n.look()
	n.turn()
	n.heartbeat()
}

// look has the load draw what it asks for, up to the cap in force.
func (n *streamNode) look() {
	if n.watch.busy == nil {
		return
	}
	now := n.now().Boot
	busy := n.watch.busy(now)
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

// turn puts in force what the exchange decides; hardware holds it at once.
func (n *streamNode) turn() {
	now := n.now()
	n.carryOut(n.exchange.Advance(now))
	n.inForce = n.exchange.Turn(now, lease.TurnInput{Rated: nodeRated, Effective: capping.Reading{Power: n.inForce, Known: n.inForce > 0}})
	n.carryOut(n.exchange.Wrote(lease.WriteResult{Known: true, Whole: true}))
	if left, held := n.exchange.Remaining(now); held {
		n.expiry.Reset(left)
	}
}

func (n *streamNode) carryOut(outputs []lease.Output) {
	for _, o := range outputs {
		switch o := o.(type) {
		case lease.Act:
			n.turn()
		case lease.Store:
			n.carryOut(n.exchange.Stored(nil, n.now()))
		case lease.Beat:
			n.heartbeat()
		case lease.Took:
			if n.watch.taken != nil {
				n.watch.taken(o.Grant, time.Now())
			}
		}
	}
}

func (n *streamNode) take(e streamEvent) {
	switch m := e.msg.GetMessage().(type) {
	case *headroomv1.CoordinatorMessage_Lease:
		if m.Lease.GetProcessId() == n.hello.GetProcessId() {
			n.reply(min(m.Lease.GetHeartbeat(), n.exchange.Beats()))
		}
		n.carryOut(n.exchange.Grant(wire.Grant(m.Lease), n.now()))
		if left, held := n.exchange.Remaining(n.now()); held {
			n.expiry.Reset(left)
		}
	case *headroomv1.CoordinatorMessage_NotAdmitted:
		n.exchange.Waits(m.NotAdmitted.GetBrakeLifted())
	case *headroomv1.CoordinatorMessage_Leader:
		was := n.leader()
		e.link.leads, e.link.epoch = m.Leader.GetSelf(), wire.Epoch(m.Leader.GetEpoch())
		if now := n.leader(); now != nil && now != was {
			n.heartbeat()
		}
	default:
		e.link.up, e.link.leads = e.up, false
	}
}

// reply times the heartbeats up to this one, which a lease has just answered.
func (n *streamNode) reply(upTo uint64) {
	now := n.now().Boot
	for n.answered < upTo {
		n.answered++
		if n.watch.replied != nil && n.exchange.Beats()-n.answered < sentKept {
			n.watch.replied(now - n.sentAt[n.answered%sentKept])
		}
	}
}

// tell lets others see what the node holds.
func (n *streamNode) tell() {
	_, state := n.exchange.Cap()
	s := standing{cap: n.inForce, held: state == lease.Held, stamp: n.exchange.Applied(), why: n.exchange.Why()}
	if s == n.told {
		return
	}
	n.told = s
	n.cap.Store(int64(s.cap))
	n.held.Store(s.held)
	if n.watch.stands != nil {
		n.watch.stands(s)
	}
}

// leader is the stream whose coordinator leads by the highest epoch.
func (n *streamNode) leader() *streamLink {
	var best *streamLink
	for _, l := range n.links {
		if l.up && l.leads && (best == nil || l.epoch.Compare(best.epoch) > 0) {
			best = l
		}
	}
	return best
}

// heartbeat goes to the leader, or to everybody when none is known or it does not answer.
func (n *streamNode) heartbeat() {
	now := n.now()
	hb, outputs := n.exchange.NextBeat(now, 0, true)
	n.sentAt[hb.Number%sentKept] = now.Boot
	leader := n.leader()
	msg := &headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: n.beatOf(hb)}}
	for _, l := range n.links {
		if !l.up || !hb.All && leader != nil && l != leader {
			continue
		}
		select {
		case l.send <- msg:
		default: // a stream that is behind: a heartbeat that waited is worth nothing
		}
	}
	n.carryOut(outputs)
}

func (n *streamNode) beatOf(hb lease.Heartbeat) *headroomv1.Heartbeat {
	power, demand := n.inForce, nodeMost
	if n.watch.busy != nil {
		power = n.drawn
		demand, _ = n.demand.Watts(n.looked, nodeFloor, nodeMost)
	}
	return &headroomv1.Heartbeat{
		Number: hb.Number, Highest: wire.StampMessage(hb.Highest), Holding: wire.HoldingMessage(hb),
		PowerUw: new(int64(power)), DemandUw: new(int64(demand)), BrakeGeneration: hb.Brake,
	}
}

// keep opens the stream again and again until ctx ends.
func (n *streamNode) keep(ctx context.Context, l *streamLink) {
	wait := backoffMin
	for ctx.Err() == nil {
		began := time.Now()
		n.once(ctx, l)
		n.post(ctx, streamEvent{link: l})
		if time.Since(began) > 5*time.Second {
			wait = backoffMin
		}
		pause.For(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, backoffMax)
	}
}

// once is the life of one stream.
func (n *streamNode) once(ctx context.Context, l *streamLink) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := l.client.Exchange(ctx)
	// Ending the context alone would leave Receive waiting: see agent's streams.
	unwatch := context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })
	defer unwatch()
	if stream.Send(&headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Hello{Hello: n.hello}}) != nil {
		return
	}
	n.post(ctx, streamEvent{link: l, up: true})
	var sender sync.WaitGroup
	sender.Go(func() { pump(ctx, stream, l.send) })
	defer sender.Wait()
	defer cancel()
	for {
		msg, err := stream.Receive()
		if err != nil {
			return
		}
		n.post(ctx, streamEvent{link: l, up: true, msg: msg, at: time.Now()})
	}
}

func pump(ctx context.Context, stream *connect.BidiStreamForClient[headroomv1.NodeMessage, headroomv1.CoordinatorMessage], send <-chan *headroomv1.NodeMessage) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-send:
			if stream.Send(m) != nil {
				return // receiving ends too
			}
		}
	}
}

func (n *streamNode) post(ctx context.Context, e streamEvent) {
	select {
	case n.events <- e:
	case <-ctx.Done():
	}
}
