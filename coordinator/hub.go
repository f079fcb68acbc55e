package coordinator

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
)

const (
	// mailbox bounds the messages waiting for one node. A node that does not read
	// loses the oldest: a newer lease always replaces an older one.
	mailbox = 16
	// directives bounds the messages waiting for the scheduler: two for each node
	// of the largest cluster, so that a stream that opens loses none.
	directives = 2 * ledger.MaxNodes
)

// stream is one open stream to a node.
type stream struct {
	who origin
	box chan *headroomv1.CoordinatorMessage
	// denied asks for the denials to be told: apart from the box, which loses what is old.
	denied chan struct{}
	heard  time.Time // last message; the hub's lock guards it
}

// origin is who is at the other end of a stream.
type origin struct {
	node, machine, boot string
	process             uint64
}

// post puts a message into the box and drops the oldest when it is full.
func (s *stream) post(m *headroomv1.CoordinatorMessage) {
	for {
		select {
		case s.box <- m:
			return
		default:
		}
		select {
		case <-s.box:
		default:
		}
	}
}

// hub holds the open streams of this server, leading or not. It is safe for use
// by many goroutines.
type hub struct {
	self   string
	logger *slog.Logger

	mu         sync.Mutex
	leader     *headroomv1.Leader
	nodes      map[string]*stream
	schedulers map[*schedulerStream]struct{}
	sequence   uint64
	told       lease.Epoch
	caps       map[string]leader.Cap // newest cap directive of each node in this leadership
	orders     map[string]order      // shares and stops in force in this leadership, by subject
	issued     uint64                // orders so far
	numbered   map[uint64]carried    // what the newest directives about jobs are about, by sequence
	doubles    map[string]double     // nodes under whose name another machine has tried to connect
}

// double is a machine that tried to connect under a name that is in use.
type double struct {
	what string
	at   time.Time
}

const (
	// doubleLife is how long a machine that was turned away is remembered; it tries again every few seconds.
	doubleLife = time.Minute
	// doublesMost bounds how many are remembered.
	doublesMost = 1000
)

// turnAway notes who was refused; the caller holds the lock.
func (h *hub) turnAway(who origin, by string) {
	if len(h.doubles) < doublesMost {
		h.doubles[who.node] = double{fmt.Sprintf("machine %s, boot %s, says that it is %s, which is %s", who.machine, who.boot, who.node, by), time.Now()}
	}
}

// conflicts implements postbox.
func (h *hub) conflicts() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]string{}
	for node, d := range h.doubles {
		if time.Since(d.at) > doubleLife {
			delete(h.doubles, node)
			continue
		}
		out[node] = d.what
	}
	return out
}

func newHub(self string, logger *slog.Logger) *hub {
	return &hub{
		self: self, logger: logger, leader: &headroomv1.Leader{},
		nodes: map[string]*stream{}, schedulers: map[*schedulerStream]struct{}{}, caps: map[string]leader.Cap{},
		doubles: map[string]double{}, orders: map[string]order{}, numbered: map[uint64]carried{},
	}
}

// aliveFor is how long a stream counts as live after its last message: as long
// as a node may be silent before plans stop counting on it.
const aliveFor = 3500 * time.Millisecond

// join opens a stream for a node; it replaces an older one of the same boot. It
// answers nil and who is there already when another machine has a stream under
// that name, or a live one has the same machine id but another boot: two
// machines with one identity would be charged as one.
func (h *hub) join(who origin) (*stream, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.nodes[who.node]; ok {
		switch {
		case old.who.machine != who.machine:
			h.turnAway(who, "another machine that is connected now")
			return nil, "another machine that is connected now"
		case old.who.boot != who.boot && time.Since(old.heard) < aliveFor:
			h.turnAway(who, "another boot of the same machine id that is connected now")
			return nil, "another boot of machine " + who.machine + " that is connected now"
		}
	}
	s := &stream{who: who, box: make(chan *headroomv1.CoordinatorMessage, mailbox), denied: make(chan struct{}, 1), heard: time.Now()}
	h.nodes[who.node] = s
	s.post(leaderMessage(h.leader))
	poke(s.denied)
	return s, ""
}

// touch notes a message of a stream, and tells whether the stream still counts:
// not once another process of the node has taken its place.
func (h *hub) touch(s *stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.heard = time.Now()
	now, ok := h.nodes[s.who.node]
	return !ok || now.who.process == s.who.process
}

// leave closes a stream, unless a newer one took its place.
func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nodes[s.who.node] == s {
		delete(h.nodes, s.who.node)
	}
}

// grant implements postbox.
func (h *hub) grant(g ledger.NodeGrant) {
	h.send(g.Node, &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Lease{Lease: wire.LeaseMessage(g.Grant)}})
}

// wait implements postbox.
func (h *hub) wait(node, reason string) {
	h.send(node, &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_NotAdmitted{
		NotAdmitted: &headroomv1.NotAdmitted{Reason: reason},
	}})
}

func (h *hub) send(node string, m *headroomv1.CoordinatorMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.nodes[node]; ok {
		s.post(m)
	}
}

// lead implements postbox.
func (h *hub) lead(e lease.Epoch) {
	h.mu.Lock()
	h.told, h.sequence = e, 0
	clear(h.caps)
	clear(h.orders)
	clear(h.numbered)
	h.mu.Unlock()
	h.announce(&headroomv1.Leader{Id: h.self, Self: true, Epoch: wire.EpochMessage(e)})
}

// announce tells every stream who leads.
func (h *hub) announce(l *headroomv1.Leader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leader = l
	for _, s := range h.nodes {
		s.post(leaderMessage(l))
	}
	for s := range h.schedulers {
		s.post(&headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Leader{Leader: l}})
	}
}

// tellDenials has every node told who is denied.
func (h *hub) tellDenials() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.nodes {
		poke(s.denied)
	}
}

func leaderMessage(l *headroomv1.Leader) *headroomv1.CoordinatorMessage {
	return &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Leader{Leader: l}}
}
