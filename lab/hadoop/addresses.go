package hadoop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
)

// serverHost is the host name of the ResourceManager and the NameNode.
const serverHost = "rm"

// addresses are a cluster's own: a range of loopback addresses and a range of ports,
// which are below those that the kernel gives to connections.
type addresses struct {
	a, b int // 127.a.b.x
	base int // first port
}

// The ports, counted from the first. DataNodes have three each from portDataNode on: the
// NameNode distinguishes them by port, because all connections come from 127.0.0.1.
const (
	portScheduler = iota
	portTracker
	portClients
	portAdmin
	portRMWeb
	portNameNode
	portNameNodeWeb
	portNode
	portLocalizer
	portNodeWeb
	portCollector
	portAMProxy
	portDataNode

	portsMost           = portDataNode + 3*50
	portsLow, portsHigh = 11000, 30000
)

// claimAddresses finds a range in which nothing listens, on one or on every address. It is one of so many that two
// clusters do not meet.
func claimAddresses() (a *addresses, err error) {
	for range 50 {
		a = &addresses{a: 64 + rand.IntN(128), b: rand.IntN(256), base: portsLow + rand.IntN(portsHigh-portsLow)}
		if err = a.probe(); err == nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("hadoop: find free loopback addresses: %w", err)
}

// probe fails when a process listens on one of the ports.
func (a *addresses) probe() error {
	for port := range portsMost {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", a.server(port))
		if err != nil {
			return err
		}
		_ = l.Close()
	}
	return nil
}

// server is the address of one of the servers' ports, for connections from here.
func (a *addresses) server(port int) string {
	return fmt.Sprintf("127.%d.%d.254:%d", a.a, a.b, a.base+port)
}

// on is a port of a host, as configuration has it.
func (a *addresses) on(host string, port int) string { return fmt.Sprintf("%s:%d", host, a.base+port) }

// hosts is the file that the JVMs resolve names by. Connections inside the machine come
// from 127.0.0.1: as a second address of the ResourceManager it is what the application
// masters' web pages take the proxy's requests from.
func (a *addresses) hosts(nodes []Node) (string, error) {
	own, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("hadoop: this machine's name: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "127.%d.%d.254 %s\n127.0.0.1 localhost %s %s\n", a.a, a.b, serverHost, serverHost, own)
	for i, n := range nodes {
		fmt.Fprintf(&text, "127.%d.%d.%d %s\n", a.a, a.b, i+1, n.Name)
	}
	return text.String(), nil
}
