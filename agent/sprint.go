package agent

import (
	"fmt"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/lease"
	"headroom/units"
)

// caps is the cap in force, and what it is made of: the lease or the fail-safe
// cap, a sprint above it, an operator's own below it.
type caps struct {
	now     units.Power // in force
	stepped bool        // it changed and was not yet carried out whole
	applied units.Power // last carried out whole and verified; 0: none

	sprint  capping.Sprint
	stamp   lease.Stamp // newest grant that the sprint machine has seen
	running string      // id of the sprint that was under way in the turn before
	local   localCap
	ceiling localCeiling
}

// decideCap finds the cap for this turn.
func (n *node) decideCap(now lease.Instant) {
	c := &n.caps
	base, state := n.holder.Cap()
	highest := n.holder.Memory().Highest
	offer, _ := n.holder.Sprint()
	own := c.local.at(now.Boot)
	want := c.sprint.Step(now.Boot, capping.SprintInput{
		Base: base, Held: state == lease.Held, Newer: highest != c.stamp,
		Offer: capping.SprintOffer{ID: offer.ID, Cap: offer.Cap, Duration: offer.Duration, Escrow: offer.Escrow},
		Wall:  n.wallReading(), Elapsed: n.sample.Elapsed, Effective: n.effective(),
		Hot: n.heat.hot(now.Boot), Stop: n.stopping || !n.cfg.Sprint.Allow || own > 0 && own < offer.Cap,
	}, capping.SprintConfig{Rated: n.cfg.Power.Rated})
	c.stamp = highest
	if own > 0 {
		want = min(want, own)
	}
	if most, ok := n.holder.Most(c.under(now.Boot)); ok {
		want = min(want, most)
	}
	if want != c.now {
		c.now, c.stepped = want, true
		n.stepAt = now.Boot
	}
	n.noteSprint(now.Boot)
}

// under is the id of the sprint under way, "" for none.
func (c *caps) under(now time.Duration) string {
	if s, under := c.sprint.Status(now); under && !s.Ending {
		return s.ID
	}
	return ""
}

// noteSprint says once when a sprint begins and ends.
func (n *node) noteSprint(now time.Duration) {
	s, under := n.caps.sprint.Status(now)
	id := ""
	if under && !s.Ending {
		id = s.ID
	}
	if id == n.caps.running {
		return
	}
	if id != "" {
		n.counters.sprints++
		n.log.Info("sprint began", slog.String("id", id), slog.Float64("cap_w", s.Cap.Watts()), slog.Float64("base_w", s.Base.Watts()),
			slog.Float64("escrow_j", s.Escrow.Joules()), slog.Duration("at_most", s.Remaining))
	} else {
		n.log.Info("sprint over", slog.String("id", n.caps.running))
	}
	n.caps.running = id
}

// effective is the cap that the hardware holds as read back: the one last carried
// out whole, and what stands above it.
func (n *node) effective() capping.Reading {
	if n.mode != holding || n.caps.applied == 0 || n.writeErr != nil {
		return capping.Reading{}
	}
	over, ok := n.excessWall()
	return capping.Reading{Power: n.caps.applied + over, Known: ok}
}

// excessWall is how much more than the cap in force the node may draw, at the
// wall, by what reads back; false where that cannot be known.
func (n *node) excessWall() (units.Power, bool) {
	switch n.machine.ladder.Use {
	case capping.RungRAPL:
		if n.machine.off() || len(n.machine.strange)+len(n.machine.lost) > 0 {
			return max(0, n.cfg.Power.Rated-n.caps.now), true
		}
		over, ok := n.machine.excess()
		return units.FromWatts(over.Watts() / n.cfg.Power.SupplyEfficiency), ok
	case capping.RungFreq:
		charge, ok := n.machine.freq.charge()
		return max(0, charge-n.caps.now), ok
	case capping.RungNone, capping.RungBandwidth, capping.RungDCMI:
	}
	return 0, false
}

// leaseSprint is a lease's sprint.
func leaseSprint(s *headroomv1.Sprint) lease.Sprint {
	if s == nil {
		return lease.Sprint{}
	}
	return lease.Sprint{
		ID: s.GetId(), Cap: units.Power(s.GetCapUw()), Escrow: units.Energy(s.GetEscrowUj()),
		Duration: time.Duration(min(max(s.GetDurationMs(), 0), int64(2*lease.MaxSprint/time.Millisecond))) * time.Millisecond,
	}
}

// holdSprint puts what there is to tell of sprints into the acknowledgement.
func (n *node) holdSprint(h *headroomv1.Holding) {
	if s, under := n.caps.sprint.Status(instant().Boot); under {
		h.SprintId = s.ID
	}
	for _, e := range n.caps.sprint.Ended() {
		end := &headroomv1.SprintEnd{Id: e.ID, Reason: e.Reason.String()}
		if e.Measured {
			end.SpentUj = new(int64(e.Spent))
		}
		h.Ended = append(h.Ended, end)
	}
}

// sprintStatus is the sprint under way for status, nil without one.
func (n *node) sprintStatus(now time.Duration) *headroomv1.SprintStatus {
	s, under := n.caps.sprint.Status(now)
	if !under {
		return nil
	}
	row := &headroomv1.SprintStatus{
		Id: s.ID, CapUw: int64(s.Cap), BaseUw: int64(s.Base), RemainingMs: s.Remaining.Milliseconds(), EscrowUj: int64(s.Escrow),
	}
	if s.Measured {
		row.SpentUj = new(int64(s.Spent))
	}
	return row
}

// watchSprint says when a sprint is offered that this node may not begin.
func (n *node) watchSprint() {
	offer, offered := n.holder.Sprint()
	n.health.set(offered && !n.cfg.Sprint.Allow, item{
		"sprint-refused", warn, fmt.Sprintf("sprint %s is granted but not begun: sprint.allow is false", offer.ID),
		"set sprint.allow: true in powerd.yaml, or stop granting sprints to this node",
	})
}
