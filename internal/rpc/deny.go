package rpc

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/secure"
)

// live tracks the connections of a client, so that those to a server that is denied later can
// be closed: streams last for weeks, and certificates are checked once, in the handshake. A nil
// one tracks nothing.
type live struct {
	still func(tls.ConnectionState) error
	mu    sync.Mutex
	conns map[*tls.Conn]net.Conn
}

// leaving is a connection that is no longer tracked once it is closed.
type leaving struct {
	net.Conn
	closed func(*leaving)
	moved  atomic.Bool // another one has replaced it
}

// Read implements net.Conn.
func (c *leaving) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.moved.Load() {
		err = errMoved
	}
	return n, err
}

// Write implements net.Conn.
func (c *leaving) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && c.moved.Load() {
		err = errMoved
	}
	return n, err
}

// Close implements net.Conn.
func (c *leaving) Close() error {
	c.closed(c)
	return c.Conn.Close()
}

// watched tracks a connection of the lane x.
func (l *live) watched(raw net.Conn, x *lane) net.Conn {
	if l == nil {
		return raw
	}
	c := &leaving{Conn: raw, closed: func(c *leaving) {
		l.forget(c)
		x.unwatch(c)
	}}
	x.watch(c)
	return c
}

// add tracks a connection after its handshake; it returns an error if the server was denied since.
func (l *live) add(c *tls.Conn) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.conns[c] = c.NetConn()
	l.mu.Unlock()
	return l.still(c.ConnectionState())
}

func (l *live) forget(raw net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, below := range l.conns { // a process has a handful
		if below == raw {
			delete(l.conns, c)
		}
	}
}

func (l *live) list() []*tls.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*tls.Conn, 0, len(l.conns))
	for c := range l.conns {
		out = append(out, c)
	}
	return out
}

// Deny makes the peers reject servers whose certificates are denied, at every later
// handshake. It does nothing in the clear.
func (p Peers) Deny(d *secure.Denials) {
	if p.keeper != nil {
		p.keeper.Deny(d)
	}
}

// Denials returns those of Deny; nil in the clear.
func (p Peers) Denials() *secure.Denials {
	if p.keeper == nil {
		return nil
	}
	return p.keeper.Denials()
}

// Expel closes the connections to servers that would be rejected now. It does not wait.
func (p Peers) Expel() {
	if p.live == nil {
		return
	}
	for _, c := range p.live.list() {
		if p.live.still(c.ConnectionState()) != nil {
			_ = c.NetConn().Close() // not c.Close, which says goodbye first
		}
	}
}

// denialsAtOnce bounds the denials of one message.
const denialsAtOnce = 500

// DenialMessages are what clients of servers with these roles have to know: denials of the
// roles and of single certificates, without who denied them and why.
func DenialMessages(all []secure.Denial, roles ...string) []*headroomv1.Denials {
	var list []*headroomv1.Denial
	for _, d := range all {
		if d.Serial != "" || ofRole(d.Identity, roles) {
			list = append(list, &headroomv1.Denial{Identity: d.Identity, Serial: d.Serial, AtUs: d.At})
		}
	}
	var out []*headroomv1.Denials
	for part := range slices.Chunk(list, denialsAtOnce) {
		out = append(out, &headroomv1.Denials{Denied: part})
	}
	return out
}

func ofRole(identity string, roles []string) bool {
	role, _, _ := strings.Cut(identity, "/")
	return slices.Contains(roles, role)
}

// maxDenials bounds what a client keeps: as many as the log does.
const maxDenials = 10_000

// TakeDenials adds what a server of one of those roles has told, and reports whether anything of
// it was news. What denies nobody, or somebody of another role, is left out.
func TakeDenials(d *secure.Denials, m *headroomv1.Denials, roles ...string) (news bool) {
	room := maxDenials - len(d.All())
	for _, x := range m.GetDenied() {
		key := x.GetIdentity()
		if key == "" {
			key = x.GetSerial()
		}
		p, err := secure.ParseDenial(key)
		if err != nil || p.Identity != "" && !ofRole(p.Identity, roles) || room <= 0 {
			continue
		}
		p.At = x.GetAtUs()
		if d.Add(p) {
			news = true
			room--
		}
	}
	return news
}
