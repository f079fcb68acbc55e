// Package bmc is an in-process BMC for emulated nodes and for tests.
//
// The one idea: it includes the faults of real BMCs. It serves IPMI over LAN (RMCP+, cipher suites
// 3 and 17), and to a virtual machine as its own BMC, with DCMI power commands and watts sensors.
// It takes its watts from a function. On command, while it runs, it lags, freezes, reports wrong
// values, hangs, forgets its sessions or loses DCMI.
//
// An active power limit is visible to the plant, and so is the harm that it would do: with the
// exception action "hard power off", the BMC reports that it would have switched the node off.
//
// The protocol is go-ipmi's; this package adds the missing commands and the faults. It binds only
// to the given address, uses only UDP, and never touches the machine.
package bmc

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	gobmc "github.com/bougou/go-ipmi/pkg/bmc"

	"headroom/units"
)

// Config of an emulated BMC.
type Config struct {
	// Listen is the UDP address, e.g. 127.0.0.1:0.
	Listen string
	// User and Password of its only account.
	User, Password string
	// Privilege of the account; 0: administrator. 2 is user, 3 operator.
	Privilege byte
	// CipherSuites it accepts; empty: 3 and 17.
	CipherSuites []byte
	// Watts is the node's power at the wall now. It is called every 100 ms from a
	// goroutine of the BMC.
	Watts func() units.Power
	// Update is the update interval of the reading; 0: 1 s.
	Update time.Duration
	// Supplies is the number of power supplies with an input sensor each, which share the
	// power equally; 0: one sensor of the system board instead.
	Supplies int
	// Action is the exception action that a limit has until it is set: 0x01, hard power
	// off, when it is left nil, as on some real BMCs.
	Action *byte
	// VM is where virtual machines connect that have this BMC as their own (QEMU's
	// ipmi-bmc-extern), on loopback or a unix socket, one at a time; nil: nowhere. Close
	// closes it.
	VM net.Listener
}

const (
	sampleEvery = 100 * time.Millisecond
	lanChannel  = 1
	powerOff    = 0x01
)

// BMC is a running BMC. Its methods may be called from any goroutine.
type BMC struct {
	cfg      Config
	store    store
	socket   *net.UDPConn
	machines chan net.Conn
	stop     context.CancelFunc
	wait     sync.WaitGroup

	mu      sync.Mutex
	booted  *boot
	closed  bool
	fault   Fault
	meter   meter
	limit   limit
	enables byte // BMC global enables
}

// Start binds the address and serves until Close.
func Start(cfg Config) (*BMC, error) {
	cfg.Update = cmp.Or(cfg.Update, time.Second)
	kept, err := newStore(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	at, err := net.ResolveUDPAddr("udp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("bmc: %w", err)
	}
	socket, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, fmt.Errorf("bmc: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &BMC{
		cfg: cfg, store: kept, socket: socket, machines: make(chan net.Conn), stop: stop, limit: newLimit(cfg.Action),
	}
	b.sample(time.Now())
	b.boot()
	b.wait.Go(b.receive)
	b.wait.Go(func() { b.measure(ctx) })
	if cfg.VM != nil {
		b.wait.Go(func() { b.connect(ctx) })
	}
	return b, nil
}

// Addr returns the BMC's listen address, host:port.
func (b *BMC) Addr() string { return b.socket.LocalAddr().String() }

// Close ends the BMC and its goroutines.
func (b *BMC) Close() {
	b.stop()
	_ = b.socket.Close() // ends receive; nothing is lost
	if b.cfg.VM != nil {
		_ = b.cfg.VM.Close() // ends connect
	}
	b.mu.Lock()
	b.closed = true
	b.booted.end()
	b.mu.Unlock()
	b.wait.Wait()
}

// SetFault replaces the fault; the zero Fault heals the BMC.
func (b *BMC) SetFault(f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

// Restart forgets all sessions and the statistics, as a restarted BMC does, and hangs up on
// a virtual machine; the limit stays.
func (b *BMC) Restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.booted.end()
	b.meter.forget()
	b.boot()
}

// Limit is the power limit in force, and whether there is one.
func (b *BMC) Limit() (units.Power, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return units.Power(b.limit.watts) * units.Watt, b.limit.active
}

// Action is the exception action stored now.
func (b *BMC) Action() byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit.action
}

// SetPower switches the emulated machine on or off, as its BMC shows it.
func (b *BMC) SetPower(on bool) error {
	return b.store.records.Chassis().SetPower(context.Background(), on)
}

// measure samples the watts until the BMC is closed.
func (b *BMC) measure(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			b.sample(now)
		}
	}
}

func (b *BMC) sample(now time.Time) {
	watts := b.cfg.Watts()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.meter.add(now, watts, b.cfg.Update, b.fault.Freeze)
	b.limit.watch(now, watts)
}

// privilege of the account.
func (c Config) privilege() gobmc.PrivilegeLevel {
	if c.Privilege == 0 {
		return gobmc.PrivilegeLevelAdministrator
	}
	return gobmc.PrivilegeLevel(c.Privilege)
}
