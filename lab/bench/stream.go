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
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/units"
)

const (
	beat = time.Second // between heartbeats
	// missedMost is after how many unanswered heartbeats a node asks every coordinator.
	missedMost = 2
	// backoffMin and backoffMax bound the pause before a stream is opened again.
	backoffMin, backoffMax = 100 * time.Millisecond, 2 * time.Second
)

// streamNode does on its streams what a powerd does: it keeps one to every
// coordinator, sends a heartbeat each second to the one that leads, takes leases
// with the real Holder, and acknowledges at once. Its hardware takes a cap in no
// time and its memory is no disk, so what is measured is the coordinators'.
type streamNode struct {
	hello  *headroomv1.Hello
	began  time.Time
	events chan streamEvent
	links  []*streamLink
	http   *http.Client
	ended  sync.WaitGroup
	taken  func(g lease.Grant, at time.Time) // told of every grant taken; nil for nobody

	// The owner goroutine's own.
	holder   *lease.Holder
	number   uint64
	answered uint64

	cap  atomic.Int64 // in force, uW
	held atomic.Bool
}

// streamEvent is what a stream tells the owner.
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

// declared is what a stream node says about itself: 60 to 200 W, rated 250 W, fail-safe 80 W.
func declared(name string) *headroomv1.Hello {
	return &headroomv1.Hello{
		Node: name, MachineId: "machine-" + name, BootId: "boot-" + name, ProcessId: rand.Uint64() | 1, Domain: rackName,
		RatedUw: int64(nodeRated), FloorUw: int64(nodeFloor), MaxUw: int64(nodeMost), FailSafeUw: int64(nodeLeast),
		Weight: 1, Controlled: true, Rung: "rapl", Version: "bench",
	}
}

// openNode starts a node with streams to all addresses.
func openNode(ctx context.Context, name string, addrs []string, taken func(lease.Grant, time.Time)) *streamNode {
	n := &streamNode{hello: declared(name), began: time.Now(), events: make(chan streamEvent, 64), http: rpc.NewClient(), taken: taken}
	n.holder = lease.New(n.hello.GetProcessId(), lease.Memory{FailSafe: units.Power(n.hello.GetFailSafeUw())}, n.now())
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
	if !pause(ctx, time.Duration(rand.Int64N(int64(beat)))) {
		return
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.heartbeat()
		case e := <-n.events:
			n.take(e)
		}
	}
}

func (n *streamNode) take(e streamEvent) {
	switch m := e.msg.GetMessage().(type) {
	case *headroomv1.CoordinatorMessage_Lease:
		n.answered = max(n.answered, min(n.number, m.Lease.GetHeartbeat()))
		n.grant(m.Lease, e.at)
	case *headroomv1.CoordinatorMessage_NotAdmitted:
		n.answered = n.number
	case *headroomv1.CoordinatorMessage_Leader:
		was := n.leader()
		e.link.leads, e.link.epoch = m.Leader.GetSelf(), epochOf(m.Leader.GetEpoch())
		if now := n.leader(); now != nil && now != was {
			n.heartbeat()
		}
	default:
		e.link.up, e.link.leads = e.up, false
	}
}

// grant takes a lease, and acknowledges at once one that is new.
func (n *streamNode) grant(m *headroomv1.Lease, at time.Time) {
	g := lease.Grant{
		Stamp: lease.Stamp{Epoch: epochOf(m.GetStamp().GetEpoch()), Seq: m.GetStamp().GetSeq()},
		Cap:   units.Power(m.GetCapUw()), FailSafe: units.Power(m.GetFailSafeUw()),
		Duration: time.Duration(m.GetDurationMs()) * time.Millisecond, Heartbeat: m.GetHeartbeat(), Process: m.GetProcessId(),
		BrakeLifted: m.GetBrakeLifted(),
	}
	n.holder.Advance(n.now())
	before := n.holder.Memory().Highest
	if n.holder.Take(g, n.now()) != nil {
		return
	}
	if n.taken != nil {
		n.taken(g, at)
	}
	if g.Stamp != before {
		n.heartbeat()
	}
	n.show()
}

// show lets others see the cap in force.
func (n *streamNode) show() {
	p, state := n.holder.Cap()
	n.cap.Store(int64(p))
	n.held.Store(state == lease.Held)
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
	leader := n.leader()
	all := leader == nil || n.number-n.answered >= missedMost
	now := n.now()
	n.holder.Advance(now)
	n.show()
	n.number++
	n.holder.Sent(n.number, now)
	msg := &headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: n.beatOf()}}
	for _, l := range n.links {
		if !l.up || !all && l != leader {
			continue
		}
		select {
		case l.send <- msg:
		default: // a stream that is behind: a heartbeat that waited is worth nothing
		}
	}
}

func (n *streamNode) beatOf() *headroomv1.Heartbeat {
	p, state := n.holder.Cap()
	in, m, demand := int64(p), n.holder.Memory(), n.hello.GetMaxUw()
	stamp := &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Incarnation: m.Highest.Epoch.Incarnation, Term: m.Highest.Epoch.Term}, Seq: m.Highest.Seq}
	holding := &headroomv1.Holding{
		State: headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE, Applied: stamp, CapUw: in, EffectiveUw: &in, FailSafeUw: int64(m.FailSafe),
	}
	if state == lease.Held {
		holding.State = headroomv1.LeaseState_LEASE_STATE_HELD
	}
	return &headroomv1.Heartbeat{Number: n.number, Highest: stamp, Holding: holding, PowerUw: &in, DemandUw: &demand}
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
		pause(ctx, wait/2+rand.N(wait/2))
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

func epochOf(e *headroomv1.Epoch) lease.Epoch {
	return lease.Epoch{Incarnation: e.GetIncarnation(), Term: e.GetTerm()}
}
