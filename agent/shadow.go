package agent

import (
	"log/slog"

	"headroom/agent/machine"
	"headroom/capping"
	"headroom/lease"
	"headroom/units"
)

// A node that observes still decides, so that an operator sees what it would write. These
// decisions have no effect: no control is open for writing, nothing is in the journal, and
// heartbeats and held.json report observing.

// shadows reports whether the node decides without writing.
func (c *controller) shadows() bool {
	return c.mode != holding && !c.cfg.Enforce && c.machine.Capable()
}

// shadow is decide for such a node: without a lease it would hold its fail-safe cap.
func (c *controller) shadow(now lease.Instant) {
	c.decideCap(now)
	if c.machine.Ladder.Use == capping.RungFreq {
		// The law learns power from the frequency that it sets, and here nothing is set: the
		// model decides, as without a measurement of power.
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

// asIfHeld returns the sample as if the limit had been written: packages draw at most the
// limit. With the real sample the feedback would wind up.
func asIfHeld(in capping.Sample, limit units.Power) capping.Sample {
	if limit > 0 {
		in.Package.Power = min(in.Package.Power, limit)
	}
	return in
}
