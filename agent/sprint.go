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

	running string             // id of the sprint that was under way in the turn before
	local   *headroomv1.Change // who set the local cap, and why
	ceiling localCeiling
}

// decideCap finds the cap for this turn.
func (n *node) decideCap(now lease.Instant) {
	c := &n.caps
	want := n.lease.Turn(now, lease.TurnInput{
		Wall: n.meter.reading(), Elapsed: n.meter.sample.Elapsed, Effective: n.effective(),
		Hot: n.heat.hot(now.Boot), Stop: n.stopping || !n.cfg.Sprint.Allow, Rated: n.cfg.Power.Rated,
	})
	if want != c.now {
		c.now, c.stepped = want, true
		n.stepAt = now.Boot
	}
	n.noteSprint(now.Boot)
}

// noteSprint says once when a sprint begins and ends.
func (n *node) noteSprint(now time.Duration) {
	s, _ := n.lease.SprintStatus(now)
	id := n.lease.Sprinting(now)
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
	switch n.machine.Ladder.Use {
	case capping.RungRAPL:
		if n.machine.Off() || len(n.machine.Strange)+len(n.machine.Lost) > 0 {
			return max(0, n.cfg.Power.Rated-n.caps.now), true
		}
		over, ok := n.machine.Excess()
		return units.FromWatts(over.Watts() / n.cfg.Power.SupplyEfficiency), ok
	case capping.RungFreq:
		charge, ok := n.machine.Freq.Charge()
		return max(0, charge-n.caps.now), ok
	case capping.RungNone, capping.RungBandwidth, capping.RungDCMI:
	}
	return 0, false
}

// sprintStatus is the sprint under way for status, nil without one.
func (n *node) sprintStatus(now time.Duration) *headroomv1.SprintStatus {
	s, under := n.lease.SprintStatus(now)
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
	offer, offered := n.lease.Offer()
	n.health.Warn(offered && !n.cfg.Sprint.Allow, "sprint-refused",
		fmt.Sprintf("sprint %s is granted but not begun: sprint.allow is false", offer.ID),
		"set sprint.allow: true in powerd.yaml, or stop granting sprints to this node")
}
