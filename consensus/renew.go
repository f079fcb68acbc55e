package consensus

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"headroom/internal/secure"
)

// errMoved means that a request was not sent because its connection has been replaced.
var errMoved = errors.New("consensus: the connection was replaced after a certificate was renewed")

const (
	// spareEvery is how often a connection that takes another's place is tried.
	spareEvery = time.Second
	// refusalWait is how long the other server has to refuse this one's certificate, which
	// it does after this server's handshake.
	refusalWait = 200 * time.Millisecond
)

// made is what a connection to another server was made with.
type made struct {
	to     string
	term   *secure.Term // of this server's certificate
	chance float64
	ends   time.Time // of the other server's certificate
	due    time.Time // when the connection is replaced for that
}

func madeWith(to string, term *secure.Term, c *tls.Conn) *made {
	peer := c.ConnectionState().PeerCertificates[0]
	return &made{to: to, term: term, chance: rand.Float64(), ends: peer.NotAfter, due: peer.NotAfter.Add(-2 * secure.Margin(peer))}
}

// spare is a connection that waits to take the place of those to the same server.
type spare struct {
	conn  *conn // nil until it is proven
	tried time.Time
}

// Write implements net.Conn. A request on a connection that has been replaced is not sent.
func (c *conn) Write(b []byte) (int, error) {
	if c.made != nil && c.quiet.Swap(false) && c.of.replaced(c.made) {
		return 0, errMoved
	}
	return c.Conn.Write(b)
}

// replaced reports whether a connection gets no more requests: one of its certificates ends or
// was renewed, and another connection is ready. Where one has ended already none is awaited.
func (s *stream) replaced(m *made) bool {
	at, renewed := s.keeper.Due(m.term, m.chance)
	now := time.Now()
	if renewed && m.term.Over() || !now.Before(m.ends) {
		return true
	}
	if (!renewed || now.Before(at)) && now.Before(m.due) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.spares[m.to]
	switch {
	case x != nil && x.conn != nil:
		return true
	case s.closed || x != nil && now.Sub(x.tried) < spareEvery:
		return false
	}
	s.spares[m.to] = &spare{tried: now}
	s.preparing.Go(func() { s.prepare(m, renewed) })
	return false
}

// prepare opens a spare connection. It has to be better than the one whose place it takes:
// the other server has not refused it, and shows a certificate that lasts longer if that is
// what it was opened for.
func (s *stream) prepare(m *made, renewed bool) {
	c, err := s.connect(m.to, rpcTimeout)
	if err != nil {
		return // the old one stays
	}
	_ = c.SetReadDeadline(time.Now().Add(refusalWait))
	_, err = c.Conn.Read(make([]byte, 1))
	waits, ok := errors.AsType[net.Error](err)
	_ = c.SetReadDeadline(time.Time{})
	s.mu.Lock()
	x := s.spares[m.to]
	good := ok && waits.Timeout() && (renewed || c.made.ends.After(m.ends)) && !s.closed && x != nil
	if good {
		x.conn = c
	}
	s.mu.Unlock()
	if !good {
		_ = c.Close()
	}
}

func (s *stream) takeSpare(to string) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.spares[to]
	if x == nil || x.conn == nil {
		return nil
	}
	delete(s.spares, to)
	return x.conn
}
