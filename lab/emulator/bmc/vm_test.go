package bmc_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/emulator/bmc"
	"headroom/units"
)

// machine is the other end of the system interface, as QEMU's ipmi-bmc-extern is it:
// messages end with a0, control commands with a1, and aa escapes these three.
type machine struct {
	conn    net.Conn
	number  byte
	control []byte // the last control command that came
}

// system starts a BMC with a system interface on a listener.
func system(t *testing.T, network, address string) (*bmc.BMC, func(*testing.T) *machine) {
	t.Helper()
	var lc net.ListenConfig
	at := testkit.Need(lc.Listen(t.Context(), network, address))(t)
	b := testkit.Need(bmc.Start(bmc.Config{
		Listen: "127.0.0.1:0", VM: at, User: "admin", Password: "secret", Supplies: 1,
		Watts: func() units.Power { return 160 * units.Watt }, // a0: to be escaped
	}))(t)
	t.Cleanup(b.Close)
	return b, func(t *testing.T) *machine {
		t.Helper()
		var d net.Dialer
		conn := testkit.Need(d.DialContext(t.Context(), network, at.Addr().String()))(t)
		t.Cleanup(func() { _ = conn.Close() })
		m := &machine{conn: conn}
		m.write(t, []byte{0xff, 0x01}, 0xa1) // version 1
		m.write(t, []byte{0x08, 0x0f}, 0xa1) // capabilities
		return m
	}
}

func (m *machine) write(t *testing.T, body []byte, end byte) {
	t.Helper()
	var out []byte
	for _, c := range body {
		if c == 0xa0 || c == 0xa1 || c == 0xaa {
			out = append(out, 0xaa)
			c |= 0x10
		}
		out = append(out, c)
	}
	if _, err := m.conn.Write(append(out, end)); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) ask(t *testing.T, netFn, id byte, data ...byte) {
	t.Helper()
	m.number++
	msg := append([]byte{m.number, netFn << 2, id}, data...)
	m.write(t, append(msg, -sum(msg)), 0xa0)
}

func sum(b []byte) (s byte) {
	for _, c := range b {
		s += c
	}
	return s
}

// answer reads the answer to the last question: its completion code and data. Control
// commands are passed over; none within the time is no answer.
func (m *machine) answer(t *testing.T, within time.Duration) (code byte, data []byte, ok bool) {
	t.Helper()
	testkit.Check(t, m.conn.SetReadDeadline(time.Now().Add(within)))
	var msg []byte
	escaped := byte(0)
	for one := make([]byte, 1); ; {
		if _, err := m.conn.Read(one); err != nil {
			return 0, nil, false
		}
		switch c := one[0]; {
		case c == 0xa1:
			m.control, msg = msg, nil
		case c == 0xaa:
			escaped = 0x10
		case c != 0xa0:
			msg, escaped = append(msg, c&^escaped), 0
		case len(msg) < 5 || sum(msg) != 0:
			t.Fatalf("message %x", msg)
		case msg[0] != m.number: // late: to a question before
			msg = nil
		default:
			return msg[3], msg[4 : len(msg)-1], true
		}
	}
}

func (m *machine) command(t *testing.T, netFn, id byte, data ...byte) (byte, []byte) {
	t.Helper()
	m.ask(t, netFn, id, data...)
	code, answer, ok := m.answer(t, patience)
	if !ok {
		t.Fatalf("no answer to %#x %#x", netFn, id)
	}
	return code, answer
}

// A machine reads and limits its own BMC, over TCP as over a unix socket.
func TestSystemInterface(t *testing.T) {
	t.Parallel()
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "bmc.sock")} {
		b, dial := system(t, network, address)
		m := dial(t)
		if code, id := m.command(t, 0x06, 0x01); code != 0 || len(id) < 11 || id[4]&0x0f != 2 {
			t.Errorf("device id: code %#x, %x", code, id)
		}
		if code, got := m.command(t, 0x2c, 0x02, 0xdc, 1, 0, 0); code != 0 || len(got) != 18 || !bytes.Equal(got[:3], []byte{0xdc, 0xa0, 0}) {
			t.Errorf("reading: code %#x, %x; want 160 W", code, got)
		}
		if code, got := m.command(t, 0x04, 0x2d, 1); code != 0 || got[0] != 40 {
			t.Errorf("sensor: code %#x, %x; want 40 counts", code, got)
		}
		limit := []byte{0xdc, 0, 0, 0, 0, 200, 0, 0xe8, 3, 0, 0, 0, 0, 1, 0}
		if code, _ := m.command(t, 0x2c, 0x04, limit...); code != 0 {
			t.Errorf("limit: code %#x", code)
		}
		if code, _ := m.command(t, 0x2c, 0x05, 0xdc, 1, 0, 0); code != 0 {
			t.Errorf("activate: code %#x", code)
		}
		if p, active := b.Limit(); p != 200*units.Watt || !active {
			t.Errorf("limit %v, active %v", p, active)
		}
		if code, _ := m.command(t, 0x2c, 0x7f, 0xdc); code != 0xc1 {
			t.Errorf("unknown command: code %#x", code)
		}
	}
}

// What a kernel's driver switches on at its start is read back, and its interrupts come.
func TestSystemInterfaceEnables(t *testing.T) {
	t.Parallel()
	_, dial := system(t, "tcp", "127.0.0.1:0")
	m := dial(t)
	for _, c := range []struct {
		enables byte
		control []byte
	}{{0x08, nil}, {0x09, []byte{0x05}}, {0x08, []byte{0x06}}} {
		if code, _ := m.command(t, 0x06, 0x2e, c.enables); code != 0 {
			t.Errorf("set enables: code %#x", code)
		}
		if code, got := m.command(t, 0x06, 0x2f); code != 0 || !bytes.Equal(got, []byte{c.enables}) {
			t.Errorf("enables: code %#x, %x; want %#x", code, got, c.enables)
		}
		if !bytes.Equal(m.control, c.control) {
			t.Errorf("enables %#x: control command %x, want %x", c.enables, m.control, c.control)
		}
	}
	if code, got := m.command(t, 0x06, 0x31); code != 0 || !bytes.Equal(got, []byte{0}) {
		t.Errorf("message flags: code %#x, %x", code, got)
	}
	if code, _ := m.command(t, 0x06, 0x30, 0xff); code != 0 {
		t.Errorf("clear flags: code %#x", code)
	}
}

func TestSystemInterfaceFaults(t *testing.T) {
	t.Parallel()
	b, dial := system(t, "tcp", "127.0.0.1:0")
	m := dial(t)
	if code, _ := m.command(t, 0x06, 0x01); code != 0 {
		t.Fatalf("code %#x", code)
	}
	b.SetFault(bmc.Fault{Busy: 0xc0})
	if code, _ := m.command(t, 0x2c, 0x02, 0xdc, 1, 0, 0); code != 0xc0 {
		t.Errorf("busy: code %#x", code)
	}
	b.SetFault(bmc.Fault{NoDCMI: true})
	if code, _ := m.command(t, 0x2c, 0x02, 0xdc, 1, 0, 0); code != 0xc1 {
		t.Errorf("no DCMI: code %#x", code)
	}
	for _, f := range []bmc.Fault{{Hang: true}, {Slow: time.Minute}} {
		b.SetFault(f)
		m.ask(t, 0x06, 0x01)
		if code, got, ok := m.answer(t, 300*time.Millisecond); ok {
			t.Errorf("%+v answers: code %#x, %x", f, code, got)
		}
	}
	b.SetFault(bmc.Fault{})
	if code, _ := m.command(t, 0x06, 0x01); code != 0 {
		t.Errorf("healed: code %#x", code)
	}
	b.Restart()
	testkit.Check(t, m.conn.SetReadDeadline(time.Now().Add(patience)))
	if _, err := io.Copy(io.Discard, m.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("not hung up on at the restart: %v", err)
	}
	if code, _ := dial(t).command(t, 0x06, 0x01); code != 0 {
		t.Errorf("after the restart: code %#x", code)
	}
}
