package agent

import (
	"fmt"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

// caps is the cap in force and its parts: the lease or the fail-safe cap, a sprint above
// it, a local limit below it.
type caps struct {
	now     units.Power // in force
	stepped bool        // it changed and is not completely written yet
	applied units.Power // last completely written and verified; 0: none

	running string             // ID of the sprint that was active in the step before
	local   *headroomv1.Change // actor and reason of the local cap
	ceiling localCeiling
}

// noteSprint logs the start and the end of a sprint.
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

// sprintStatus returns the active sprint for the status, nil without one.
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

// watchSprint raises a health item for a granted sprint that this node may not start.
func (c *controller) watchSprint() {
	offer, offered := c.lease.Offer()
	c.health.Warn(offered && !c.cfg.Sprint.Allow, "sprint-refused",
		fmt.Sprintf("sprint %s granted but not started: sprint.allow is false", offer.ID),
		"set sprint.allow: true in powerd.yaml, or grant no sprints to this node")
}
