package consensus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"headroom/internal/cli"
	"headroom/internal/listen"
	"headroom/internal/secure"
)

// stream is the TCP under raft's network transport. It owns every connection,
// in both directions, because raft's own close only stops the listener: old
// connections would go on answering heartbeats, and a leader that cannot write
// would keep the others from electing.
type stream struct {
	net.Listener
	address address
	// accepts and dials wrap the connections of each direction; nil leaves them in the clear.
	accepts, dials *tls.Config
	// keeper reports whether a peer still belongs here; nil in the clear.
	keeper *secure.Keeper

	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	conns  map[*conn]struct{}
	spares map[string]*spare // by address
	closed bool

	preparing sync.WaitGroup // of spares
}

// address is the configured address, unresolved: the others may see a name.
type address string

// Network is always tcp.
func (address) Network() string { return "tcp" }

// String is host:port.
func (a address) String() string { return string(a) }

type conn struct {
	net.Conn
	of     *stream
	guest  *listen.Conn // below it, nil for one that this server has dialled
	looked atomic.Int64 // when its peer was last asked about, nanoseconds of the wall clock
	made   *made        // with which certificates; nil for one that this server has accepted
	quiet  atomic.Bool  // an answer was read since the last request was written
}

// lookEvery is how often the peer of a connection is asked about again. It lives for
// weeks: meanwhile a certificate is denied, or a server leaves the group.
const lookEvery = time.Second

// Read implements net.Conn. It refuses a peer that no longer belongs here.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.quiet.Store(true)
	if err == nil && c.guest != nil {
		c.guest.Prove(listen.Guest{First: true}) // the handshake has come before the first byte
	}
	if err != nil || c.of.keeper == nil {
		return n, err
	}
	if at, was := time.Now().UnixNano(), c.looked.Load(); at-was < int64(lookEvery) || !c.looked.CompareAndSwap(was, at) {
		return n, nil
	}
	if secured, ok := c.Conn.(*tls.Conn); ok {
		if err := c.of.keeper.Still(secured.ConnectionState(), secure.Server); err != nil {
			return 0, fmt.Errorf("consensus: the other server: %w", err)
		}
	}
	return n, nil
}

// Close ends the connection and forgets it.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// bounded lets few strangers in, and none of them stay: whoever shakes no hands within some
// seconds is turned out. The other servers are few.
func bounded(l net.Listener) net.Listener { return listen.New(l, listen.Defaults()) }

func openStream(bind string, own Server, keeper *secure.Keeper) (*stream, error) {
	if bind == "" {
		bind = own.Address
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", bind)
	if err != nil {
		return nil, &cli.Error{
			Exit:    cli.ExitFailed,
			Message: fmt.Sprintf("cannot listen on %s for the other servers: %v", bind, err),
			Hint:    "is another coordinator running here? otherwise choose a free port, the same in every server's list",
			Err:     err,
		}
	}
	return newStream(bounded(l), own, keeper, (&net.Dialer{}).DialContext), nil
}

func newStream(l net.Listener, own Server, keeper *secure.Keeper, dial func(ctx context.Context, network, address string) (net.Conn, error)) *stream {
	s := &stream{Listener: l, address: address(own.Address), dial: dial, conns: map[*conn]struct{}{}, spares: map[string]*spare{}}
	if keeper != nil {
		s.keeper, s.accepts, s.dials = keeper, keeper.Mutual(secure.Server), keeper.Dial(secure.Server)
	}
	return s
}

// Addr is the address that the others know.
func (s *stream) Addr() net.Addr { return s.address }

// Accept takes the next connection of another server.
func (s *stream) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	guest, _ := c.(*listen.Conn)
	if s.accepts != nil {
		c = tls.Server(c, s.accepts) // the handshake comes with the first read, off this goroutine
	}
	return s.own(c, guest, nil)
}

// Dial connects to another server.
func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if s.isClosed() {
		return nil, errTransportClosed
	}
	if c := s.takeSpare(string(to)); c != nil {
		return c, nil
	}
	return s.connect(string(to), timeout)
}

func (s *stream) connect(to string, timeout time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := s.dial(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	var m *made
	if s.dials != nil {
		term := s.keeper.Term()
		secured := tls.Client(c, s.dials)
		if c, err = handshake(secured, timeout); err != nil {
			return nil, err
		}
		m = madeWith(to, term, secured)
	}
	return s.own(c, nil, m)
}

// handshake proves the other server before raft says a word.
func handshake(c *tls.Conn, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("consensus: the other server: %w", err), c.Close())
	}
	return c, nil
}

func (s *stream) own(c net.Conn, guest *listen.Conn, m *made) (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return nil, errTransportClosed
	}
	owned := &conn{Conn: c, of: s, guest: guest, made: m}
	s.conns[owned] = struct{}{}
	return owned, nil
}

func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close ends the listener and every connection.
func (s *stream) Close() error {
	s.mu.Lock()
	s.closed = true
	open := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	s.mu.Unlock()
	err := s.Listener.Close()
	for _, c := range open {
		_ = c.Close()
	}
	s.preparing.Wait()
	return err
}
