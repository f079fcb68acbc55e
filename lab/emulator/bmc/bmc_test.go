// Claims: the emulated BMC is read and limited over LAN as a real one; each fault is
// seen by the meter as what it is, never as a number, and heals.
package bmc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headroom/internal/testkit"
	"headroom/ipmi"
	"headroom/lab/emulator/bmc"
	"headroom/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take on a loaded machine.
const patience = 45 * time.Second

// bench is a BMC and a meter on it; the plant's power is a variable.
type bench struct {
	bmc   *bmc.BMC
	meter *ipmi.Meter
	watts atomic.Int64
}

func newBench(t *testing.T, server func(*bmc.Config), client func(*ipmi.Config)) *bench {
	t.Helper()
	r := &bench{}
	r.watts.Store(143)
	cfg := bmc.Config{
		Listen: "127.0.0.1:0", User: "admin", Password: "secret", Update: 100 * time.Millisecond,
		Watts: func() units.Power { return units.Power(r.watts.Load()) * units.Watt },
	}
	if server != nil {
		server(&cfg)
	}
	b := testkit.Need(bmc.Start(cfg))(t)
	t.Cleanup(b.Close)
	to := ipmi.Config{
		Mode: ipmi.ModeLAN, Address: b.Addr(), User: cfg.User, Password: cfg.Password,
		Timeout: time.Second, Period: 50 * time.Millisecond,
	}
	if client != nil {
		client(&to)
	}
	r.bmc, r.meter = b, ipmi.Start(to, nil)
	t.Cleanup(r.meter.Close)
	return r
}

// await polls the meter until a reading is as expected.
func (r *bench) await(t *testing.T, what string, ok func(ipmi.Reading) bool) ipmi.Reading {
	t.Helper()
	var got ipmi.Reading
	if !testkit.Within(patience, func() bool { got = r.meter.Latest(); return ok(got) }) {
		t.Fatalf("%s: have %+v", what, got)
	}
	return got
}

func reads(watts units.Power) func(ipmi.Reading) bool {
	return func(r ipmi.Reading) bool { return r.Known && r.Power == watts*units.Watt }
}

func in(state ipmi.State, why string) func(ipmi.Reading) bool {
	return func(r ipmi.Reading) bool {
		return r.State == state && !r.Known && r.Power == 0 && strings.Contains(r.Why, why)
	}
}

// Lesson 11: every odd answer that was seen on a BMC is no number, and the reason is reported.
func TestFaultsAreSeenAndHeal(t *testing.T) {
	t.Parallel()
	cases := []struct {
		fault string
		want  func(ipmi.Reading) bool
	}{
		{"sentinel=zero", in(ipmi.StateInsane, "0 W")},
		{"sentinel=max", in(ipmi.StateInsane, "65535")},
		{"sentinel=inactive", in(ipmi.StateInsane, "not active")},
		{"sentinel=1970", in(ipmi.StateInsane, "1970")},
		{"sentinel=equal", in(ipmi.StateInsane, "are equal")},
		{"factor=1000", in(ipmi.StateInsane, "")},
		{"offset=30kW", in(ipmi.StateInsane, "is above the maximum of this node")},
		{"factor=0.5", reads(72)},
		{"offset=20W", reads(163)},
		{"busy", in(ipmi.StateStale, "busy")},
		{"busy=0xc3", in(ipmi.StateStale, "timeout")},
		{"hang", in(ipmi.StateStale, "no answer")},
		{"slow=100ms", reads(143)},
		{"no-dcmi", func(r ipmi.Reading) bool { return r.Known && r.Source == ipmi.SourceSDR && r.Power == 140*units.Watt }},
	}
	for _, c := range cases {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			r := newBench(t, nil, nil)
			r.await(t, "healthy", reads(143))
			f := testkit.Need(bmc.ParseFault(c.fault))(t)
			r.bmc.SetFault(f)
			r.await(t, c.fault, c.want)
			r.bmc.SetFault(bmc.Fault{})
			if !f.NoDCMI { // the choice of a source lasts until the next login
				r.await(t, "healed", reads(143))
			}
		})
	}
}

func TestFrozenReadingDoesNotFollow(t *testing.T) {
	t.Parallel()
	r := newBench(t, nil, nil)
	r.await(t, "143 W", reads(143))
	r.bmc.SetFault(bmc.Fault{Freeze: true})
	r.watts.Store(200)
	asked := r.meter.Latest().AskedAt
	got := r.await(t, "a newer answer", func(x ipmi.Reading) bool { return x.Known && x.AskedAt > asked+300*time.Millisecond })
	if got.Power != 143*units.Watt {
		t.Errorf("frozen at 143 W, reads %+v", got)
	}
	r.bmc.SetFault(bmc.Fault{})
	r.await(t, "200 W", reads(200))
}

// Lesson 11: a session does not outlive a restart of the BMC, and the client gets no notice.
func TestRestartedBMCIsLoggedInAgain(t *testing.T) {
	t.Parallel()
	r := newBench(t, nil, nil)
	r.await(t, "143 W", reads(143))
	r.bmc.Restart()
	r.watts.Store(150)
	r.await(t, "150 W after the restart", reads(150))
}

func TestSuppliesAreSummed(t *testing.T) {
	t.Parallel()
	r := newBench(t, func(c *bmc.Config) { c.Supplies = 2 }, nil)
	r.bmc.SetFault(bmc.Fault{NoDCMI: true})
	r.watts.Store(320)
	got := r.await(t, "320 W", func(x ipmi.Reading) bool { return x.Source == ipmi.SourceSDR && x.Power == 320*units.Watt })
	if got.Sensors != "PS1 Input Power + PS2 Input Power" {
		t.Errorf("sensors %q", got.Sensors)
	}
	r.bmc.SetFault(bmc.Fault{NoDCMI: true, Sentinel: bmc.SentinelInactive})
	r.await(t, "unavailable", in(ipmi.StateInsane, "unavailable"))
}

func TestCipherSuitesAndPrivileges(t *testing.T) {
	t.Parallel()
	for _, suite := range []byte{3, 17} {
		r := newBench(t, func(c *bmc.Config) { c.CipherSuites = []byte{suite} }, nil)
		r.await(t, "143 W", reads(143))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	operator := newBench(t, func(c *bmc.Config) { c.Privilege = 3 }, nil)
	operator.await(t, "143 W as operator", reads(143))
	if _, err := operator.meter.SetLimit(ctx, 200*units.Watt); err != nil {
		t.Errorf("limit as operator: %v", err)
	}
	user := newBench(t, func(c *bmc.Config) { c.Privilege = 2 }, nil)
	user.await(t, "143 W as user", reads(143))
	if _, err := user.meter.SetLimit(ctx, 200*units.Watt); !errors.Is(err, ipmi.ErrNoLimit) || !strings.Contains(err.Error(), "privilege") {
		t.Errorf("limit as user: %v", err)
	}
	if _, active := user.bmc.Limit(); active {
		t.Error("a user set a limit")
	}
	wrong := newBench(t, nil, func(c *ipmi.Config) { c.Password = "guess" })
	wrong.await(t, "refused", in(ipmi.StateAbsent, "wrong password"))
	nobody := newBench(t, nil, func(c *ipmi.Config) { c.User = "nobody" })
	nobody.await(t, "refused", in(ipmi.StateAbsent, "refused"))
}

// Lesson 12: the exception action that a BMC comes with may be "hard power off".
func TestLimitNeverPowersOff(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newBench(t, nil, nil)
	r.await(t, "143 W", reads(143))
	if r.bmc.Action() != byte(ipmi.ActionPowerOff) {
		t.Fatal("the emulated BMC is harmless by default: the test proves nothing")
	}
	if _, err := r.meter.SetLimit(ctx, 150*units.Watt); err != nil {
		t.Fatal(err)
	}
	if p, active := r.bmc.Limit(); p != 150*units.Watt || !active || r.bmc.Action() != byte(ipmi.ActionNone) {
		t.Errorf("limit %v, active %v, action %#x", p, active, r.bmc.Action())
	}
	if l, err := r.meter.ClearLimit(ctx); err != nil || l.Active {
		t.Errorf("cleared: %+v, %v", l, err)
	}

	for _, f := range []bmc.Fault{{KeepAction: true}, {HideLimit: true}} {
		b := newBench(t, nil, nil)
		b.bmc.SetFault(f)
		b.watts.Store(400)
		if _, err := b.meter.SetLimit(ctx, 150*units.Watt); !errors.Is(err, ipmi.ErrLimitUnsafe) {
			t.Errorf("%+v: %v, want it refused", f, err)
		}
		if _, active := b.bmc.Limit(); active || b.bmc.PoweredOff() {
			t.Errorf("%+v: active %v, powered off %v", f, active, b.bmc.PoweredOff())
		}
	}
}

func TestCloseDoesNotWaitForASlowBMC(t *testing.T) {
	t.Parallel()
	r := newBench(t, nil, nil)
	r.await(t, "143 W", reads(143))
	r.bmc.SetFault(bmc.Fault{Slow: time.Minute})
	r.await(t, "silent", in(ipmi.StateStale, "no answer"))
	r.meter.Close()
	r.bmc.Close() // the test's own deadline, and goleak, show whether these wait
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	watts := func() units.Power { return 0 }
	for name, cfg := range map[string]bmc.Config{
		"cipher suite":  {Listen: "127.0.0.1:0", Watts: watts, CipherSuites: []byte{3, 9}},
		"wrong address": {Listen: "127.0.0.1:x", Watts: watts},
	} {
		if b, err := bmc.Start(cfg); err == nil {
			b.Close()
			t.Errorf("%s: started", name)
		}
	}
}

// Whatever a wire does to the datagrams, the meter shows the true power or none.
func TestDamagedDatagrams(t *testing.T) {
	t.Parallel()
	var wire string
	r := newBench(t, nil, func(c *ipmi.Config) {
		c.Timeout = 200 * time.Millisecond
		wire = damage(t, c.Address)
		c.Address = wire
	})
	seen, deadline := map[uint64]bool{}, time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := int64(0); len(seen) < 8 && time.Now().Before(deadline); i++ {
		<-tick.C
		r.watts.Store(140 + i/20%2*10)
		got := r.meter.Latest()
		if got.Known && got.Power != 140*units.Watt && got.Power != 143*units.Watt && got.Power != 150*units.Watt {
			t.Fatalf("a damaged answer counts: %+v", got)
		}
		if got.Known {
			seen[got.Serial] = true
		}
	}
	if len(seen) == 0 {
		t.Errorf("nothing came through: %+v", r.meter.Latest())
	}
}

// damage is a UDP wire to the BMC that changes a byte of one datagram in five.
func damage(t *testing.T, to string) string {
	t.Helper()
	var lc net.ListenConfig
	near := testkit.Need(lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0"))(t)
	var d net.Dialer
	far := testkit.Need(d.DialContext(t.Context(), "udp", to))(t)
	var client atomic.Pointer[net.Addr]
	spoil := func(rng *rand.Rand, b []byte) []byte {
		if rng.IntN(5) == 0 && len(b) > 0 {
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
			b = b[:len(b)-rng.IntN(2)*rng.IntN(len(b))]
		}
		return b
	}
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		rng, buf := rand.New(rand.NewPCG(1, 2)), make([]byte, 2048)
		for {
			n, from, err := near.ReadFrom(buf)
			if err != nil {
				return
			}
			client.Store(&from)
			_, _ = far.Write(spoil(rng, buf[:n])) // a wire may lose it
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		rng, buf := rand.New(rand.NewPCG(3, 4)), make([]byte, 2048)
		for {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			if to := client.Load(); to != nil {
				_, _ = near.WriteTo(spoil(rng, buf[:n]), *to)
			}
		}
	}()
	t.Cleanup(func() {
		_, _ = near.Close(), far.Close()
		<-done
		<-done
	})
	return near.LocalAddr().String()
}
