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

// shadows says that the node decides without writing.
func (n *node) shadows() bool { return n.mode != holding && !n.cfg.Enforce && n.machine.Capable() }

// shadow is decide for such a node: it has no lease, so what it would hold is its
// fail-safe cap.
func (n *node) shadow(now lease.Instant) {
	n.decideCap(now)
	if n.machine.Ladder.Use == capping.RungFreq {
		// The law learns what power follows from a frequency, and none follows here:
		// the model decides, as where nothing measures power.
		n.machine.Freq.Step(capping.FreqSample{Sample: n.meter.sample}, n.caps.now, true, n.meter.law)
		n.machine.Freq.Request(true, 0)
	} else {
		n.act, n.law = capping.Step(now.Boot, asIfHeld(n.meter.sample, n.law.Limit), n.caps.now, n.law, n.meter.law)
		n.parts = n.machine.Share(n.act, n.parts, (*machine.Package).Wanted)
	}
	if n.caps.stepped {
		n.caps.stepped = false
		n.log.Info("would hold", slog.Float64("cap_w", n.caps.now.Watts()), slog.String("rung", n.rung()))
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
