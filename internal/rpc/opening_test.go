// Claims: a request whose connection ended before the server said anything is sent again, a few times,
// and no other request is; what became of one is not made up; how a server that asks for a certificate ends a connection in
// the clear is told apart from a server that is away or does not answer.

package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"connectrpc.com/connect"

	"headroom/internal/rpc"
)

var (
	errNeverOpened = connect.NewError(connect.CodeUnavailable, errors.New("http2: client conn could not be established"))
	errReset       = connect.NewError(connect.CodeUnavailable, errors.New("read tcp: connection reset by peer"))
	errTold        = connect.NewError(connect.CodeUnavailable, errors.New("remote error: tls: bad certificate"))
	errAway        = connect.NewError(connect.CodeUnavailable, &net.OpError{Op: "dial", Err: errors.New("connection refused")})
)

func TestOpenedAsksAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []error // the last one is repeated
		asked   int
		fails   error
	}{
		"open at once":       {[]error{nil}, 1, nil},
		"open in the end":    {[]error{errNeverOpened, errNeverOpened, nil}, 3, nil},
		"never open":         {[]error{errNeverOpened}, 8, errNeverOpened},
		"refused after that": {[]error{errNeverOpened, errRefused}, 2, errRefused},
		"reset, then open":   {[]error{errReset, nil}, 2, nil},
		"reset, then told":   {[]error{errReset, errReset, errTold}, 3, errTold},
		"always reset":       {[]error{errReset}, 8, errReset},
		"reset, then away":   {[]error{errReset, errAway}, 2, errReset},
		"reset, never open":  {[]error{errReset, errNeverOpened}, 8, errReset},
		"away":               {[]error{errAway, nil}, 1, errAway},
		"sent, no answer":    {[]error{io.ErrUnexpectedEOF, nil}, 1, io.ErrUnexpectedEOF},
	} {
		asked := 0
		err := rpc.Opened(func() error {
			asked++
			return c.answers[min(asked, len(c.answers))-1]
		})
		if !errors.Is(err, c.fails) || asked != c.asked {
			t.Errorf("%s: asked %d times, %v", name, asked, err)
		}
	}
}

func TestWantsCertificate(t *testing.T) {
	t.Parallel()
	unavailable := func(text string) error { return connect.NewError(connect.CodeUnavailable, errors.New(text)) }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"never opened":     {errNeverOpened, true},
		"an answer of TLS": {unavailable(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x15\x03\x01"`), true},
		"hung up":          {unavailable("unexpected EOF"), true},
		"reset":            {fmt.Errorf("read: %w", unavailable("connection reset by peer")), true},
		"away":             {connect.NewError(connect.CodeUnavailable, &net.OpError{Op: "dial", Err: errors.New("connection refused")}), false},
		"slow":             {connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), false},
		"refused":          {rpc.Refuse(connect.CodePermissionDenied, "denied", 6, "EOF of its patience", "ask another"), false},
	} {
		if got := rpc.WantsCertificate(rpc.AsCLI(c.err, "status", "c1:7400")); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
