// Package streams keeps a node's streams to the coordinators: which addresses to connect to,
// with which certificate, and which coordinator is the leader.
//
// Streams belong to one goroutine, powerd's loop, and never block it: each stream has
// goroutines of its own, which report by events, and the certificate is read in another one.
// The content of a stream is evaluated by lease.Node, not here.
package streams

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/wire"
)

// Streams has a node's streams to the coordinators: to which addresses, with
// which certificate, and which coordinator leads. They belong to one goroutine, the owner;
// the goroutines of the streams send it events.
type Streams struct {
	configured []string                  // addresses of coordinators
	open       func() (rpc.Peers, error) // reads the certificate; called beside the owner
	log        *slog.Logger

	events  chan Event
	links   map[string]*Stream
	hints   map[string]bool // leader addresses that followers named
	trials  trials
	peers   *rpc.Peers // nil until the certificate could be read
	read    chan Certificate
	reading bool
	denials *secure.Denials // servers' certificates that are denied; nil in the clear
	ended   sync.WaitGroup  // of closed streams
}

// Certificate is the result of reading the node's certificate.
type Certificate struct {
	peers rpc.Peers
	Err   error
}

// New are streams to the coordinators at configured, and those that others
// name. open reads the node's certificate.
func New(configured []string, open func() (rpc.Peers, error), log *slog.Logger) *Streams {
	return &Streams{
		configured: configured, open: open, log: log,
		events: make(chan Event, eventQueue), links: map[string]*Stream{}, hints: map[string]bool{}, read: make(chan Certificate, 1),
	}
}

// Told returns the streams' events; each goes to Take.
func (s *Streams) Told() <-chan Event { return s.events }

// Certificates returns the results of reading the certificate; each goes to Believe.
func (s *Streams) Certificates() <-chan Certificate { return s.read }

// Take takes an event in. It reports whether the event counts, which that of a stream
// that was given up does not, and whether another leader is known now.
func (s *Streams) Take(e Event) (counts, newLeader bool) {
	l := e.link
	if s.links[l.Addr] != l {
		return false, false
	}
	was := s.Leader()
	switch {
	case e.up:
		l.up = true // a refusal may follow
	case e.Down != nil:
		s.logDown(l, e.Down)
		l.up, l.leads = false, false
	default:
		if l.logged != streamOpen {
			l.logged = streamOpen
			s.log.Info("stream open", slog.String("coordinator", l.Addr))
		}
		l.proven = true
		s.trials.prove(l.Addr)
		if m := e.Msg.GetLeader(); m != nil {
			s.leaderSays(l, m)
		}
	}
	now := s.Leader()
	return true, now != nil && now != was && e.Msg != nil
}

// streamOpen is the logged state of an open stream.
const streamOpen = "open"

// logDown logs why a stream is not open, once a change: a coordinator that refuses this node is
// asked again every second. Addresses that only gossip names are not worth a line.
func (s *Streams) logDown(l *Stream, err error) {
	why := rpc.Tried{Addr: l.Addr, Err: err}.Why()
	switch {
	case rpc.Moved(err):
		s.log.Info("stream moved to a connection with the renewed certificate", slog.String("coordinator", l.Addr))
	case why != l.logged && (l.logged != "" || l.up || l.proven || slices.Contains(s.configured, l.Addr)):
		l.logged = why
		s.log.Info("stream closed", slog.String("coordinator", l.Addr), slog.Any("error", err))
	}
}

func (s *Streams) leaderSays(l *Stream, m *headroomv1.Leader) {
	l.leads, l.Name, l.Epoch = m.GetSelf(), m.GetId(), wire.Epoch(m.GetEpoch())
	if a := m.GetAddress(); a != "" && !m.GetSelf() {
		if len(s.hints) >= Most {
			clear(s.hints)
		}
		s.hints[a] = true
	}
}

// Leader is the stream whose coordinator leads by the highest epoch, or nil.
func (s *Streams) Leader() *Stream {
	var best *Stream
	for _, l := range s.links {
		if l.up && l.leads && (best == nil || l.Epoch.Compare(best.Epoch) > 0) {
			best = l
		}
	}
	return best
}

// Send gives a message to the leader's stream, or to all where all is set or none leads.
func (s *Streams) Send(m *headroomv1.NodeMessage, all bool) {
	leader := s.Leader()
	for _, l := range s.links {
		if l.up && (all || leader == nil || l == leader) {
			l.offer(m)
		}
	}
}

// Addresses are where coordinators may be: those configured, or proven, and those on
// trial that the gossip or a follower names.
func (s *Streams) Addresses(gossiped []string, now time.Duration) (settled, onTrial []string) {
	named := slices.Clone(gossiped)
	for a := range s.hints {
		named = append(named, a)
	}
	return s.trials.choose(s.configured, named, now)
}

// Keep opens a stream to every address and gives up those that nobody names any more,
// but for the proven ones that are open.
func (s *Streams) Keep(ctx context.Context, addrs []string, hello *headroomv1.Hello) {
	for addr, l := range s.links {
		if !slices.Contains(addrs, addr) && !(l.up && l.proven) {
			s.giveUp(l)
		}
	}
	for _, addr := range addrs {
		if s.links[addr] == nil {
			s.links[addr] = openStream(ctx, *s.peers, addr, hello, s.events)
		}
	}
}

func (s *Streams) giveUp(l *Stream) {
	l.cancel()
	s.ended.Go(l.close)
	delete(s.links, l.Addr)
}

// Reset closes every stream, so that the next ones send what has changed.
func (s *Streams) Reset() {
	for _, l := range s.links {
		s.giveUp(l)
	}
}

// Ready reports whether the certificate could be read. Else it has it read, beside the
// owner: its files may lie on a disk that does not answer. A node without one holds its
// fail-safe cap as one that is cut off does, says so, and looks again the next time.
func (s *Streams) Ready() bool {
	if s.peers == nil && !s.reading {
		s.reading = true
		open, read := s.open, s.read
		go func() {
			p, err := open()
			read <- Certificate{p, err} // buffered: one at a time
		}()
	}
	return s.peers != nil
}

// Asking reports whether the certificate is being read.
func (s *Streams) Asking() bool { return s.reading }

// Count returns the number of streams that are open or being opened.
func (s *Streams) Count() int { return len(s.links) }

// Denied is the list of servers' certificates that are denied; nil in the clear.
func (s *Streams) Denied() *secure.Denials { return s.denials }

// Believe stores the certificate that was read.
func (s *Streams) Believe(c Certificate) {
	s.reading = false
	if c.Err == nil {
		s.peers, s.denials = &c.peers, c.peers.Denials()
	}
}

// Deny takes over which servers are denied, and reports whether that is news. Streams to
// those end at once.
func (s *Streams) Deny(m *headroomv1.Denials) bool {
	if s.denials == nil || !rpc.TakeDenials(s.denials, m, secure.Server) {
		return false
	}
	s.peers.Expel()
	return true
}

// End closes every stream and waits until they have ended.
func (s *Streams) End() {
	s.Reset()
	s.ended.Wait()
	select {
	case c := <-s.read:
		s.Believe(c)
	default:
	}
	if s.peers != nil {
		s.peers.Close()
		s.peers = nil
	}
}
