package gossip

import (
	"context"
	"fmt"
	"log"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"headroom/internal/cli"
)

// bindTries bounds the search for a free port. Gossip needs the same number for
// TCP and UDP; the system hands out the first and another program may hold the
// second.
const bindTries = 20

// wire is memberlist's network with dials that end with the member: a join that
// waits for an address nobody answers would hold up Close otherwise.
type wire struct {
	*memberlist.NetTransport
	ctx   context.Context //nolint:containedctx // the life of the member; memberlist's interface has no room for one.
	count *Traffic        // nil: nobody counts
}

// bind listens on host:port for TCP and UDP; port 0 picks a free one.
func bind(ctx context.Context, address string, logger *log.Logger) (*wire, error) {
	host, port, err := splitBind(address)
	if err != nil {
		return nil, err
	}
	tries := 1
	if port == 0 {
		tries = bindTries
	}
	for range tries {
		var t *memberlist.NetTransport
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: logger})
		if err == nil {
			return &wire{NetTransport: t, ctx: ctx}, nil
		}
	}
	return nil, &cli.Error{
		Exit:    cli.ExitFailed,
		Message: fmt.Sprintf("cannot listen for gossip on %s: %v", address, err),
		Hint:    "is another member running here? gossip needs the same port free for TCP and UDP; port 0 picks one",
		Err:     fmt.Errorf("%w: %w", errBind, err),
	}
}

// splitBind wants an IP address and a port, because memberlist listens on
// addresses and not on names. An empty host is every address.
func splitBind(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, badConfig(fmt.Sprintf("gossip address %q is not host:port", address), "write it like 10.0.0.5:7402")
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if net.ParseIP(host) == nil {
		return "", 0, badConfig(fmt.Sprintf("gossip address %q is not an IP address and port", address), "write it like 10.0.0.5:7402")
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, badConfig(fmt.Sprintf("gossip address %q has no usable port", address), "ports are 1 to 65535; 0 picks a free one")
	}
	return host, int(n), nil
}

// DialTimeout connects to another member, unless this one is closing.
func (w *wire) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(w.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &call{Conn: c, unhook: context.AfterFunc(w.ctx, func() { _ = c.Close() }), count: w.count}, nil
}

// DialAddressTimeout connects to another member by its address.
func (w *wire) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return w.DialTimeout(addr.Addr, timeout)
}

// call is a connection that ends with the member.
type call struct {
	net.Conn
	unhook func() bool
	count  *Traffic
}

// Read counts what the other member says.
func (c *call) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.count.stream(n)
	return n, err
}

// Write counts what is said.
func (c *call) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.count.stream(n)
	return n, err
}

// Close ends the connection.
func (c *call) Close() error {
	c.unhook()
	return c.Conn.Close()
}
