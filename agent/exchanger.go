package agent

import (
	"context"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"time"

	"headroom/capping"
	"headroom/ipmi"
	"headroom/lease"
	"headroom/units"
)

// Exchanger is powerd's exchange with the coordinators with no machine below it:
// the same streams, heartbeats, leases and memory, for whoever measures what a
// thousand nodes cost the coordinators. Its hardware takes a cap at once and draws
// what its load asks for, up to the cap; its state directory is memory. It looks at
// its load once a second, and never stops but by its context.
type Exchanger struct {
	node  *node
	watch ExchangeWatch
	began time.Duration
	told  Standing

	sentAt   [exchangesKept]time.Duration
	sent     uint64 // newest heartbeat whose sending was noted
	answered uint64 // newest heartbeat that a lease has answered
}

// exchangesKept is how many heartbeats may wait for their answer; it is longer than a lease.
const exchangesKept = 64

// Standing is what an exchanger holds.
type Standing struct {
	// Cap in force at its hardware; the fail-safe cap without a lease.
	Cap units.Power
	// Held says that it is held by a lease.
	Held bool
	// Stamp of the newest grant that was carried out whole.
	Stamp lease.Stamp
	// Why no lease is held; meaningless while Held.
	Why lease.Ended
}

// ExchangeWatch sees what an exchanger does. The functions run on its goroutine and
// must not wait; nil ones are not called.
type ExchangeWatch struct {
	// Busy is the load's use of the node's processors, 0 to 1, at a time since Run began.
	Busy func(since time.Duration) float64
	// Stands is told when the standing has changed.
	Stands func(s Standing)
	// Answered is told, for every heartbeat, how long after its sending a lease came that answers it.
	Answered func(took time.Duration)
}

// NewExchanger is an exchanger with the node, domain, power and coordinators of cfg.
// Its machine's and boot's ids are made of the node's name.
func NewExchanger(cfg Config, watch ExchangeWatch) *Exchanger {
	n := newNode(cfg, slog.New(slog.DiscardHandler), forgetful{})
	n.cfg.Enforce, n.mode = true, holding
	n.id = identity{machine: "machine-" + cfg.Node, boot: "boot-" + cfg.Node, process: rand.Uint64() | 1}
	n.machine = &machine{instant: true, ladder: capping.Ladder{Use: capping.RungRAPL}}
	n.lawCfg = cfg.law(n.machine)
	n.lease = lease.NewNode(n.id.process, lease.Memory{FailSafe: cfg.Power.FailSafe}, instant())
	return &Exchanger{node: n, watch: watch}
}

// Run exchanges until ctx ends, beginning at a random part of a heartbeat's second.
func (x *Exchanger) Run(ctx context.Context) {
	rest(ctx, rand.N(beat))
	n := x.node
	n.clerk = startClerk(n.disk)
	defer n.clerk.stop()
	inner, cancel := context.WithCancel(ctx)
	defer n.endServers(cancel)
	defer n.expiry.Stop()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	x.began = instant().Boot
	n.began = x.began
	x.second(inner)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			x.second(inner)
		case <-n.expiry.C:
			n.turn(instant())
		case e := <-n.events:
			x.take(e)
		case r := <-n.peersRead:
			n.peersTold(inner, r)
		case e := <-n.clerk.done:
			n.stored(e)
		}
		x.tell()
	}
}

// second is what happens once a second: a look at the load, a turn of the loop, a heartbeat.
func (x *Exchanger) second(ctx context.Context) {
	n, now := x.node, instant()
	x.draw(now.Boot)
	n.turn(now)
	n.heartbeat()
	n.reconcile(ctx)
}

// draw has the load draw what it asks for, up to the cap in force, and the node's
// meter see that.
func (x *Exchanger) draw(now time.Duration) {
	if x.watch.Busy == nil {
		return
	}
	n, p := x.node, x.node.cfg.Power
	n.busy, n.busyOK = x.watch.Busy(now-x.began), true
	wants := p.Floor + units.Power(n.busy*float64(p.Max-p.Floor))
	drawn := wants
	if inForce := n.caps.applied; inForce > 0 {
		drawn = min(wants, inForce)
	}
	n.bmc.reading = ipmi.Reading{Power: drawn, Known: true, State: ipmi.StateOK, Serial: n.bmc.reading.Serial + 1}
}

// take is one message of the streams; a refusal shows in the standing, and the
// exchanger goes on.
func (x *Exchanger) take(e linkEvent) {
	_ = x.node.take(e)
	if l := e.msg.GetLease(); l != nil && l.GetProcessId() == x.node.id.process {
		x.count(min(l.GetHeartbeat(), x.sent))
	}
}

// count times the heartbeats up to this one, which a lease has just answered.
func (x *Exchanger) count(upTo uint64) {
	now := instant().Boot
	for x.answered < upTo {
		x.answered++
		if x.watch.Answered != nil && x.sent-x.answered < exchangesKept {
			x.watch.Answered(now - x.sentAt[x.answered%exchangesKept])
		}
	}
}

// tell notes the heartbeats that were sent, and says what has changed.
func (x *Exchanger) tell() {
	n := x.node
	for now := instant().Boot; x.sent < n.lease.Beats(); {
		x.sent++
		x.sentAt[x.sent%exchangesKept] = now
	}
	_, state := n.lease.Cap()
	s := Standing{Cap: n.caps.applied, Held: state == lease.Held, Stamp: n.lease.Applied(), Why: n.lease.Why()}
	if s != x.told && x.watch.Stands != nil {
		x.watch.Stands(s)
	}
	x.told = s
}

// forgetful is a state directory that survives nothing.
type forgetful struct{}

// Read implements disk.
func (forgetful) Read(string) ([]byte, error) { return nil, fs.ErrNotExist }

// Durable implements disk.
func (forgetful) Durable(string, []byte) error { return nil }

// Replace implements disk.
func (forgetful) Replace(string, []byte) error { return nil }

// Remove implements disk.
func (forgetful) Remove(string) error { return nil }
