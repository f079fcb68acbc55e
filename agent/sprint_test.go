// Claims: a sprint moves the cap up for as long as it is paid for and back by
// itself, is ended early by heat, by a newer grant and with the lease, is told in
// each heartbeat; held.json never understates meanwhile, and its end never raises
// a cap. An operator's own limit only lowers, ends by itself and is never charged less.
package agent

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/capping"
	"headroom/lease"
	"headroom/units"
)

// offer grants a base cap and a sprint beside it.
func (c *coordinator) offer(t *testing.T, base units.Power, s *headroomv1.Sprint) {
	t.Helper()
	c.set(func() { c.sprint = s })
	c.grant(t, base)
}

func sprintFor(id string, most units.Power, length time.Duration, escrow units.Energy) *headroomv1.Sprint {
	return &headroomv1.Sprint{Id: id, CapUw: int64(most), DurationMs: length.Milliseconds(), EscrowUj: int64(escrow)}
}

// ended waits for the end of a sprint and returns what was told of it.
func (c *coordinator) ended(t *testing.T, id string) *headroomv1.SprintEnd {
	t.Helper()
	var end *headroomv1.SprintEnd
	waitFor(t, "the end of sprint "+id+" is told", func() bool {
		for _, e := range c.last().GetHolding().GetEnded() {
			if e.GetId() == id {
				end = e
			}
		}
		return end != nil
	})
	return end
}

// P8: cap up for the time paid for, back by itself, told with what it cost.
func TestSprintGoesUpAndComesBack(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	run(t, l.config(c.addr))
	c.offer(t, 120*units.Watt, sprintFor("s1", 180*units.Watt, 4*time.Second, 10_000*units.Joule))
	waitFor(t, "the sprint is told", func() bool { return c.last().GetHolding().GetSprintId() == "s1" })
	waitFor(t, "the limit is the sprint's", func() bool { return l.long() > 110*units.Watt })
	if h := l.held(); h.CapW < 180 {
		t.Errorf("held.json allows %v W while the node sprints to 180 W", h.CapW)
	}
	waitFor(t, "it is told what the sprint holds", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, b := range c.beats {
			h := b.GetHolding()
			if h.GetSprintId() == "s1" && h.GetCapUw() == 120_000_000 && h.GetEffectiveUw() >= 180_000_000 {
				return true
			}
		}
		return false
	})
	end := c.ended(t, "s1")
	if end.GetReason() != "time" || end.SpentUj == nil || end.GetSpentUj() <= 0 {
		t.Errorf("ended %v, want by time with what it drew", end)
	}
	if h := c.last().GetHolding(); h.GetSprintId() != "" || h.GetCapUw() != 120_000_000 {
		t.Errorf("holding %v after the sprint", h)
	}
	if l.long() > 85*units.Watt {
		t.Errorf("limit %v after the sprint", l.long())
	}
	waitFor(t, "held.json is back", func() bool { return l.held().CapW == 120 })
}

// A newer sequence replaces base and sprint together, down as well as away.
func TestNewerGrantReplacesTheSprint(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	run(t, l.config(c.addr))
	c.offer(t, 120*units.Watt, sprintFor("s1", 180*units.Watt, time.Minute, 100_000*units.Joule))
	waitFor(t, "the sprint is told", func() bool { return c.last().GetHolding().GetSprintId() == "s1" })
	c.offer(t, 100*units.Watt, nil)
	waitFor(t, "the node is at its new base", func() bool { return c.acknowledged() && l.long() < 70*units.Watt })
	if end := c.ended(t, "s1"); end.GetReason() != "superseded" {
		t.Errorf("ended %v", end)
	}
}

// With the lease the sprint ends, at the fail-safe cap.
func TestSprintEndsWithTheLease(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.duration = 1500 * time.Millisecond
	run(t, l.config(c.addr))
	c.offer(t, 120*units.Watt, sprintFor("s1", 200*units.Watt, time.Minute, 100_000*units.Joule))
	waitFor(t, "the sprint is told", func() bool { return c.last().GetHolding().GetSprintId() == "s1" })
	c.set(func() { c.silent = true })
	waitFor(t, "the fail-safe cap is written", func() bool { return failSafeLong(l.long()) })
	if end := c.ended(t, "s1"); end.GetReason() != "lease" {
		t.Errorf("ended %v", end)
	}
}

// A sprint that may not be begun is said, and the base cap holds.
func TestSprintNotAllowed(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	cfg := l.config(c.addr)
	cfg.Sprint.Allow = false
	run(t, cfg)
	c.offer(t, 120*units.Watt, sprintFor("s1", 200*units.Watt, time.Minute, 100_000*units.Joule))
	waitFor(t, "it is said", func() bool { return c.acknowledged() && hasItem(c.last(), "sprint-refused") })
	if l.long() > 85*units.Watt || c.last().GetHolding().GetSprintId() != "" {
		t.Errorf("limit %v, holding %v", l.long(), c.last().GetHolding())
	}
}

// loopless is a started node whose loop the test turns by hand.
func loopless(t *testing.T, cfg config.Config) *node {
	t.Helper()
	n, err := start(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	if err != nil {
		t.Fatal(err)
	}
	n.records.Start()
	t.Cleanup(func() {
		n.records.Stop()
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// spin turns the loop until ok, taking the writer's reports.
func (n *node) spin(t *testing.T, what string, ok func() bool) {
	t.Helper()
	waitFor(t, what, func() bool {
		select {
		case e := <-n.records.Writer.Done():
			n.stored(e)
		default:
		}
		n.turn(instant())
		return ok()
	})
}

// give makes a grant that answers a heartbeat sent now.
func (n *node) give(t *testing.T, seq uint64, base units.Power, s lease.Sprint) {
	t.Helper()
	n.giveAt(t, instant(), seq, base, s)
}

// giveAt is give for a test that turns the node's clocks itself.
func (n *node) giveAt(t *testing.T, at lease.Instant, seq uint64, base units.Power, s lease.Sprint) {
	t.Helper()
	g := lease.Grant{
		Stamp: lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: 7}, Seq: seq}, Cap: base, FailSafe: 95 * units.Watt,
		Duration: time.Minute, Sprint: s,
	}
	if err := answer(n.lease, g, at); err != nil {
		t.Fatal(err)
	}
}

// Heat ends a sprint at once: by temperature, and by what the hardware tells.
func TestHeatEndsASprint(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := loopless(t, l.config("127.0.0.1:1"))
	n.give(t, 1, 120*units.Watt, lease.Sprint{ID: "s1", Cap: 180 * units.Watt, Duration: time.Minute, Escrow: 100_000 * units.Joule})
	n.spin(t, "it sprints", func() bool {
		return n.control.caps.now == 180*units.Watt && n.control.caps.applied == n.control.caps.now
	})
	n.heat.HotAt = instant().Boot
	n.turn(instant())
	if n.control.caps.now != 120*units.Watt || l.long() > 85*units.Watt {
		t.Errorf("cap %v, limit %v one turn after the hardware said that it is too hot", n.control.caps.now, l.long())
	}
	n.spin(t, "the end is verified", func() bool { return len(n.ended()) == 1 })
	if end := n.ended()[0]; end.Reason != capping.EndedThermal {
		t.Errorf("ended %+v", end)
	}
}

// client talks to the agent of a lab.
func (l *lab) client() headroomv1connect.AgentServiceClient { return Client(l.config().StateDir) }

// An operator's own limit: never above the lease, never below the floor, charged
// as before, cleared and ended by itself.
func TestLocalLimit(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	set := func(p units.Power, d time.Duration) error {
		_, err := l.client().SetLocalLimit(t.Context(), connect.NewRequest(&headroomv1.SetLocalLimitRequest{
			CapUw: int64(p), DurationMs: d.Milliseconds(), Change: &headroomv1.Change{Actor: "mia", Reason: "noise"},
		}))
		return err
	}
	for name, err := range map[string]error{
		"above the lease": set(200*units.Watt, time.Minute), "below the floor": set(60*units.Watt, time.Minute),
		"no end": set(110*units.Watt, 0), "0 W": set(0, time.Minute), "too long": set(110*units.Watt, 48*time.Hour),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := set(110*units.Watt, time.Minute); err != nil {
		t.Fatal(err)
	}
	if l.long() > 80*units.Watt {
		t.Errorf("limit %v after the answer, want what goes with 110 W", l.long())
	}
	s := l.status(t)
	if s.GetLocal().GetCapUw() != 110_000_000 || s.GetLocal().GetRemainingMs() <= 0 || s.GetLocal().GetChange().GetActor() != "mia" {
		t.Errorf("local %v", s.GetLocal())
	}
	if h := s.GetHolding(); h.GetCapUw() != 190_000_000 || h.GetEffectiveUw() < 190_000_000 {
		t.Errorf("holding %v: a local limit must not be charged less, for it ends by itself", h)
	}
	res, err := l.client().ClearLocalLimit(t.Context(), connect.NewRequest(&headroomv1.ClearLocalLimitRequest{}))
	if err != nil || !res.Msg.GetWasSet() {
		t.Errorf("clear: %v, %v", res, err)
	}
	waitFor(t, "the lease's cap is back", func() bool { return l.long() > 110*units.Watt })
	if err := set(110*units.Watt, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it ends by itself", func() bool { return l.long() > 110*units.Watt && l.status(t).GetLocal() == nil })
}

// A frequency ceiling on a node that holds its cap by RAPL: saved before it is
// written, put back when it ends.
func TestLocalCeiling(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	original := l.number(ceilingFile)
	r := run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	ask := func(f units.Freq) *headroomv1.SetLocalCeilingResponse {
		res, err := l.client().SetLocalCeiling(t.Context(), connect.NewRequest(&headroomv1.SetLocalCeilingRequest{
			CeilingKhz: int64(f), DurationMs: 60_000, Change: &headroomv1.Change{Actor: "mia"},
		}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	low := ask(1500 * units.Megahertz)
	if got := l.number(ceilingFile); got > 1_500_000 || len(low.GetEffectiveKhz()) == 0 || low.GetEffectiveKhz()[0] != got {
		t.Errorf("ceiling %d, answered %v", got, low)
	}
	j, err := originals.Load(statedir.OS{Dir: l.config().StateDir})
	if err != nil || j == nil || len(j.Controls) <= 5 {
		t.Errorf("journal %+v, %v: the ceiling was written and is not saved", j, err)
	}
	ask(0)
	if got := l.number(ceilingFile); got != original {
		t.Errorf("ceiling %d after it was taken away, want %d", got, original)
	}
	ask(1200 * units.Megahertz)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if got := l.number(ceilingFile); got != original {
		t.Errorf("ceiling %d after the release, want %d", got, original)
	}
}

func TestRenewLease(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	waitFor(t, "the leader is in status", func() bool { return l.status(t).GetLeader() == "c1" })
	res, err := l.client().RenewLease(t.Context(), connect.NewRequest(&headroomv1.RenewLeaseRequest{}))
	if err != nil || res.Msg.LeaseMs == nil || res.Msg.GetLeaseMs() <= 0 || res.Msg.GetLeader() != "c1" {
		t.Errorf("%v, %v", res, err)
	}
}

// Lesson 19: what powerd does about another writer's value is the operator's choice:
// at once, at most once in ten seconds, or not at all, and then the node says what it
// draws.
func TestRivals(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{config.RivalsFight, config.RivalsTolerate, config.RivalsYield} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			cfg := l.config("127.0.0.1:1")
			cfg.Rivals = mode
			n := loopless(t, cfg)
			n.give(t, 1, 120*units.Watt, lease.Sprint{})
			n.spin(t, "the cap is held", func() bool { return n.control.caps.applied == 120*units.Watt && !n.control.caps.stepped })
			rewritten := 0
			for range 3 {
				l.write("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "150000000")
				n.turn(instant())
				if l.long() < 100*units.Watt {
					rewritten++
				}
			}
			want := map[string]int{config.RivalsFight: 3, config.RivalsTolerate: 1, config.RivalsYield: 0}[mode]
			if rewritten != want {
				t.Errorf("written over %d of 3 times, want %d", rewritten, want)
			}
			if !shown(n, "limit-drift") || n.tally.counters.drifts == 0 {
				t.Errorf("items %v, %d drifts", n.health.List(), n.tally.counters.drifts)
			}
			if h := n.holdingNow(); h.GetEffectiveUw() < 190_000_000 {
				t.Errorf("holding %v: the other writer's 150 W is what counts", h)
			}
			n.give(t, 2, 100*units.Watt, lease.Sprint{})
			n.turn(instant())
			if l.long() > 66*units.Watt {
				t.Errorf("limit %v: a cut never waits for another writer", l.long())
			}
		})
	}
}

// Lesson 7: all fields are watched: limits that are switched off bound nothing, so
// the node is charged what it is rated until they are on again.
func TestLimitsSwitchedOff(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config("127.0.0.1:1")
	cfg.Rivals = config.RivalsYield
	n := loopless(t, cfg)
	n.give(t, 1, 120*units.Watt, lease.Sprint{})
	n.spin(t, "the cap is held", func() bool { return n.control.caps.applied == 120*units.Watt && !n.control.caps.stepped })
	l.write("sys/class/powercap/intel-rapl:0/enabled", "0")
	n.turn(instant())
	if h := n.holdingNow(); h.GetEffectiveUw() != int64(cfg.Power.Rated) || !shown(n, "limit-drift") {
		t.Errorf("holding %v, items %v", h, n.health.List())
	}
	n.cfg.Rivals = config.RivalsFight
	n.turn(instant())
	if l.control("enabled") != 1 {
		t.Error("the limits were not switched on again")
	}
}
