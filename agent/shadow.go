package agent

import (
	"log/slog"

	"headroom/agent/machine"
	"headroom/capping"
	"headroom/lease"
	"headroom/units"
)

// A node that was told to observe decides all the same, so that an operator sees what
// it would do before it may. Nothing of that is a request to anybody: no hand on a
// control is open, nothing is journalled, and heartbeats and held.json say observing.

// shadows reports whether the node decides without writing.
func (c *controller) shadows() bool {
	return c.mode != holding && !c.cfg.Enforce && c.machine.Capable()
}

// shadow is decide for such a node: it has no lease, so what it would hold is its
// fail-safe cap.
func (c *controller) shadow(now lease.Instant) {
	c.decideCap(now)
	if c.machine.Ladder.Use == capping.RungFreq {
		// The law learns what power follows from a frequency, and none follows here:
		// the model decides, as where nothing measures power.
		c.machine.Freq.Step(capping.FreqSample{Sample: c.meter.Sample}, c.caps.now, true, c.meter.Model)
		c.machine.Freq.Request(true, 0)
	} else {
		c.act, c.law = capping.Step(now.Boot, asIfHeld(c.meter.Sample, c.law.Limit), c.caps.now, c.law, c.meter.Model)
		c.parts = c.machine.Share(c.act, c.parts, (*machine.Package).Wanted)
	}
	if c.caps.stepped {
		c.caps.stepped = false
		c.log.Info("would hold", slog.Float64("cap_w", c.caps.now.Watts()), slog.String("rung", c.rung()))
	}
}

// asIfHeld is the sample that a law whose limit was written would see: packages that
// draw no more than it. With the sample as it is, the law would correct for ever what
// never follows.
func asIfHeld(in capping.Sample, limit units.Power) capping.Sample {
	if limit > 0 {
		in.Package.Power = min(in.Package.Power, limit)
	}
	return in
}
