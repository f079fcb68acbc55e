// Claims: a lost datagram costs a part of a call's time, and not the call.
package bmc_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/ipmi"
	"headroom/lab/emulator/bmc"
	"headroom/units"
)

// lossy passes datagrams between one client and a BMC, and loses every second one
// that the client sends.
func lossy(t *testing.T, to string) (addr string, lost func() int) {
	t.Helper()
	front := testkit.Need(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	back := testkit.Need(net.Dial("udp", to))(t)
	var mu sync.Mutex
	var client net.Addr
	seen := 0
	var running sync.WaitGroup
	running.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := front.ReadFrom(buf)
			if err != nil {
				return
			}
			mu.Lock()
			client = from
			seen++
			drop := seen%2 == 1
			mu.Unlock()
			if !drop {
				_, _ = back.Write(buf[:n])
			}
		}
	})
	running.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, err := back.Read(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			mu.Lock()
			from := client
			mu.Unlock()
			if err == nil && from != nil {
				_, _ = front.WriteTo(buf[:n], from)
			}
		}
	})
	t.Cleanup(func() {
		_, _ = front.Close(), back.Close()
		running.Wait()
	})
	return front.LocalAddr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return (seen + 1) / 2
	}
}

// Lesson 11: the time for a call must be longer than the time to the next copy of its
// question, or one lost datagram is an event. Each question's first copy is lost here,
// and every reading comes all the same.
func TestLostDatagramsAreSentAgain(t *testing.T) {
	t.Parallel()
	b := testkit.Need(bmc.Start(bmc.Config{Listen: "127.0.0.1:0", User: "admin", Password: "secret", Watts: func() units.Power { return 143 * units.Watt }}))(t)
	t.Cleanup(b.Close)
	addr, lost := lossy(t, b.Addr())
	m := ipmi.Start(ipmi.Config{Mode: ipmi.ModeLAN, Address: addr, User: "admin", Password: "secret", Timeout: 2 * time.Second, Period: 50 * time.Millisecond}, nil)
	t.Cleanup(m.Close)
	r := &bench{bmc: b, meter: m}
	first := r.await(t, "143 W in spite of the loss", reads(143))
	r.await(t, "five more answers", func(now ipmi.Reading) bool {
		if !now.Known {
			t.Errorf("a lost datagram is an event: %+v", now)
		}
		return now.AskedAt > first.AskedAt+5*500*time.Millisecond
	})
	if lost() < 10 {
		t.Errorf("only %d datagrams were lost: the test shows nothing", lost())
	}
}
