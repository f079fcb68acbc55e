// Claims: what is reached through another program is saved before it is written and
// put back after; with the agent dead it is said what is not; other writers are
// found by name; a link that is cut is said before the lease ends; the connection to
// systemd ends with the node.
package agent

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"

	"headroom/agent/config"
	"headroom/agent/links"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/capping"
	"headroom/lease"
	"headroom/systemd"
	"headroom/units"
)

// fakeBus is a systemd with slices and units.
type fakeBus struct {
	mu     sync.Mutex
	quotas map[string]uint64
	units  []systemd.Unit
	hang   bool
	dialed int
	open   int
}

// fakeConn is a connection to it: like the real one, it runs until it is closed.
type fakeConn struct {
	*fakeBus

	closed chan struct{}
}

func (b *fakeBus) dial(context.Context) (systemd.Bus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dialed, b.open = b.dialed+1, b.open+1
	c := &fakeConn{b, make(chan struct{})}
	go func() { <-c.closed }()
	return c, nil
}

func (c *fakeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	close(c.closed)
	return nil
}

// Units are those that match, by name alone.
func (b *fakeBus) Units(ctx context.Context, _, patterns []string) ([]systemd.Unit, error) {
	b.mu.Lock()
	hang, all := b.hang, b.units
	b.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var found []systemd.Unit
	for _, u := range all {
		for _, p := range patterns {
			if p == u.Name {
				found = append(found, u)
			}
		}
	}
	return found, nil
}

func (b *fakeBus) Group(context.Context, string) (string, error) { return "", nil }

func (b *fakeBus) Quota(_ context.Context, slice string) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.quotas[slice], nil
}

func (b *fakeBus) SetQuota(_ context.Context, slice string, usec uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quotas[slice] = usec
	return nil
}

func (b *fakeBus) quota(slice string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.quotas[slice]
}

// turnRemote is one turn with what the other goroutines have to tell.
func (n *node) turnRemote() {
	for range 4 {
		select {
		case e := <-n.records.Writer.Done():
			n.stored(e)
		case r := <-n.remote.Reports:
			n.remoteTold(r, instant().Boot)
		default:
		}
	}
	n.turn(instant())
}

// The last rung: below the lowest frequency the slices give way, saved first, and
// everything goes back.
func TestSlicesGiveWayBelowTheLowestFrequency(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	cfg := l.config("127.0.0.1:1")
	cfg.Bandwidth.Slices = []string{"batch.slice"}
	n, bus := l.loopRemote(t, cfg)
	waitFor(t, "the slice is found", func() bool { n.turnRemote(); return n.slices.info().State == capping.RungReady })
	waitFor(t, "the slice is bounded", func() bool {
		n.turnRemote()
		n.machine.Freq.Actions.Rail = capping.AtFloor
		for range 8 { // at each turn, since a turn adds what the node draws
			n.meter.Mean.Add(capping.Reading{Power: 150 * units.Watt, Known: true}, period)
		}
		n.slices.step()
		return bus.quota("batch.slice") != math.MaxUint64
	})
	j, err := originals.Load(statedir.OS{Dir: cfg.StateDir})
	if err != nil || j == nil || !saves(j, "systemd:batch.slice") {
		t.Errorf("journal %+v, %v: the slice was bounded and is not saved", j, err)
	}
	waitFor(t, "status shows it", func() bool {
		n.turnRemote()
		rows := n.slices.rows()
		return len(rows) == 1 && rows[0].EffectiveCpus != nil && rows[0].WrittenCpus != nil && rows[0].RequestedCpus != nil
	})
	if out := originals.PutBack(n.files, n.records.Journal, n.records.Trail, originals.FilesOnly); out.Failed != 1 || !strings.Contains(strings.Join(out.Kept, " "), "batch.slice") {
		t.Errorf("without the agent: %+v, want the slice named as not put back", out)
	}
	if out := n.release.putBack(); out.Failed != 0 || bus.quota("batch.slice") != math.MaxUint64 {
		t.Errorf("%+v, quota %d", out, bus.quota("batch.slice"))
	}
}

func saves(j *originals.Journal, path string) bool {
	for _, c := range j.Controls {
		if c.Path == path {
			return true
		}
	}
	return false
}

// loopRemote is a node whose loop the test turns, with a systemd beside it.
func (l *lab) loopRemote(t *testing.T, cfg config.Config) (*node, *fakeBus) {
	t.Helper()
	bus := &fakeBus{
		quotas: map[string]uint64{"batch.slice": math.MaxUint64},
		units:  []systemd.Unit{{Name: "thermald.service", Active: "active"}},
	}
	n := loopless(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	n.remote.Open(n.root, bus.dial)
	n.remote.Start(ctx, n.cfg, n.meter.BMC, &n.servers)
	t.Cleanup(func() {
		cancel()
		n.servers.Wait()
	})
	return n, bus
}

// Another writer that runs here is found by name, and named again when it writes.
func TestRivalIsNamed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n, _ := l.loopRemote(t, l.config("127.0.0.1:1"))
	waitFor(t, "thermald is found", func() bool { n.turnRemote(); return shown(n, "rival") })
	if s := n.report.state(instant()); len(s.GetRivals()) != 1 || s.GetRivals()[0] != "thermald.service" {
		t.Errorf("rivals %v", s.GetRivals())
	}
	n.give(t, 1, 120*units.Watt, lease.Sprint{})
	waitFor(t, "the cap is held", func() bool {
		n.turnRemote()
		return n.control.caps.applied == 120*units.Watt && !n.control.caps.stepped
	})
	l.write("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "150000000")
	n.turnRemote()
	if i, _ := n.health.Get("limit-drift"); !strings.Contains(i.Text, "thermald") {
		t.Errorf("drift says %q", i.Text)
	}
}

// A bus that hangs delays nobody: the loop turns, and the originals go back.
func TestHungBusDelaysNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n, bus := l.loopRemote(t, l.config("127.0.0.1:1"))
	bus.mu.Lock()
	bus.hang = true
	bus.mu.Unlock()
	before := n.tally.counters.steps
	for range 20 {
		n.tally.turn(instant().Boot, 0)
		n.turnRemote()
	}
	if n.tally.counters.steps != before+20 || !failSafeLong(l.long()) {
		t.Errorf("%d turns, limit %v", n.tally.counters.steps-before, l.long())
	}
}

// Whatever asked systemd has ended when the node has, with the connection: one that
// was put back through after that too.
func TestConnectionToSystemdEndsWithTheNode(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	cfg := l.config(c.addr)
	cfg.Bandwidth.Slices = []string{"batch.slice"}
	file, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	bus := &fakeBus{quotas: map[string]uint64{"batch.slice": math.MaxUint64}}
	n := newNode(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	n.lock, n.control.began, n.dial = file, instant().Boot, bus.dial
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	waitFor(t, "systemd is asked", func() bool {
		bus.mu.Lock()
		defer bus.mu.Unlock()
		return bus.dialed > 0
	})
	waitFor(t, "a lease is held", c.acknowledged)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if bus.mu.Lock(); bus.open != 0 {
		t.Errorf("%d of %d connections to systemd are still open", bus.open, bus.dialed)
	}
	bus.mu.Unlock()
}

// A cut is noticed by the link, long before the lease ends, and said.
func TestCutOffIsSaid(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := loopless(t, l.config("127.0.0.1:1"))
	n.give(t, 1, 120*units.Watt, lease.Sprint{})
	n.network.State = links.State{}
	n.network.CutOff = n.network.State.CutOff()
	n.watchCut(instant())
	if i, _ := n.health.Get("cut-off"); !strings.Contains(i.Text, "lease expires within") || !strings.Contains(n.report.summary(), "no link to a coordinator") || !n.report.state(instant()).GetCutOff() {
		t.Errorf("item %+v, words %q", i, n.report.summary())
	}
	n.network.CutOff = false
	n.watchCut(instant())
	if shown(n, "cut-off") {
		t.Error("the item does not clear itself")
	}
}

// A node that loses its power of holding says why in status, health and the words
// for the service manager alike.
func TestDegradedStatesAreSaidAlike(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap", "sys/devices/system/cpu/cpufreq")
	n := loopless(t, l.config("127.0.0.1:1"))
	s := n.report.state(instant())
	if !hasStatusItem(s, noRungCode) || !strings.Contains(n.report.summary(), "cannot enforce a cap") || s.GetRung() != rungNone {
		t.Errorf("health %v, words %q, rung %q", s.GetHealth(), n.report.summary(), s.GetRung())
	}
	if n.exchange.hello().GetControlled() {
		t.Error("it says that it is controlled")
	}
}
