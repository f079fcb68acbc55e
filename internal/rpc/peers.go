package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"headroom/internal/listen"
	"headroom/internal/secure"
)

// Peers connects a process to servers: in the clear, or with certificates on both sides. One connection per server carries all its streams.
type Peers struct {
	client connect.HTTPClient
	scheme string
	token  string
	keeper *secure.Keeper // nil in the clear, and with a token
	live   *live
}

// PlainPeers reaches servers in the clear: on loopback, or on a network that is
// trusted in every way.
func PlainPeers() Peers { return Peers{client: NewClient(), scheme: "http"} }

// PeersOver reaches servers through a client of the caller's: tests have networks of their own.
func PeersOver(client connect.HTTPClient) Peers { return Peers{client: client, scheme: "http"} }

// SecurePeers reaches servers of the given roles only, showing the keeper's
// certificate. When it is renewed, connections are replaced; see Moved.
func SecurePeers(k *secure.Keeper, roles ...string) Peers {
	return SecurePeersOver((&net.Dialer{Timeout: dialWait}).DialContext, k, roles...)
}

// SecurePeersOver is SecurePeers over connections of the caller's: tests have networks of their own.
func SecurePeersOver(dial Dial, k *secure.Keeper, roles ...string) Peers {
	config := k.Client([]string{"h2"}, roles...)
	l := &live{conns: map[*tls.Conn]net.Conn{}, still: func(s tls.ConnectionState) error { return k.Admits(s, roles...) }}
	via := newLanes(k, func(x *lane) *http.Transport {
		return dialer{dial, config, l, x}.transport()
	})
	return Peers{client: &http.Client{CheckRedirect: noRedirect, Transport: via}, scheme: "https", keeper: k, live: l}
}

// Dial connects to an address.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// TokenPeers reaches coordinator servers with a token instead of a certificate of
// one's own; ca is the file of the cluster's authority.
func TokenPeers(ca, token string) (Peers, error) {
	config, err := secure.Anonymous(ca, []string{"h2"}, secure.Server)
	if err != nil {
		return Peers{}, err
	}
	via := dialer{dial: (&net.Dialer{Timeout: dialWait}).DialContext, config: config}.transport()
	return Peers{client: &http.Client{CheckRedirect: noRedirect, Transport: via}, scheme: "https", token: token}, nil
}

// UnixPeers reaches the one server that listens on the unix socket at path,
// whatever address is asked for.
func UnixPeers(path string) Peers { return Peers{client: NewUnixClient(path), scheme: "http"} }

// noRedirect: a redirect never comes from one of our servers.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// dialer opens connections to servers, and tracks those of a client that shows a certificate.
type dialer struct {
	dial   Dial
	config *tls.Config
	live   *live
	lane   *lane
}

func (d dialer) transport() *http.Transport {
	var p http.Protocols
	p.SetHTTP2(true)
	return &http.Transport{
		// A transport changes its configuration, and the transports of a client share one.
		DialTLSContext: d.tls, DialContext: d.dial, TLSClientConfig: d.config.Clone(), Protocols: &p,
		DisableCompression: true, IdleConnTimeout: idleWait, MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait},
	}
}

// tls connects and does the handshake. A peer that does not answer, or hangs up, counts
// as unreachable: the kernel still accepts connections for a process that is stopped or
// cannot end, and nothing was sent to it.
func (d dialer) tls(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	c := tls.Client(&lateWrite{Conn: d.live.watched(raw, d.lane), closed: make(chan struct{})}, d.config)
	if err = c.HandshakeContext(ctx); err == nil {
		err = d.live.add(c)
	}
	if err == nil {
		return c, nil
	}
	_ = c.NetConn().Close()
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: raw.RemoteAddr(), Err: err}
	}
	return nil, handshakeError{err}
}

// lateWrite delays the error of a write to a connection that the peer has closed until the
// reader has closed it too, at most alertWait. A TLS 1.3 server refuses a client's certificate
// after the client's handshake: the alert with the reason waits to be read while the first
// request fails with a broken pipe, and only the reader's error says why.
type lateWrite struct {
	net.Conn

	once   sync.Once
	closed chan struct{}
}

// alertWait bounds the wait for the reader: the alert is there already, it only has to run.
const alertWait = 250 * time.Millisecond

// Write implements net.Conn.
func (c *lateWrite) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		late := time.NewTimer(alertWait)
		defer late.Stop()
		select {
		case <-c.closed:
		case <-late.C:
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *lateWrite) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// handshakeError means that the two sides did not agree on each other; nothing was sent.
type handshakeError struct{ error }

// Unwrap returns the cause.
func (e handshakeError) Unwrap() error { return e.error }

// HTTP is the client to make Connect clients with.
func (p Peers) HTTP() connect.HTTPClient { return p.client }

// Transport carries single requests, for passing them on.
func (p Peers) Transport() http.RoundTripper {
	if c, ok := p.client.(*http.Client); ok {
		return c.Transport
	}
	return doer{p.client}
}

// doer carries requests over a client that is no *http.Client: a network in memory.
type doer struct{ connect.HTTPClient }

// RoundTrip implements http.RoundTripper.
func (d doer) RoundTrip(r *http.Request) (*http.Response, error) { return d.Do(r) }

// URL is the base URL of the server at addr (host:port).
func (p Peers) URL(addr string) string { return p.scheme + "://" + addr }

// Close gives idle connections back.
func (p Peers) Close() {
	if c, ok := p.client.(*http.Client); ok {
		c.CloseIdleConnections()
	}
}

// Options returns the options of every Connect client of these peers.
func (p Peers) Options() []connect.ClientOption {
	options := ClientOptions()
	if p.token != "" {
		options = append(options, connect.WithInterceptors(Headers(func(h http.Header) { h.Set("Authorization", "Bearer "+p.token) })))
	}
	return options
}

// Headers is an interceptor of clients that sets headers of every request.
type Headers func(http.Header)

// WrapUnary implements connect.Interceptor.
func (set Headers) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		set(r.Header())
		return next(ctx, r)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (set Headers) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		c := next(ctx, s)
		set(c.RequestHeader())
		return c
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (set Headers) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// SecureListener makes Serve ask for certificates on l, and bounds its connections.
func SecureListener(l net.Listener, k *secure.Keeper) net.Listener {
	return secureListener{listen.New(l, listen.Defaults()), k.Server("h2", "http/1.1")}
}

type secureListener struct {
	*listen.Listener
	config *tls.Config
}
