// Claims: the reading is the power of a past moment, renewed now and then; the harm of a
// limit is seen; a fault is read as it is written.
package bmc

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/handlers"

	"headroom/internal/testkit"
	"headroom/units"
)

func TestReadingLagsBehindThePower(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		now    int
		update time.Duration
		want   units.Power
	}{
		{7950, time.Second, 170},
		{7950, 2 * time.Second, 160},
		{8000, 2 * time.Second, 180},
	} {
		var m meter
		for ms := 0; ms <= c.now; ms += 100 { // 1 W more each 100 ms
			m.add(began.Add(time.Duration(ms)*time.Millisecond), units.Power(100+ms/100)*units.Watt, c.update, false)
		}
		if m.shown != c.want*units.Watt {
			t.Errorf("at %d ms, update %v: %v, want %v W", c.now, c.update, m.shown, int64(c.want))
		}
	}
}

func TestDangerousLimitFires(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := newLimit(nil)
	l.watts, l.active = 150, true
	l.watch(now, 200*units.Watt)
	l.watch(now.Add(400*time.Millisecond), 200*units.Watt)
	if l.fired {
		t.Error("fired before its correction time")
	}
	l.watch(now.Add(450*time.Millisecond), 140*units.Watt)
	l.watch(now.Add(500*time.Millisecond), 200*units.Watt)
	if l.fired {
		t.Error("fired for two short excesses")
	}
	l.watch(now.Add(time.Second), 200*units.Watt)
	if !l.fired {
		t.Error("did not fire")
	}
	none := byte(0)
	safe := newLimit(&none)
	safe.watts, safe.active = 150, true
	safe.watch(now, 200*units.Watt)
	safe.watch(now.Add(time.Minute), 200*units.Watt)
	if safe.fired {
		t.Error("fired without an action")
	}
}

func TestParseFault(t *testing.T) {
	t.Parallel()
	cases := map[string]Fault{
		"":              {},
		"freeze":        {Freeze: true},
		"slow=1500ms":   {Slow: 1500 * time.Millisecond},
		"busy":          {Busy: 0xc0},
		"busy=0xd0":     {Busy: 0xd0},
		"offset=20W":    {Offset: 20 * units.Watt},
		"sentinel=1970": {Sentinel: Sentinel1970},
	}
	for text, want := range cases {
		if got, err := ParseFault(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"hnag", "offset=20", "busy=300", "factor=x", ","} {
		if got, err := ParseFault(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// No datagram makes the BMC panic, before a session and as it goes on after Open Session.
func FuzzDatagram(f *testing.F) {
	f.Add([]byte{0x06, 0, 0xff, 7, 6, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(bytes.Repeat([]byte{0xff}, 40)) // RAKP 1 with a name of 255 bytes
	f.Add([]byte{0x06, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x20, 0x18, 0xc8, 0x81, 0, 0x38, 0x8e, 4, 0xb5})
	b := testkit.Need(Start(Config{Listen: "127.0.0.1:0", User: "u", Watts: func() units.Power { return 100 * units.Watt }}))(f)
	f.Cleanup(b.Close)
	open, damaged := console(f, b), console(f, b)
	f.Fuzz(func(t *testing.T, d []byte) {
		send := func(d []byte) {
			if _, err := damaged.Write(d[:min(len(d), maxDatagram)]); err != nil {
				t.Fatal(err)
			}
		}
		send(d)
		id := openSession(t, open)
		for kind := byte(0x12); kind <= 0x14; kind += 2 { // RAKP messages 1 and 3
			payload := append([]byte{1, 0, 0, 0}, append(id, d...)...)
			head := binary.LittleEndian.AppendUint16([]byte{6, 0, 0xff, 7, 6, kind, 0, 0, 0, 0, 0, 0, 0, 0}, uint16(len(payload)))
			send(append(head, payload...))
		}
	})
}

// No request makes the BMC panic: a machine's requests come without any authentication.
func FuzzRequest(f *testing.F) {
	f.Add(byte(0x2c), byte(0x04), bytes.Repeat([]byte{0xdc}, 15))
	f.Add(byte(0x0a), byte(0x23), []byte{0, 0, 1, 0, 0, 0xff})
	f.Add(byte(0x04), byte(0x2d), []byte{1})
	b := testkit.Need(Start(Config{Listen: "127.0.0.1:0", User: "u", Watts: func() units.Power { return 100 * units.Watt }}))(f)
	f.Cleanup(b.Close)
	machine, registry := b.store.machine(), b.registry()
	system := testkit.Need(machine.Channels.Get(0x0f))(f)
	f.Fuzz(func(t *testing.T, netFn, id byte, request []byte) {
		_, _, _ = registry.Dispatch(t.Context(), &handlers.HandlerContext{BMC: machine, Channel: system}, netFn, id, request)
	})
}

// console is a socket that the BMC answers to.
func console(f *testing.F, b *BMC) net.Conn {
	f.Helper()
	var d net.Dialer
	conn := testkit.Need(d.DialContext(f.Context(), "udp", b.Addr()))(f)
	f.Cleanup(func() { _ = conn.Close() })
	return conn
}

// openSession is the BMC's id of a new session, cipher suite 3.
func openSession(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	ask := []byte{
		6, 0, 0xff, 7, 6, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 1, 4, 0, 0, 9, 9, 9, 9,
		0, 0, 0, 8, 1, 0, 0, 0, 1, 0, 0, 8, 1, 0, 0, 0, 2, 0, 0, 8, 1, 0, 0, 0,
	}
	if _, err := conn.Write(ask); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, maxDatagram)
	testkit.Check(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	n, err := conn.Read(buf)
	if err != nil || n < 28 || buf[17] != 0 {
		t.Fatalf("open session: %x, %v", buf[:n], err)
	}
	return buf[24:28:28]
}
