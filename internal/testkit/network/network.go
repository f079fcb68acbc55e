// Package network is an in-memory network for tests of gossip and of the packages that use
// it. Members attach to it in place of sockets.
//
// The one idea: the network has no clock of its own. Inside a bubble of virtual time,
// hundreds of members gossip for minutes in a second, and a test changes partitions with a
// function.
//
// Like a real network it guarantees little: a packet is lost if its receiver is slow, and a
// dial to an unreachable member blocks until it times out. It is for tests only and never
// carries the gossip of a program.
package network

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// backlog is how many packets wait for a member, as in a socket's buffer.
const backlog = 4096

// errNoRoute is the error of a dial to an unreachable member.
var errNoRoute = errors.New("network: no route")

// Network is one network. Its methods may be called from any goroutine.
type Network struct {
	mu    sync.Mutex
	ports map[string]*Port
	cut   func(from, to string) bool
}

// New returns an empty network that loses nothing.
func New() *Network { return &Network{ports: map[string]*Port{}} }

// Cut drops every packet and connection from one address to another for which f returns
// true; nil heals the network.
func (e *Network) Cut(f func(from, to string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = f
}

// Attach joins the network at an address, an IP and a port. It replaces the member that was
// there before.
func (e *Network) Attach(addr string) *Port {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &Port{network: e, addr: addr, packets: make(chan *memberlist.Packet, backlog), streams: make(chan net.Conn)}
	e.ports[addr] = p
	return p
}

// reach returns the member at an address that can receive from another; nil for none.
func (e *Network) reach(from, to string) *Port {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cut != nil && e.cut(from, to) {
		return nil
	}
	return e.ports[to]
}

// Port is one member's place on the network: memberlist's transport.
type Port struct {
	network *Network
	addr    string
	packets chan *memberlist.Packet
	streams chan net.Conn
}

var _ memberlist.NodeAwareTransport = (*Port)(nil)

// address is a packet's sender.
type address string

// Network returns the kind of address.
func (address) Network() string { return "memory" }

// String is host:port.
func (a address) String() string { return string(a) }

// FinalAdvertiseAddr returns the port's own address, whatever the arguments.
func (p *Port) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	host, text, err := net.SplitHostPort(p.addr)
	if err != nil {
		return nil, 0, fmt.Errorf("network: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, 0, fmt.Errorf("network: %w", err)
	}
	return net.ParseIP(host), port, nil
}

// WriteTo sends a packet, which is lost if the address is unreachable.
func (p *Port) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	if to := p.network.reach(p.addr, addr); to != nil {
		select {
		case to.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: address(p.addr), Timestamp: now}:
		default:
		}
	}
	return now, nil
}

// WriteToAddress sends a packet.
func (p *Port) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return p.WriteTo(b, a.Addr)
}

// PacketCh returns the channel of packets for this member.
func (p *Port) PacketCh() <-chan *memberlist.Packet { return p.packets }

// DialTimeout opens a connection, or waits in vain.
func (p *Port) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	late := time.NewTimer(timeout)
	defer late.Stop()
	if to := p.network.reach(p.addr, addr); to != nil {
		near, far := net.Pipe()
		select {
		case to.streams <- far:
			return near, nil
		case <-late.C:
		}
	} else {
		<-late.C
	}
	return nil, fmt.Errorf("%w to %s", errNoRoute, addr)
}

// DialAddressTimeout opens a connection.
func (p *Port) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return p.DialTimeout(a.Addr, timeout)
}

// StreamCh returns the channel of connections to this member.
func (p *Port) StreamCh() <-chan net.Conn { return p.streams }

// Shutdown leaves the network.
func (p *Port) Shutdown() error {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.network.ports[p.addr] == p {
		delete(p.network.ports, p.addr)
	}
	return nil
}
