package rpc

import (
	"context"
	"crypto/x509"
	"net"
	"syscall"
	"time"

	"headroom/internal/listen"
	"headroom/internal/secure"
)

// Caller identifies the other end of a connection.
type Caller struct {
	// Identity is that of the peer's certificate; Shown is false without one.
	Identity secure.Identity
	Shown    bool
	// Ends is when that certificate expires: a connection may outlive it.
	Ends time.Time
	// Certificate is the certificate itself, nil without one: it may be denied later.
	Certificate *x509.Certificate
	// UID is the user at the other end of a unix socket; Local is false on a network.
	UID   uint32
	Local bool
	// Clear: the connection is neither encrypted nor local to a unix socket.
	Clear bool
	// Address is the host at the other end of such a connection.
	Address string
}

type callerKey struct{}

// CallerOf returns the caller of a request.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// WithCaller is for tests that call handlers without a connection.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOn adds the caller of a new connection: the user of a unix socket.
func callerOn(ctx context.Context, c net.Conn) context.Context {
	ctx = listen.With(ctx, c)
	u, ok := c.(*net.UnixConn)
	if !ok {
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // a connection of a test has none
		return WithCaller(ctx, Caller{Clear: true, Address: host})
	}
	who := Caller{Local: true, UID: ^uint32(0)}
	if raw, err := u.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
				who.UID = cred.Uid
			}
		})
	}
	return WithCaller(ctx, who)
}
