package bmc

import (
	"context"
	"net"
)

// The VM protocol's control commands that we send: a byte and an end; QEMU,
// hw/ipmi/ipmi_bmc_extern.c.
const (
	vmEnd        = 0xa1
	vmEnableIRQ  = 0x05
	vmDisableIRQ = 0x06
	// receiveIRQ is the bit of the BMC's global enables with which the machine's driver
	// requests interrupts; IPMI v2.0, 22.1.
	receiveIRQ = 0x01
)

// door is the system interface as one boot of the BMC sees it: at the boot's end the
// library hangs up on the machine, and the real listener stays open.
type door struct {
	bmc  *BMC
	in   <-chan net.Conn
	done <-chan struct{}
}

// Accept takes the next machine; after the boot's end it is net.ErrClosed.
func (d *door) Accept() (net.Conn, error) {
	select {
	case <-d.done:
		return nil, net.ErrClosed
	case conn := <-d.in:
		return &line{Conn: conn, door: d}, nil
	}
}

// Close does nothing: the listener lives longer than the boot.
func (d *door) Close() error { return nil }

// Addr is the real listener's.
func (d *door) Addr() net.Addr { return d.bmc.cfg.VM.Addr() }

// line is the connection of one machine.
type line struct {
	net.Conn

	door *door
	irq  bool // switched on in the machine; only Write has it
}

// Read loses what arrives while the BMC hangs.
func (l *line) Read(to []byte) (int, error) {
	for {
		n, err := l.Conn.Read(to)
		if err != nil || !l.door.bmc.hangs() {
			return n, err
		}
	}
}

// Write sends an answer as the fault has it, and before it whether interrupts are enabled.
func (l *line) Write(answer []byte) (int, error) {
	head := l.interrupts()
	_, err := l.door.bmc.send(append(head, answer...), l.door.done, l.Conn.Write)
	return len(answer), err
}

// interrupts is the control command that switches the machine's interrupts as its driver
// set the global enables; nil when they are so already.
func (l *line) interrupts() []byte {
	want := l.door.bmc.wantsIRQ()
	switch {
	case want == l.irq:
		return nil
	case want:
		l.irq = true
		return []byte{vmEnableIRQ, vmEnd}
	default:
		l.irq = false
		return []byte{vmDisableIRQ, vmEnd}
	}
}

func (b *BMC) hangs() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault.Hang
}

func (b *BMC) wantsIRQ() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enables&receiveIRQ != 0
}

// connect takes machines until the listener is closed.
func (b *BMC) connect(ctx context.Context) {
	for {
		conn, err := b.cfg.VM.Accept()
		if err != nil {
			return
		}
		select {
		case b.machines <- conn:
		case <-ctx.Done():
			_ = conn.Close()
			return
		}
	}
}
