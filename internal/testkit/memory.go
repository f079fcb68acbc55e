package testkit

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Memory is a network of connections in memory: in a bubble they live in its time. The zero
// value is ready.
type Memory struct {
	mu    sync.Mutex
	ports map[string]*port
	dials []time.Time
}

type port struct {
	addr  string
	conns chan net.Conn
	gone  chan struct{}
	once  sync.Once
}

var errRefused = errors.New("connection refused")

// Listen serves an address.
func (m *Memory) Listen(addr string) net.Listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ports == nil {
		m.ports = map[string]*port{}
	}
	p := &port{addr: addr, conns: make(chan net.Conn), gone: make(chan struct{})}
	m.ports[addr] = p
	return p
}

// Dial connects to an address.
func (m *Memory) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	m.mu.Lock()
	p := m.ports[addr]
	m.dials = append(m.dials, time.Now())
	m.mu.Unlock()
	fail := func(err error) (net.Conn, error) { return nil, &net.OpError{Op: "dial", Net: network, Err: err} }
	if p == nil {
		return fail(errRefused)
	}
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.gone:
		return fail(errRefused)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// Dials returns when connections were dialled, oldest first.
func (m *Memory) Dials() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]time.Time(nil), m.dials...)
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.gone) })
	return nil
}

func (p *port) Addr() net.Addr { return &net.UnixAddr{Name: p.addr, Net: "memory"} }
