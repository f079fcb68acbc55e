package streams

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
)

const (
	// schedulerBox bounds the messages waiting for a scheduler: two for each node
	// of the largest cluster, so that a stream that opens loses none.
	schedulerBox = 2 * ledger.MaxNodes
	// subjectsKept bounds how many directives about jobs are remembered by their numbers; acknowledgements come within seconds.
	subjectsKept = 20_000
)

// Scheduler is one open stream to a scheduler.
type Scheduler struct {
	box chan *headroomv1.DirectorMessage
}

// Box returns the queue of messages to send.
func (s *Scheduler) Box() <-chan *headroomv1.DirectorMessage { return s.box }

// Order is a share, a stop, a sprint or a drop ratio that is in force until another of the same subject takes its place.
type Order struct {
	// Subject is what the order is about, in words; Reason is why.
	Subject, Reason string
	// One of these is set.
	Share   *headroomv1.ShareDirective
	Stop    *headroomv1.StopDirective
	Sprint  *headroomv1.SprintDirective
	Deflate *headroomv1.DeflateDirective
	// issue sets it apart from earlier orders of its subject.
	issue uint64
}

// carried is which order a directive carried.
type carried struct {
	subject string
	issue   uint64
}

// Schedulers are the streams to schedulers, and what the leadership of this server has
// directed. Directives are numbered from 1 on within a leadership.
type Schedulers struct {
	mu       sync.Mutex
	leader   *headroomv1.Leader
	open     map[*Scheduler]struct{}
	epoch    lease.Epoch // of the leadership that directs
	sequence uint64
	caps     map[string]leader.Cap // newest cap directive of each node in this leadership
	orders   map[string]Order      // in force in this leadership, by subject
	issued   uint64                // orders so far
	numbered map[uint64]carried    // what the newest directives about jobs are about, by sequence
}

func newSchedulers() *Schedulers {
	return &Schedulers{
		leader: &headroomv1.Leader{}, open: map[*Scheduler]struct{}{}, caps: map[string]leader.Cap{},
		orders: map[string]Order{}, numbered: map[uint64]carried{},
	}
}

// begin forgets what another leadership has directed.
func (s *Schedulers) begin(e lease.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch, s.sequence = e, 0
	clear(s.caps)
	clear(s.orders)
	clear(s.numbered)
}

func (s *Schedulers) announce(l *headroomv1.Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = l
	s.send(leaderDirective(l))
}

func leaderDirective(l *headroomv1.Leader) *headroomv1.DirectorMessage {
	return &headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Leader{Leader: l}}
}

// send pushes a message to every scheduler. The caller holds the lock.
func (s *Schedulers) send(m *headroomv1.DirectorMessage) {
	for x := range s.open {
		push(x.box, m)
	}
}

// Open opens a stream for a scheduler: it is told who leads, and everything that this leadership has directed and is in force.
func (s *Schedulers) Open() *Scheduler {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &Scheduler{box: make(chan *headroomv1.DirectorMessage, schedulerBox)}
	s.open[x] = struct{}{}
	push(x.box, leaderDirective(s.leader))
	for _, name := range slices.Sorted(maps.Keys(s.caps)) {
		push(x.box, s.numberCap(s.caps[name], "cap in force"))
	}
	for _, subject := range slices.Sorted(maps.Keys(s.orders)) {
		push(x.box, s.number(s.orders[subject]))
	}
	return x
}

// Close closes a stream.
func (s *Schedulers) Close(x *Scheduler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, x)
}

// PushCaps pushes the caps of nodes, in the name of the leadership that is given.
func (s *Schedulers) PushCaps(e lease.Epoch, caps []leader.Cap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != e {
		return
	}
	for _, c := range caps {
		reason := fmt.Sprintf("cap of %s is %v", c.Node, c.Cap)
		if old, ok := s.caps[c.Node]; ok {
			reason = fmt.Sprintf("cap of %s %v -> %v", c.Node, old.Cap, c.Cap)
		}
		s.caps[c.Node] = c
		s.send(s.numberCap(c, reason))
	}
}

// PushOrders pushes orders about jobs, in the name of the leadership that is given, and
// keeps each for schedulers to come.
func (s *Schedulers) PushOrders(e lease.Epoch, orders []Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != e {
		return
	}
	for _, o := range orders {
		s.issued++
		o.issue = s.issued
		s.orders[o.Subject] = o
		s.send(s.number(o))
	}
}

// DropOrders forgets the orders about subjects that are over.
func (s *Schedulers) DropOrders(over func(subject string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.orders, func(subject string, _ Order) bool { return over(subject) })
}

// Subject is what the directive of that sequence is about; empty for caps and what is long ago. newest is false for an
// order in whose place another of its subject is, or that is over.
func (s *Schedulers) Subject(seq uint64) (subject string, newest bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.numbered[seq]
	return t.subject, !ok || s.orders[t.subject].issue == t.issue
}

// number makes a directive of an order. The caller holds the lock.
func (s *Schedulers) number(o Order) *headroomv1.DirectorMessage {
	s.sequence++
	s.numbered[s.sequence] = carried{o.Subject, o.issue}
	if len(s.numbered) > 2*subjectsKept {
		oldest := s.sequence - subjectsKept
		maps.DeleteFunc(s.numbered, func(seq uint64, _ carried) bool { return seq < oldest })
	}
	d := &headroomv1.Directive{Epoch: wire.EpochMessage(s.epoch), Seq: s.sequence, Reason: o.Reason}
	switch {
	case o.Share != nil:
		d.Action = &headroomv1.Directive_Share{Share: o.Share}
	case o.Sprint != nil:
		d.Action = &headroomv1.Directive_Sprint{Sprint: o.Sprint}
	case o.Deflate != nil:
		d.Action = &headroomv1.Directive_Deflate{Deflate: o.Deflate}
	default:
		d.Action = &headroomv1.Directive_Stop{Stop: o.Stop}
	}
	return &headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Directive{Directive: d}}
}

// numberCap makes a directive of a cap. The caller holds the lock.
func (s *Schedulers) numberCap(c leader.Cap, reason string) *headroomv1.DirectorMessage {
	s.sequence++
	return &headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Directive{Directive: &headroomv1.Directive{
		Epoch: wire.EpochMessage(s.epoch), Seq: s.sequence, Reason: reason,
		Action: &headroomv1.Directive_Cap{Cap: &headroomv1.CapDirective{
			Node: c.Node, CapUw: int64(c.Cap), FloorUw: int64(c.Floor), MaxUw: int64(c.Most),
		}},
	}}}
}
