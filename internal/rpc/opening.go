package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
)

const (
	// neverOpened is HTTP/2's error of a connection that ended before the server said
	// anything. A refused certificate may look like that: the alert that says so comes
	// when the client has begun to write, and the end of the connection may overtake it.
	neverOpened = "client conn could not be established"
	// reset is how the end of such a connection looks when the request was on its way: the server may have read it.
	reset = "connection reset by peer"
	// openingsMost is how often a connection is opened for one request: on a busy machine the end
	// overtakes the alert half of the time.
	openingsMost = 8
)

// Opened calls f, and calls it again while the connection that f opens ends before the
// server said anything. f sends one request; if it changes something it has a request id,
// so that a server that has read it does nothing twice. What became of a request whose
// connection was reset stays unknown unless the server answers another: then the error is
// that of the reset.
func Opened(f func() error) error {
	var unknown error
	for opening := 1; ; opening++ {
		err := f()
		switch {
		case err == nil:
			return nil
		case strings.Contains(err.Error(), reset):
			unknown = cmp.Or(unknown, err)
		case strings.Contains(err.Error(), neverOpened): // and so the server has read nothing
		case NotSent(err):
			return cmp.Or(unknown, err)
		default:
			return err
		}
		if opening == openingsMost {
			return cmp.Or(unknown, err)
		}
	}
}

// WantsCertificate reports whether e is what a client in the clear gets from a server
// that asks for a certificate, whichever end notices first.
func WantsCertificate(e *cli.Error) bool {
	ends := []string{neverOpened, "malformed HTTP", "EOF", "connection reset"}
	return (e.Exit == cli.ExitUnreachable || e.Exit == cli.ExitUnknown) &&
		slices.ContainsFunc(ends, func(words string) bool { return strings.Contains(e.Message, words) })
}

// probeWait bounds the handshake of SpeaksTLS: the server has just been connected to.
const probeWait = time.Second

// SpeaksTLS reports whether the server at addr offers a certificate. It trusts none, so
// that nothing is sent after the handshake.
func SpeaksTLS(ctx context.Context, addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{RootCAs: x509.NewCertPool(), ServerName: host, MinVersion: tls.VersionTLS13}}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = c.Close() // cannot be: no certificate is trusted
		return true
	}
	_, offered := errors.AsType[*tls.CertificateVerificationError](err)
	return offered
}
