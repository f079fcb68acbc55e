package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/streams"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/units"
)

// node is a node's powerd reduced to its lease: the real Holder, heartbeats once
// a second, and hardware that takes a cap some time after it was granted.
type node struct {
	c       *cluster
	name    string
	hello   *headroomv1.Hello
	takes   time.Duration // from a grant to the read-back
	inbox   chan letter
	stop    chan struct{}
	stopped sync.WaitGroup
	began   time.Time

	mu        sync.Mutex
	holder    *lease.Holder
	number    uint64
	links     map[string]*pipe
	effective units.Power
	due       time.Time // when the hardware holds the holder's cap; zero: it does
	mute      bool      // what it sends is lost
	deaf      bool      // what is sent to it is lost
	refused   error
	waiting   string
	grants    []grantSeen
	sent      map[uint64]time.Time // when each heartbeat was
	sprint    *headroomv1.Sprint   // under way; it draws a third of what was put aside
	ended     []*headroomv1.SprintEnd
	cutoff    map[string]bool // servers that it does not reach, and that do not reach it
	proof     []byte          // the signed brake of the generation that it tells
}

type grantSeen struct {
	at   time.Time
	from string
	g    lease.Grant
}

// pipe is a stream to one server in process.
type pipe struct {
	server *running
	s      *streams.Node
	stop   chan struct{}
}

type letter struct {
	from string
	m    *headroomv1.CoordinatorMessage
}

type holding struct {
	held      bool
	cap       units.Power
	effective units.Power
	waiting   string
	refused   error
	grants    []grantSeen
}

// declared is what a test node says about itself: 60 to 200 W, rated 250 W, fail-safe 80 W.
func declared(name string) *headroomv1.Hello {
	w := int64(units.Watt)
	return &headroomv1.Hello{
		Node: name, MachineId: "machine-" + name, BootId: "boot-" + name, ProcessId: uint64(len(name)) + 1000, Domain: "rack/r1",
		RatedUw: 250 * w, FloorUw: 60 * w, MaxUw: 200 * w, FailSafeUw: 80 * w, Weight: 1, Controlled: true, Rung: "rapl", Version: "test",
	}
}

func (c *cluster) addNodes(n int) {
	for range n {
		c.addNode(declared(fmt.Sprintf("n%02d", len(c.nodes)+1)))
	}
}

// addNode starts a node. Its hardware holds its fail-safe cap, as a powerd's does before it opens a stream.
func (c *cluster) addNode(h *headroomv1.Hello) *node {
	n := &node{
		c: c, name: h.GetNode(), hello: h, takes: 100 * time.Millisecond, inbox: make(chan letter, 64), stop: make(chan struct{}),
		began: time.Now(), links: map[string]*pipe{}, effective: units.Power(h.GetFailSafeUw()), cutoff: map[string]bool{}, sent: map[uint64]time.Time{},
	}
	n.holder = lease.New(h.GetProcessId(), lease.Memory{FailSafe: n.effective}, n.instant())
	n.stopped.Go(n.run)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(slices.Clone(c.nodes), n)
	return n
}

func (n *node) instant() lease.Instant {
	d := time.Since(n.began)
	return lease.Instant{Boot: d, Awake: d}
}

func (n *node) end() {
	close(n.stop)
	n.stopped.Wait()
	for _, p := range n.links {
		close(p.stop)
	}
}

// set changes the node under its lock.
func (n *node) set(f func(*node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

func (n *node) look() holding {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, state := n.holder.Cap()
	return holding{held: state == lease.Held, cap: p, effective: n.effective, waiting: n.waiting, refused: n.refused, grants: n.grants}
}

func (n *node) run() {
	beat, step := time.NewTicker(time.Second), time.NewTicker(50*time.Millisecond)
	defer beat.Stop()
	defer step.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-beat.C:
			n.heartbeat()
		case <-step.C:
			n.connect()
			n.step()
		case l := <-n.inbox:
			n.take(l)
		}
	}
}

// connect keeps a stream to every running server.
func (n *node) connect() {
	for _, id := range n.c.every() {
		s := n.c.server(id)
		old := n.links[id]
		if old != nil && old.server != s {
			close(old.stop)
			delete(n.links, id)
			old = nil
		}
		if s == nil || old != nil || n.isCut(id) {
			continue
		}
		x, err := nodeService{s.server}.welcome(n.hello, time.Time{})
		n.set(func(n *node) { n.refused = err })
		if err != nil {
			continue
		}
		p := &pipe{server: s, s: x, stop: make(chan struct{})}
		n.links[id] = p
		n.stopped.Go(func() { n.carry(id, p) })
	}
}

func (n *node) isCut(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cutoff[id]
}

// carry brings the messages of one stream.
func (n *node) carry(id string, p *pipe) {
	for {
		select {
		case <-n.stop:
			return
		case <-p.stop:
			return
		case m := <-p.s.Box():
			select {
			case n.inbox <- letter{id, m}:
			case <-n.stop:
				return
			}
		}
	}
}

func (n *node) take(l letter) {
	n.mu.Lock()
	leads := false
	if !n.deaf && !n.cutoff[l.from] {
		switch m := l.m.Message.(type) {
		case *headroomv1.CoordinatorMessage_Lease:
			n.granted(l.from, m.Lease)
		case *headroomv1.CoordinatorMessage_NotAdmitted:
			n.waiting = m.NotAdmitted.GetReason()
		case *headroomv1.CoordinatorMessage_Leader:
			leads = m.Leader.GetSelf()
		}
	}
	n.mu.Unlock()
	if leads {
		n.heartbeat() // powerd reports at once to a new leader
	}
}

func (n *node) granted(from string, m *headroomv1.Lease) {
	g := lease.Grant{
		Stamp: wire.Stamp(m.GetStamp()), Cap: units.Power(m.GetCapUw()), FailSafe: units.Power(m.GetFailSafeUw()),
		Duration: time.Duration(m.GetDurationMs()) * time.Millisecond, Heartbeat: m.GetHeartbeat(), Process: m.GetProcessId(),
		BrakeLifted: m.GetBrakeLifted(),
	}
	before, _ := n.holder.Cap()
	if n.holder.Take(g, n.instant()) != nil {
		return
	}
	if s := n.sprint; s != nil && s.GetId() != m.GetSprint().GetId() {
		spent := s.GetEscrowUj() / 3
		n.ended = append(n.ended, &headroomv1.SprintEnd{Id: s.GetId(), SpentUj: &spent, Reason: "superseded"})
		n.ended = n.ended[max(0, len(n.ended)-8):]
	}
	n.sprint = m.GetSprint()
	n.waiting = ""
	n.grants = append(n.grants, grantSeen{at: time.Now(), from: from, g: g})
	if g.Cap != before {
		n.due = time.Now().Add(n.takes)
	}
}

// step advances the lease and the hardware, and reports a cap that has been reached at once.
func (n *node) step() {
	n.mu.Lock()
	n.holder.Advance(n.instant())
	want, state := n.holder.Cap()
	reached := false
	if n.effective != want && (state == lease.FailSafe || !time.Now().Before(n.due)) {
		n.effective, reached = want, true
	}
	n.mu.Unlock()
	if reached {
		n.heartbeat()
	}
}

func (n *node) heartbeat() {
	n.mu.Lock()
	n.number++
	n.sent[n.number] = time.Now()
	n.holder.Sent(n.number, n.instant())
	e := int64(n.effective)
	demand := n.hello.GetMaxUw()
	hb := &headroomv1.Heartbeat{
		Number: n.number, BrakeGeneration: n.holder.Memory().Brake, Brake: n.proof, Highest: wire.StampMessage(n.holder.Memory().Highest), DemandUw: &demand, PowerUw: &e,
		Holding: &headroomv1.Holding{
			EffectiveUw: &e, FailSafeUw: int64(n.holder.Memory().FailSafe), SprintId: n.sprint.GetId(), Ended: slices.Clone(n.ended),
		},
	}
	mute, cut := n.mute, maps.Clone(n.cutoff)
	n.mu.Unlock()
	for _, id := range n.c.every() {
		if p := n.links[id]; p != nil && !mute && !cut[id] {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = nodeService{p.server.server}.heartbeat(ctx, p.s, n.hello, hb)
			cancel()
		}
	}
}

// vanish cuts the node off in both directions, from every server.
func (n *node) vanish(gone bool) { n.set(func(n *node) { n.mute, n.deaf = gone, gone }) }
