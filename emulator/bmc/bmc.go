// Package bmc is a BMC made in this process, for emulated nodes and for tests.
//
// The one idea: what a real BMC does wrong is part of it. It serves IPMI over LAN
// (RMCP+, cipher suites 3 and 17) with DCMI power commands and watts sensors, takes its
// watts from a function, and lags, freezes, lies, hangs, forgets its sessions or loses
// DCMI on command, while it runs.
//
// An active power limit is visible to the plant, and so is the harm it would do: with
// exception action "hard power off" the BMC says that it would have switched the node off.
//
// It binds where it is told and never anything but UDP; it never touches the machine.
package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

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
	// Update is how often the reading is renewed; 0: 1 s.
	Update time.Duration
	// Supplies is the number of power supplies with an input sensor each, which share the
	// power equally; 0: one sensor of the system board instead. At most 4.
	Supplies int
	// Action is the exception action that a limit has until it is set: 0x01, hard power
	// off, when it is left nil, as on some real BMCs.
	Action *byte
}

const (
	sampleEvery   = 100 * time.Millisecond
	history       = time.Minute
	defaultUpdate = time.Second
	maxSupplies   = 4
	lanChannel    = 1
	powerOff      = 0x01
)

// BMC is a running BMC. Its methods may be called from any goroutine.
type BMC struct {
	cfg    Config
	socket *net.UDPConn
	stop   context.CancelFunc
	wait   sync.WaitGroup

	mu          sync.Mutex
	fault       Fault
	meter       meter
	limit       limit
	reservation uint16
	sessions    map[uint32]*session
}

var errConfig = errors.New("bmc: Listen, Watts and at most 4 supplies are wanted")

// Start binds the address and serves until Close.
func Start(cfg Config) (*BMC, error) {
	if cfg.Listen == "" || cfg.Watts == nil || cfg.Supplies < 0 || cfg.Supplies > maxSupplies {
		return nil, errConfig
	}
	if cfg.Update == 0 {
		cfg.Update = defaultUpdate
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
		cfg: cfg, socket: socket, stop: stop, limit: newLimit(cfg.Action), sessions: map[uint32]*session{},
	}
	b.sample(time.Now())
	b.wait.Go(func() { b.receive(ctx) })
	b.wait.Go(func() { b.measure(ctx) })
	return b, nil
}

// Addr is where the BMC listens, host:port.
func (b *BMC) Addr() string { return b.socket.LocalAddr().String() }

// Close ends the BMC and its goroutines.
func (b *BMC) Close() {
	b.stop()
	_ = b.socket.Close() // ends receive; nothing is lost
	b.wait.Wait()
}

// SetFault replaces the fault; the zero Fault heals the BMC.
func (b *BMC) SetFault(f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.Freeze && !b.fault.Freeze {
		b.meter.freeze(time.Now(), b.updateOf(f), f.Delay)
	}
	b.fault = f
}

// Restart forgets all sessions and the statistics, as a restarted BMC does; the limit stays.
func (b *BMC) Restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
	b.meter.forget()
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

// PoweredOff tells that a real BMC would have switched the node off: a limit with
// exception action "hard power off" was active and exceeded for its correction time.
func (b *BMC) PoweredOff() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit.fired
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
	b.meter.add(now, watts)
	b.limit.watch(now, watts)
}

// updateOf is how often the reading is renewed under f.
func (b *BMC) updateOf(f Fault) time.Duration {
	if f.Update > 0 {
		return f.Update
	}
	return b.cfg.Update
}
