package streams

import (
	"fmt"
	"maps"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/ledger"
	"headroom/ledger/leader"
)

const (
	// nodeBox bounds the messages waiting for one node. A node that does not read
	// loses the oldest: a newer lease always replaces an older one.
	nodeBox = 16
	// aliveFor is how long a stream counts as live after its last message: as long
	// as a node may be silent before plans stop counting on it.
	aliveFor = 3500 * time.Millisecond
	// refusalLife is how long a machine that was refused is remembered; it tries again every few seconds.
	refusalLife = time.Minute
	// refusalsMost bounds how many are remembered.
	refusalsMost = 1000
	// endsMost bounds the nodes whose certificates are remembered; a cluster has some thousands.
	endsMost = 10_000
)

// Node is one open stream to a node.
type Node struct {
	who Origin
	box chan *headroomv1.CoordinatorMessage
	// denied requests sending the denials: apart from the queue, which drops its oldest messages.
	denied chan struct{}
	heard  time.Time // last message; the lock of Nodes guards it
}

// Origin identifies the other end of a stream.
type Origin struct {
	Node, Machine, Boot string
	Process             uint64
	// CertificateEnds is the end of the certificate that was shown; zero without one.
	CertificateEnds time.Time
}

// Box returns the queue of messages to send.
func (n *Node) Box() <-chan *headroomv1.CoordinatorMessage { return n.box }

// Denied receives requests to send the denials.
func (n *Node) Denied() <-chan struct{} { return n.denied }

// tellDenied requests sending the denials once, however often they have changed.
func (n *Node) tellDenied() {
	select {
	case n.denied <- struct{}{}:
	default:
	}
}

// Nodes are the streams to nodes.
type Nodes struct {
	mu      sync.Mutex
	leader  *headroomv1.Leader
	open    map[string]*Node
	ends    map[string]time.Time // of the certificates shown last, by node
	refused map[string]refusal   // nodes under whose name another machine has tried to connect
}

// refusal is a machine that tried to connect under a name that is in use.
type refusal struct {
	what string
	at   time.Time
}

func newNodes() *Nodes {
	return &Nodes{leader: &headroomv1.Leader{}, open: map[string]*Node{}, refused: map[string]refusal{}, ends: map[string]time.Time{}}
}

// Open opens a stream for a node; it replaces an older one of the same boot. It
// returns nil and who is there already when another machine has a stream under
// that name, or a live one has the same machine id but another boot: two
// machines with one identity would be charged as one.
func (n *Nodes) Open(who Origin) (s *Node, usedBy string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, ok := n.open[who.Node]; ok {
		switch {
		case old.who.Machine != who.Machine:
			n.refuse(who, "another machine that is connected now")
			return nil, "another machine that is connected now"
		case old.who.Boot != who.Boot && time.Since(old.heard) < aliveFor:
			n.refuse(who, "another boot of the same machine id that is connected now")
			return nil, "another boot of machine " + who.Machine + " that is connected now"
		}
	}
	s = &Node{who: who, box: make(chan *headroomv1.CoordinatorMessage, nodeBox), denied: make(chan struct{}, 1), heard: time.Now()}
	n.open[who.Node] = s
	n.showed(who)
	push(s.box, leaderMessage(n.leader))
	s.tellDenied()
	return s, ""
}

// refuse records a refused machine; the caller holds the lock.
func (n *Nodes) refuse(who Origin, by string) {
	if len(n.refused) < refusalsMost {
		n.refused[who.Node] = refusal{fmt.Sprintf("machine %s, boot %s, says that it is %s, which is %s", who.Machine, who.Boot, who.Node, by), time.Now()}
	}
}

// CertificateEnds returns the ends of the certificates that nodes have shown last, by node. A node whose
// certificate has expired cannot connect any more, and is not forgotten for that.
func (n *Nodes) CertificateEnds() map[string]time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.ends)
}

// showed records the end of the certificate that a node has shown; the caller holds the lock.
func (n *Nodes) showed(who Origin) {
	if len(n.ends) >= endsMost {
		maps.DeleteFunc(n.ends, func(name string, _ time.Time) bool { return n.open[name] == nil })
	}
	delete(n.ends, who.Node)
	if !who.CertificateEnds.IsZero() && len(n.ends) < endsMost {
		n.ends[who.Node] = who.CertificateEnds
	}
}

// Conflicts returns, by node name, why another machine that used the name lately was refused.
func (n *Nodes) Conflicts() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]string{}
	for node, r := range n.refused {
		if time.Since(r.at) > refusalLife {
			delete(n.refused, node)
			continue
		}
		out[node] = r.what
	}
	return out
}

// Touch records a message of a stream, and reports whether the stream is still valid: another
// process of the node may have replaced it.
func (n *Nodes) Touch(s *Node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.heard = time.Now()
	now, ok := n.open[s.who.Node]
	return !ok || now.who.Process == s.who.Process
}

// Close closes a stream, unless a newer one took its place.
func (n *Nodes) Close(s *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[s.who.Node] == s {
		delete(n.open, s.who.Node)
	}
}

// Grant pushes a lease to a node.
func (n *Nodes) Grant(g ledger.NodeGrant) {
	n.send(g.Node, &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Lease{Lease: wire.LeaseMessage(g.Grant)}})
}

// Wait sends a node the reason why it is charged but gets no lease.
func (n *Nodes) Wait(x leader.Wait) {
	n.send(x.Node, &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_NotAdmitted{
		NotAdmitted: &headroomv1.NotAdmitted{Reason: x.Reason, BrakeLifted: x.BrakeLifted},
	}})
}

func (n *Nodes) send(node string, m *headroomv1.CoordinatorMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := n.open[node]; ok {
		push(s.box, m)
	}
}

// TellDenials requests sending the denials to every node.
func (n *Nodes) TellDenials() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.open {
		s.tellDenied()
	}
}

func (n *Nodes) announce(l *headroomv1.Leader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leader = l
	for _, s := range n.open {
		push(s.box, leaderMessage(l))
	}
}

func leaderMessage(l *headroomv1.Leader) *headroomv1.CoordinatorMessage {
	return &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Leader{Leader: l}}
}
