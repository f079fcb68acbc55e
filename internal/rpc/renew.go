package rpc

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"headroom/internal/secure"
)

const (
	// proofWait bounds opening the new connection, and callsWait how long the calls on the
	// old one may go on; its streams end at once.
	proofWait = 2 * dialWait
	callsWait = 3 * time.Second
	// lanesMost is how many servers are remembered after their last request.
	lanesMost = 64
)

// errMoved is the end of a stream whose connection was replaced.
var errMoved = errors.New("the connection was replaced after the certificate was renewed")

// Moved reports whether a stream ended because this process has renewed its certificate. A
// connection with the new one is open already: open the stream again at once.
func Moved(err error) bool { return errors.Is(err, errMoved) }

// lanes carries requests over one connection to each server. When the process's
// certificate is renewed, each connection in use is replaced: first a new one is opened and
// proven by an answer, then the old one is closed, and one server comes after the other.
// Owners of streams open them again. The other side would refuse the old connections from
// the end of their certificate on.
type lanes struct {
	keeper *secure.Keeper
	open   func(*lane) *http.Transport
	chance float64
	moving sync.Mutex // one connection after the other
	moves  sync.WaitGroup
	end    chan struct{}

	mu    sync.Mutex
	used  map[string]*lane // by base URL
	ended bool
}

// lane is the connection to one server in one term. The lock of lanes guards what has none of its own.
type lane struct {
	via    *http.Transport
	term   *secure.Term
	active int           // requests in progress
	calls  int           // those of them that are no streams
	over   chan struct{} // closed when the last call has ended on a connection that gets no more
	look   *time.Timer   // runs while requests are in progress

	mu    sync.Mutex
	conns map[*leaving]bool
}

// watch tracks a connection until it is closed.
func (x *lane) watch(c *leaving) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.conns[c] = true
}

func (x *lane) unwatch(c *leaving) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.conns, c)
}

// hangUp closes the connections; their streams get errMoved.
func (x *lane) hangUp() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.conns {
		c.moved.Store(true)
		_ = c.Conn.Close()
	}
}

func newLanes(k *secure.Keeper, open func(*lane) *http.Transport) *lanes {
	return &lanes{keeper: k, open: open, chance: rand.Float64(), end: make(chan struct{}), used: map[string]*lane{}}
}

func (l *lanes) lane(t *secure.Term) *lane {
	x := &lane{term: t, conns: map[*leaving]bool{}}
	x.via = l.open(x)
	return x
}

// RoundTrip implements http.RoundTripper.
func (l *lanes) RoundTrip(r *http.Request) (*http.Response, error) {
	call := !strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+")
	x := l.begin(r.URL.Scheme+"://"+r.URL.Host, call)
	done := sync.OnceFunc(func() { l.finish(x, call) })
	resp, err := x.via.RoundTrip(r)
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &counted{resp.Body, context.AfterFunc(r.Context(), done), done}
	return resp, nil
}

// counted is a body that ends a request.
type counted struct {
	io.ReadCloser
	unwatch func() bool
	done    func()
}

// Read implements io.Reader.
func (b *counted) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.unwatch()
		b.done()
	}
	return n, err
}

// Close implements io.Closer.
func (b *counted) Close() error {
	defer b.done()
	b.unwatch()
	return b.ReadCloser.Close()
}

// begin counts a request to a server. An unused connection of an earlier term is given up
// for it, and one whose certificate has ended.
func (l *lanes) begin(server string, call bool) *lane {
	term := l.keeper.Term()
	l.mu.Lock()
	defer l.mu.Unlock()
	x, known := l.used[server]
	if known && x.term != term && (x.active == 0 || x.term.Over()) {
		old := x
		l.start(func() { l.retire(old) })
		known = false
	}
	if !known {
		l.forget()
		x = l.lane(term)
		l.used[server] = x
	}
	if x.active++; call {
		x.calls++
	}
	switch {
	case x.look == nil:
		x.look = time.AfterFunc(secure.LookEvery, func() { l.check(server, x) })
	case x.active == 1:
		x.look.Reset(secure.LookEvery)
	}
	return x
}

// forget drops servers without requests where there are many: gossip names others over time.
func (l *lanes) forget() {
	for server, x := range l.used {
		if len(l.used) >= lanesMost && x.active == 0 {
			x.via.CloseIdleConnections()
			delete(l.used, server)
		}
	}
}

func (l *lanes) finish(x *lane, call bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.active--; x.active == 0 {
		x.look.Stop()
	}
	if call {
		x.calls--
	}
	if x.over != nil && x.calls == 0 && call {
		close(x.over)
	}
}

// start runs f on a goroutine that CloseIdleConnections awaits. The caller holds the lock.
func (l *lanes) start(f func()) {
	if !l.ended {
		l.moves.Go(f)
	}
}

// check replaces the connection to a server if that is due.
func (l *lanes) check(server string, x *lane) {
	at, due := l.keeper.Due(x.term, l.chance)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch wait := time.Until(at); {
	case l.used[server] != x || x.active == 0:
	case due && wait <= 0:
		l.start(func() { l.move(server, x) })
	case due:
		x.look.Reset(wait)
	default:
		x.look.Reset(secure.LookEvery)
	}
}

// move opens a new connection to a server and then closes the old one. While that fails
// the old one stays.
func (l *lanes) move(server string, old *lane) {
	l.moving.Lock()
	defer l.moving.Unlock()
	x := l.lane(l.keeper.Term())
	proven := l.prove(server, x)
	l.mu.Lock()
	replaced := l.used[server] == old
	if replaced && proven {
		l.used[server] = x
	} else if replaced && old.active > 0 {
		old.look.Reset(secure.LookEvery)
	}
	l.mu.Unlock()
	if replaced && proven {
		l.retire(old)
	} else {
		x.via.CloseIdleConnections()
	}
}

// prove reports whether the server answers on a new connection: in TLS 1.3 it accepts or
// refuses the client's certificate only after the client's handshake.
func (l *lanes) prove(server string, x *lane) bool {
	ctx, cancel := context.WithTimeout(context.Background(), proofWait)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-l.end:
			cancel()
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, server+"/", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := x.via.RoundTrip(r)
	return err == nil && resp.Body.Close() == nil
}

// retire closes a connection that gets no more requests, once its calls are over.
func (l *lanes) retire(x *lane) {
	over := make(chan struct{})
	l.mu.Lock()
	if x.calls == 0 {
		close(over)
	} else {
		x.over = over
	}
	l.mu.Unlock()
	late := time.NewTimer(callsWait)
	defer late.Stop()
	select {
	case <-over:
	case <-late.C:
	case <-l.end:
	}
	x.hangUp()
}

// CloseIdleConnections closes connections without requests. From then on none is replaced.
func (l *lanes) CloseIdleConnections() {
	l.mu.Lock()
	if !l.ended {
		l.ended = true
		close(l.end)
	}
	for _, x := range l.used {
		x.via.CloseIdleConnections()
	}
	l.mu.Unlock()
	l.moves.Wait()
}
