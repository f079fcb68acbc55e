// Claims: a start writes the fail-safe cap before it talks to anybody; a grant is
// carried out and acknowledged with what reads back, after its stamp is on disk;
// without answers the node falls to its fail-safe cap by itself; originals go back
// after a committed release and not before; another writer's change is corrected
// and reported, and never restored over.
package agent

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/records"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/units"
)

// failSafeLong is about the package limit that goes with the fail-safe cap of the lab.
func failSafeLong(l units.Power) bool { return l > 40*units.Watt && l < 66*units.Watt }

func TestHoldsWhatItIsGranted(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	original := l.controls()
	r := run(t, l.config(c.addr))
	waitFor(t, "the first lease is acknowledged", func() bool {
		h := c.last().GetHolding()
		return h.GetState() == headroomv1.LeaseState_LEASE_STATE_HELD && h.GetApplied().GetSeq() == 1
	})
	if hello := c.lastHello(); !hello.GetControlled() || hello.GetRung() != "rapl" || hello.GetMachineId() == "" || hello.GetBootId() == "" {
		t.Errorf("hello %v", hello)
	}
	seq := c.grant(t, 120*units.Watt)
	waitFor(t, "the lower cap is acknowledged", func() bool { return c.last().GetHolding().GetApplied().GetSeq() == seq })
	h := c.last()
	if h.GetHolding().GetCapUw() != 120_000_000 || h.GetHolding().EffectiveUw == nil || h.GetHolding().GetEffectiveUw() != 120_000_000 {
		t.Errorf("acknowledged %v, want cap and effective cap of 120 W", h.GetHolding())
	}
	var m lease.Memory
	data, err := os.ReadFile(l.state(statedir.MemoryFile))
	if err != nil || json.Unmarshal(data, &m) != nil || m.Highest.Seq < seq {
		t.Errorf("state.json holds %s, %v: an acknowledged stamp must be in it", data, err)
	}
	waitFor(t, "the wall power is at the cap", func() bool {
		p := c.last().PowerUw
		return p != nil && *p > 110_000_000 && *p <= 121_000_000
	})
	waitFor(t, "held.json tells the cap", func() bool { return l.held().CapW == 120 })
	if err := r.stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if c.released != 1 {
		t.Errorf("asked for %d releases at stop, want 1", c.released)
	}
	waitFor(t, "every original is back", func() bool { return equal(l.controls(), original) })
	if _, err := os.Stat(l.state(statedir.JournalFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
	if h := l.held(); h.State != records.StateReleased || h.CapW != 245 {
		t.Errorf("held.json after the release: %+v", h)
	}
}

// Lesson 15: a cap ends by itself, and what follows is lower.
func TestLeaseEndsByItself(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.duration = 1500 * time.Millisecond
	run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	c.set(func() { c.silent = true })
	waitFor(t, "the fail-safe cap is written", func() bool { return failSafeLong(l.long()) })
	waitFor(t, "it is told", func() bool {
		h := c.last()
		return h.GetHolding().GetState() == headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE && hasItem(h, "lease-expired")
	})
	c.set(func() { c.silent = false })
	waitFor(t, "the lease is back", func() bool { return l.long() > 70*units.Watt })
}

func TestRefusedReleaseKeepsTheFailSafeCap(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	original := l.controls()
	c.refuse = rpc.Refuse(connect.CodeFailedPrecondition, "infeasible", cli.ExitRefused, "rated 245.0 W do not fit", "lower others")
	r := run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	_, err := Restore(t.Context(), l.config(c.addr), RestoreOptions{Change: wish()})
	var refused *cli.Error
	if !errors.As(err, &refused) || refused.Exit != cli.ExitRefused || refused.Hint == "" {
		t.Fatalf("restore with the agent running: %v", err)
	}
	if err := r.stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if !failSafeLong(l.long()) {
		t.Errorf("limit %v after a refused release, want the fail-safe cap's", l.long())
	}
	if _, err = Restore(t.Context(), l.config(c.addr), RestoreOptions{Change: wish()}); !errors.As(err, &refused) || refused.Exit != cli.ExitRefused {
		t.Errorf("restore with the agent dead: %v, want exit 6", err)
	}
	c.stop()
	if _, err = Restore(t.Context(), l.config(c.addr), RestoreOptions{Change: wish()}); !errors.As(err, &refused) || refused.Exit != cli.ExitRefused {
		t.Errorf("restore without a leader: %v, want exit 6", err)
	}
	out, err := Restore(t.Context(), l.config(c.addr), RestoreOptions{Force: true})
	if err != nil || len(out.Restored) != 5 || !equal(l.controls(), original) {
		t.Errorf("forced: %+v, %v, controls %v, want %v", out, err, l.controls(), original)
	}
}

func TestRestoreWithTheAgentRunning(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	original := l.controls()
	run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	out, err := Restore(t.Context(), l.config(c.addr), RestoreOptions{Change: wish()})
	if err != nil || len(out.Restored) != 5 || len(out.Kept) != 0 || !equal(l.controls(), original) {
		t.Fatalf("%+v, %v, controls %v", out, err, l.controls())
	}
	waitFor(t, "the node says that it is not controlled", func() bool { return !c.lastHello().GetControlled() })
	waitFor(t, "it only observes", func() bool {
		return c.last().GetHolding().GetState() == headroomv1.LeaseState_LEASE_STATE_OBSERVING
	})
	if !equal(l.controls(), original) {
		t.Errorf("controls %v were written after the release", l.controls())
	}
}

// Lesson 19: a limit that was changed is put right without anybody's doing, and told.
func TestAnotherWriterIsCorrectedAndReported(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	run(t, l.config(c.addr))
	c.grant(t, 120*units.Watt)
	waitFor(t, "the cap is held", func() bool { return c.last().GetHolding().GetCapUw() == 120_000_000 && l.long() < 80*units.Watt })
	if err := os.WriteFile(l.zone("constraint_0_power_limit_uw"), []byte("150000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "powerd writes its own limit again", func() bool { return l.long() < 80*units.Watt })
	waitFor(t, "the excess is reported once", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, b := range c.beats {
			if b.GetHolding().GetEffectiveUw() > 190_000_000 && hasItem(b, "limit-drift") {
				return true
			}
		}
		return false
	})
}

// Lesson 14: what another program wrote since is left alone and named.
func TestAnotherWritersChangeIsNotRestoredOver(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.refuse = errors.New("not now")
	r := run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	_ = r.stop()
	if err := os.WriteFile(l.zone("constraint_0_power_limit_uw"), []byte("77000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := Restore(t.Context(), l.config(c.addr), RestoreOptions{Force: true})
	if err != nil || len(out.Restored) != 4 || len(out.Kept) != 1 || !strings.Contains(out.Kept[0], "77.0 W") {
		t.Fatalf("%+v, %v", out, err)
	}
	if l.long() != 77*units.Watt {
		t.Errorf("limit %v: another writer's change was restored over", l.long())
	}
}

func TestAloneItRestoresByItself(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	original := l.controls()
	r := run(t, l.config())
	waitFor(t, "the fail-safe cap is written", func() bool { return failSafeLong(l.long()) })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if !equal(l.controls(), original) {
		t.Errorf("controls %v, want %v", l.controls(), original)
	}
}

func TestNameOfAnotherMachine(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.taken = true
	original := l.controls()
	cfg := l.config(c.addr)
	l.forget()
	r := run(t, cfg)
	err := <-r.ended
	r.ended <- err
	var refused *cli.Error
	if !errors.As(err, &refused) || refused.Exit != cli.ExitConflict || refused.Hint == "" {
		t.Errorf("ended with %v, want exit 5", err)
	}
	if !equal(l.controls(), original) {
		t.Errorf("controls %v, want %v", l.controls(), original)
	}
}

// Lesson 15: a powerd that lost its state starts at the least it can hold: a
// fail-safe cap that was configured since may be more than the coordinators charge it
// for.
func TestLostStateStartsAtTheLowestCap(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.silent = true // it is granted nothing
	cfg := l.config(c.addr)
	l.forget()
	run(t, cfg)
	waitFor(t, "it reports", func() bool { h := c.last().GetHolding(); return h != nil && h.EffectiveUw != nil })
	h := c.last().GetHolding()
	if h.GetState() != headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE || h.GetCapUw() != int64(cfg.Power.Floor) {
		t.Errorf("holding %v, want the floor of %v", h, cfg.Power.Floor)
	}
	if fail := h.GetFailSafeUw(); fail != int64(cfg.Power.Floor) {
		t.Errorf("it counts on a fail-safe cap of %d uW, want the floor", fail)
	}
}

func TestObserveOnlyNeverWrites(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	original := l.controls()
	cfg := l.config(c.addr)
	cfg.Enforce = false
	r := run(t, cfg)
	waitFor(t, "it reports", func() bool { return c.last().PowerUw != nil })
	if h := c.last().GetHolding(); h.GetState() != headroomv1.LeaseState_LEASE_STATE_OBSERVING || c.lastHello().GetControlled() {
		t.Errorf("holding %v", h)
	}
	_ = r.stop()
	if !equal(l.controls(), original) {
		t.Errorf("controls %v, want %v", l.controls(), original)
	}
	if _, err := os.Stat(l.state(statedir.JournalFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a journal was made: %v", err)
	}
}

// enforce: false after an earlier powerd that enforced: the limits stay until the
// leader releases the node, then the originals go back.
func TestSwitchingToObserveReleasesFirst(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	original := l.controls()
	c.refuse = errors.New("not now")
	r := run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	_ = r.stop()
	c.set(func() { c.refuse = nil })
	cfg := l.config(c.addr)
	cfg.Enforce = false
	run(t, cfg)
	waitFor(t, "the originals are back", func() bool { return equal(l.controls(), original) })
	waitFor(t, "it only observes", func() bool { return !c.lastHello().GetControlled() })
}

func TestSecondPowerdIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	run(t, l.config())
	waitFor(t, "the first one runs", func() bool { return failSafeLong(l.long()) })
	err := Run(t.Context(), l.config(), testLog(t))
	var refused *cli.Error
	if !errors.As(err, &refused) || refused.Exit != cli.ExitConflict {
		t.Errorf("the second one ended with %v, want exit 5", err)
	}
}

// Two state directories do not make two machines: one process writes the controls, and
// others may look on.
func TestOneWriterForAMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config()
	r := run(t, cfg)
	waitFor(t, "the first one runs", func() bool { return failSafeLong(l.long()) })
	other := cfg
	other.StateDir = t.TempDir()
	err := Run(t.Context(), other, testLog(t))
	refused, ok := errors.AsType[*cli.Error](err)
	if !ok || refused.Exit != cli.ExitConflict || refused.Hint == "" {
		t.Errorf("the second one ended with %v, want exit 5", err)
	}
	other.Enforce = false
	n, err := start(other, testLog(t), statedir.OS{Dir: other.StateDir})
	if err != nil {
		t.Fatalf("one that only looks on: %v", err)
	}
	if err := n.close(); err != nil {
		t.Error(err)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	other.Enforce = true
	if n, err = start(other, testLog(t), statedir.OS{Dir: other.StateDir}); err != nil {
		t.Fatalf("once the first one is gone: %v", err)
	}
	n.release.putBack()
	if err := n.close(); err != nil {
		t.Error(err)
	}
}

func TestFindsTheNewLeader(t *testing.T) {
	t.Parallel()
	l, a, b := newLab(t), newCoordinator(t), newCoordinator(t)
	b.leads = false
	b.silent = true
	run(t, l.config(a.addr, b.addr))
	waitFor(t, "the first leader grants", a.acknowledged)
	a.stop()
	b.set(func() { b.silent, b.granted, b.seq = false, 110*units.Watt, 50 })
	waitFor(t, "heartbeats go to the other one too", func() bool { return b.last().GetHolding().GetApplied().GetSeq() == 50 })
}

// Without package limits and without cpufreq the node works as far as it can and says why.
func TestBareMachineObservesAndSaysWhy(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	l.remove("sys/class/powercap", "sys/devices/system/cpu/cpufreq")
	run(t, l.config(c.addr))
	waitFor(t, "it reports what it lacks", func() bool { return hasItem(c.last(), noRungCode) })
	hello := c.lastHello()
	if hello.GetControlled() || hello.GetRung() != rungNone {
		t.Errorf("hello %v, want uncontrolled on no rung", hello)
	}
	if h := c.last(); h.PowerUw != nil || h.GetHolding().EffectiveUw != nil {
		t.Errorf("heartbeat %v tells what cannot be known", h)
	}
}

func TestMissingTreeChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config()
	cfg.Root = t.TempDir()
	err := Run(t.Context(), cfg, testLog(t))
	var bad *cli.Error
	if !errors.As(err, &bad) || bad.Exit != cli.ExitUsage || bad.Hint == "" {
		t.Errorf("ended with %v, want exit 2 with a hint", err)
	}
}

func TestStatusOfARunningAgent(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	run(t, l.config(c.addr))
	var s *headroomv1.GetAgentStatusResponse
	waitFor(t, "status shows the lease", func() bool {
		s = l.status(t)
		return s.LeaseMs != nil && s.GetLeader() == "c1" && s.PowerUw != nil && s.GetSaved() == 5
	})
	holding, epoch := s.GetHolding(), s.GetHolding().GetApplied().GetEpoch()
	if s.GetNode() != "n01" || holding.GetCapUw() != 190_000_000 || epoch.GetTerm() != 7 || holding.GetApplied().GetSeq() != 1 {
		t.Errorf("status of %s holding %v, want n01 at 190 W by epoch 7 seq 1", s.GetNode(), holding)
	}
	states := map[string]string{}
	for _, z := range s.GetZones() {
		states[z.GetZone()] = z.GetState()
	}
	if states["package-0"] == "" || states["dram-0"] != "read-only" {
		t.Errorf("zones %v, want a limited package and memory that is only read", states)
	}
}

// wish is who asks for a release and why.
func wish() *headroomv1.Change {
	return &headroomv1.Change{Actor: "mia", Reason: "test", RequestId: cli.RequestID()}
}

func hasItem(h *headroomv1.Heartbeat, code string) bool {
	for _, i := range h.GetHealth() {
		if i.GetCode() == code {
			return true
		}
	}
	return false
}

func equal(a, b map[string]int64) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}
