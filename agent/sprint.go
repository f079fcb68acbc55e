package agent

import (
	"fmt"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
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

// noteSprint says once when a sprint begins and ends.
func (c *controller) noteSprint(now time.Duration) {
	s, _ := c.lease.SprintStatus(now)
	id := c.lease.Sprinting(now)
	if id == c.caps.running {
		return
	}
	if id != "" {
		c.tally.counters.sprints++
		c.log.Info("sprint started", slog.String("id", id), slog.Float64("cap_w", s.Cap.Watts()), slog.Float64("base_w", s.Base.Watts()),
			slog.Float64("escrow_j", s.Escrow.Joules()), slog.Duration("at_most", s.Remaining))
	} else {
		c.log.Info("sprint ended", slog.String("id", c.caps.running))
	}
	c.caps.running = id
}

// sprintStatus is the sprint under way for status, nil without one.
func (c *controller) sprintStatus(now time.Duration) *headroomv1.SprintStatus {
	s, under := c.lease.SprintStatus(now)
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
func (c *controller) watchSprint() {
	offer, offered := c.lease.Offer()
	c.health.Warn(offered && !c.cfg.Sprint.Allow, "sprint-refused",
		fmt.Sprintf("sprint %s granted but not started: sprint.allow is false", offer.ID),
		"set sprint.allow: true in powerd.yaml, or grant no sprints to this node")
}
