// Package rpc is the transport of Headroom's processes: Connect over HTTP/2 (and HTTP/1 for
// curl), on TCP or on a unix socket.
//
// The one idea: every server and every client has the same bounds. Headers, messages and idle
// connections are bounded; a stream may stay open indefinitely, but pings detect a dead peer;
// and a server returns promptly when its context ends, whatever streams are open. A refusal
// travels as a typed detail, so that the server that refuses sets the operator's message, hint
// and exit code.
//
// What it never does: implement a service, or repeat a request that may have been carried out.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"headroom/internal/cli"
	"headroom/internal/secure"
)

// Bounds of every server and client.
const (
	// MaxMessage bounds one message: the table of 10,000 nodes takes about 3 MB.
	MaxMessage = 8 << 20
	// maxHeader bounds request headers; ours are a few hundred bytes.
	maxHeader = 32 << 10
	// headerWait is how long a client may take to send its headers.
	headerWait = 5 * time.Second
	// idleWait is how long a connection without streams is kept.
	idleWait = 2 * time.Minute
	// pingAfter and pingWait find a peer that vanished without a word: a
	// connection that is silent so long is pinged, and closed without answer.
	pingAfter = 3 * time.Second
	pingWait  = 3 * time.Second
	// dialWait bounds connecting on a loopback or a data centre's network.
	dialWait = 3 * time.Second
	// closeWait is how long handlers get to end after the context has ended.
	closeWait = 500 * time.Millisecond
	// maxStreams bounds the streams of one connection; a process opens a handful.
	maxStreams = 250
)

// Listen opens a TCP listener on addr (host:port; port 0 chooses a free one).
// An error is a *cli.Error with exit code 1, or 2 when addr is malformed.
func Listen(addr string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, &cli.Error{
			Code: "usage", Exit: cli.ExitUsage, Err: err, Message: fmt.Sprintf("%q is not an address", addr),
			Hint: "write host:port, for example 127.0.0.1:7400",
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, &cli.Error{
			Code: "listen", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("cannot listen on %s: %s", addr, cause(err)),
			Hint: "another process may use the port; choose another address",
		}
	}
	return l, nil
}

// Serve answers requests on l with h until ctx ends, then closes every stream
// and returns nil within about half a second. It closes l. Any other end is an
// error. Requests see a context that ends with ctx.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return serve(ctx, l, newServer(ctx, h))
}

// ServeBriefly is Serve for short unauthenticated requests, such as monitoring: one request
// on a connection, over HTTP/1. Each has wait to be sent, answered and
// read; of more than clients connections at a time the newest are closed.
func ServeBriefly(ctx context.Context, l net.Listener, h http.Handler, wait time.Duration, clients int) error {
	srv := newServer(ctx, h)
	srv.Protocols.SetUnencryptedHTTP2(false)
	srv.SetKeepAlivesEnabled(false)
	srv.ReadTimeout, srv.WriteTimeout = wait, wait
	srv.ConnState = atMost(clients)
	return serve(ctx, l, srv)
}

// atMost closes every connection beyond the first so many.
func atMost(clients int) func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > int64(clients) {
				_ = c.Close() // counted as closed by the server, which meets a dead connection
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
}

func serve(ctx context.Context, l net.Listener, srv *http.Server) error {
	failed := make(chan error, 1)
	go func() {
		if s, ok := l.(secureListener); ok {
			srv.TLSConfig = s.config
			srv.Protocols.SetHTTP2(true)
			srv.Protocols.SetUnencryptedHTTP2(false)
			failed <- srv.ServeTLS(s.Listener, "", "")
			return
		}
		failed <- srv.Serve(l)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("rpc: serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	err := srv.Shutdown(shut)
	if err != nil {
		err = srv.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("rpc: close %s: %w", l.Addr(), err)
	}
	return nil
}

func newServer(ctx context.Context, h http.Handler) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           named(h),
		ConnContext:       callerOn,
		Protocols:         &p,
		ReadHeaderTimeout: headerWait,
		IdleTimeout:       idleWait,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // port scanners must not fill the log
		BaseContext:       func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      pingAfter,
			PingTimeout:          pingWait,
		},
	}
}

// named adds the certificate to the caller of each request.
func named(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			c := Caller{}
			if c.Identity, c.Shown = secure.PeerOf(r.TLS); c.Shown {
				c.Certificate = r.TLS.PeerCertificates[0]
				if c.Ends = c.Certificate.NotAfter; !time.Now().Before(c.Ends) {
					w.Header().Set("Connection", "close") // the next request comes with a renewed certificate
				}
			}
			r = r.WithContext(WithCaller(r.Context(), c))
		}
		h.ServeHTTP(w, r)
	})
}

// HandlerOptions returns the options of every Connect handler.
// Messages are not compressed: they are a few hundred bytes, and unpacking them
// was a tenth of what powerd costs.
func HandlerOptions() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(MaxMessage), connect.WithCompression("gzip", nil, nil), connect.WithInterceptors(connect.UnaryInterceptorFunc(boundKeys)),
		connect.WithCodec(jsonCodec{"json"}), connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
	}
}

// ClientOptions returns the options of every Connect client.
func ClientOptions() []connect.ClientOption {
	return []connect.ClientOption{connect.WithReadMaxBytes(MaxMessage), connect.WithAcceptCompression("gzip", nil, nil)}
}

// Respond returns a message as the response of a call, or the error that stands for it.
func Respond[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

// BaseURL returns the URL of a server at addr (host:port).
func BaseURL(addr string) string { return "http://" + addr }

// NewClient is an HTTP client for TCP servers. It has no overall timeout: give
// every call a context. One connection per server carries all its streams.
func NewClient() *http.Client {
	d := &net.Dialer{Timeout: dialWait}
	return newClient(d.DialContext)
}

func newClient(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{
		CheckRedirect: noRedirect,
		Transport: &http.Transport{
			DialContext:            dial,
			Protocols:              &p,
			DisableCompression:     true,
			IdleConnTimeout:        idleWait,
			MaxResponseHeaderBytes: maxHeader,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait},
		},
	}
}
