package bmc

import (
	"net"
	"time"
)

const (
	// maxDatagram bounds what is read; an IPMI packet has less than 300 bytes.
	maxDatagram = 1024
	// maxQueue bounds the datagrams that wait for the server; more are lost, as by UDP.
	maxQueue = 64
)

type datagram struct {
	data []byte
	from net.Addr
}

// lan is the socket as one boot of the BMC sees it: the boot's end leaves the real socket
// open. It is the transport of the protocol library's server.
type lan struct {
	bmc  *BMC
	in   chan datagram
	done <-chan struct{}
}

// ReadFrom hands the next datagram to the server; after the boot's end it is net.ErrClosed.
func (l *lan) ReadFrom(to []byte) (int, net.Addr, error) {
	select {
	case <-l.done:
		return 0, nil, net.ErrClosed
	case d := <-l.in:
		return copy(to, d.data), d.from, nil
	}
}

// WriteTo sends an answer as the fault has it.
func (l *lan) WriteTo(answer []byte, to net.Addr) (int, error) {
	return l.bmc.send(answer, l.done, func(b []byte) (int, error) { return l.bmc.socket.WriteTo(b, to) })
}

// LocalAddr is the real socket's.
func (l *lan) LocalAddr() net.Addr { return l.bmc.socket.LocalAddr() }

// Close does nothing: the socket lives longer than the boot.
func (l *lan) Close() error { return nil }

// receive reads the socket until it is closed. A BMC that hangs drops everything.
func (b *BMC) receive() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := b.socket.ReadFrom(buf)
		if err != nil {
			return
		}
		b.mu.Lock()
		to, hang := b.booted.lan, b.fault.Hang
		b.mu.Unlock()
		if hang || deadly(buf[:n]) {
			continue
		}
		select {
		case to.in <- datagram{data: append([]byte(nil), buf[:n]...), from: from}:
		default: // as many as it can hold: the rest is lost
		}
	}
}

// deadly is a RAKP message 1 with a name longer than the 16 bytes that IPMI has: go-ipmi
// v0.9.1 adds to its length in 8 bits, and a length above 227 makes it panic.
func deadly(d []byte) bool {
	const (
		kindAt, kindMask, rakp1 = 5, 0x3f, 0x12
		nameAt, maxName         = 16 + 27, 16
	)
	return len(d) > nameAt && d[kindAt]&kindMask == rakp1 && d[nameAt] > maxName
}

// send sends an answer: not at all while the BMC hangs, later when it is slow.
func (b *BMC) send(answer []byte, done <-chan struct{}, write func([]byte) (int, error)) (int, error) {
	b.mu.Lock()
	f := b.fault
	b.mu.Unlock()
	switch {
	case f.Hang:
		return len(answer), nil
	case f.Slow == 0:
		return write(answer)
	}
	held := append([]byte(nil), answer...)
	time.AfterFunc(f.Slow, func() {
		select {
		case <-done: // the boot that sends it is over
		default:
			_, _ = write(held) // a network may lose it
		}
	})
	return len(answer), nil
}
