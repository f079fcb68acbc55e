// Claims: P4: limits that read back as written and do not hold the node at its cap are
// reported as what the node draws, with a health item that says where the watts go, by
// counters and by a BMC alone; both end once the limits bind again; a reading is counted once.
package agent

import (
	"strings"
	"testing"
	"time"

	"headroom/capping"
	"headroom/ipmi"
	"headroom/lease"
	"headroom/units"
)

const unboundCode = "limit-unbound"

func TestUnboundLimitIsReported(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.granted = 120 * units.Watt
	r := run(t, l.config(c.addr))
	waitFor(t, "the lease is acknowledged", c.acknowledged)
	if err := l.node.Fault("unbound"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "what it draws is reported", func() bool {
		b := c.last()
		return hasItem(b, unboundCode) && b.GetHolding().GetEffectiveUw() > 220_000_000
	})
	if b := c.last(); b.GetHolding().GetCapUw() != 120_000_000 {
		t.Errorf("holding %v, want the cap of the lease", b.GetHolding())
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// passes turns the law for d of virtual time, each turn with what is measured then.
func (n *node) passes(from, d time.Duration, measured func(now lease.Instant)) time.Duration {
	for end := from + d; from < end; {
		from += period
		now := lease.Instant{Boot: from, Awake: from}
		measured(now)
		n.control.decide(now)
		n.exchange.carryOut(n.control.apply())
	}
	n.control.watch()
	return from
}

func TestUnboundLimitByCounters(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := loopless(t, l.config("127.0.0.1:1"))
	now, pkg := instant().Boot, units.Power(0)
	measured := func(lease.Instant) {
		n.meter.Sample = capping.Sample{
			Package: capping.Reading{Power: pkg, Known: true}, DRAM: capping.Reading{Power: 6 * units.Watt, Known: true}, Elapsed: period,
		}
	}
	at := func(what string, p units.Power, d time.Duration, effective units.Power, text string) {
		t.Helper()
		pkg = p
		now = n.passes(now, d, measured)
		i, on := n.health.Get(unboundCode)
		if got := units.Power(n.holdingNow().GetEffectiveUw()); got/units.Watt != effective/units.Watt || on != (text != "") || !strings.Contains(i.Text, text) {
			t.Errorf("%s: effective %v, item %+v; want %v and %q", what, got, i, effective, text)
		}
	}
	cap := n.cfg.Power.FailSafe
	draws := n.meter.Model.Wall(100*units.Watt, 6*units.Watt) + units.Watt // rounded up
	at("within the limits", 30*units.Watt, 10*time.Second, cap, "")
	at("above the limits", 100*units.Watt, 9*time.Second, draws, "above their limits of")
	at("bound again", 30*units.Watt, 20*time.Second, draws, "within their limits of")
	at("bound for long", 30*units.Watt, 15*time.Second, cap, "")
}

func TestUnboundLimitByBMC(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	n := loopless(t, l.config("127.0.0.1:1"))
	n.meter.BeginLearning()
	began := instant().Boot
	now, watts := began, 90*units.Watt
	serial := uint64(0)
	measured := func(at lease.Instant) { // the BMC updates every 2 s
		if s := uint64((at.Boot-began)/(2*time.Second)) + 1; s != serial {
			serial = s
			n.meter.LearnFrom(at.Boot, ipmi.Reading{Power: watts, Known: true, State: ipmi.StateOK, Serial: s, ChangedAt: at.Boot, AskedAt: at.Boot})
		}
		n.meter.Look(at)
	}
	now = n.passes(now, 20*time.Second, measured)
	if shown(n, unboundCode) {
		t.Error("shown while it draws less than its cap")
	}
	watts = 180 * units.Watt
	now = n.passes(now, 3*time.Second, measured) // one reading, seen in many turns
	if shown(n, unboundCode) {
		t.Error("one reading, which may be of any time, is no proof")
	}
	now = n.passes(now, 7*time.Second, measured)
	if got := units.Power(n.holdingNow().GetEffectiveUw()); got != 180*units.Watt || !shown(n, unboundCode) {
		t.Errorf("effective %v, items %v", got, n.health.List())
	}
	watts = 90 * units.Watt
	if n.passes(now, 40*time.Second, measured); shown(n, unboundCode) {
		t.Errorf("items %v", n.health.List())
	}
}
