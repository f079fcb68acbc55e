package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/heat"
	"headroom/agent/machine"
	"headroom/agent/meter"
	"headroom/agent/records"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/units"
)

// mode is what the node does with its controls.
type mode int

const (
	observing mode = iota // never writes: enforce is false (see shadows), or nothing to write to
	holding               // holds its cap
	released              // the originals are restored
)

// controller is the inner loop: it reads the machine, decides the cap in force and its
// limits, writes them as far as held.json covers them, and verifies them by reading back.
// It belongs to the owner goroutine.
type controller struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items

	machine *machine.Machine
	meter   *meter.Meter
	lease   *lease.Node
	heat    *heat.Heat
	records *records.Records
	tally   *tally
	drift   *driftWatch

	began    time.Duration // when this process did
	mode     mode
	draining bool // enforce is false but an earlier powerd left limits: they are to be released
	stopping bool
	caps     caps
	stepAt   time.Duration // when the cap last changed by much, until power has met it

	law    capping.State // of the packages' limits
	act    capping.Actions
	parts  []capping.Socket
	demand capping.Demand

	busy      float64 // share of CPU time in use
	busyKnown bool
	writeErr  error // of the newest write
}

// looseElapsed is the shortest time between two samples: counters advance once a
// millisecond, and the parts of a sample are read one after the other.
const looseElapsed = 50 * time.Millisecond

const (
	// settledWithin is the difference to a new cap within which it is met.
	settledWithin = 0.02
	// settleMost bounds the wait for that: the node may not use its cap.
	settleMost = 30 * time.Second
)

// gather reads the limits, and the counters unless they were read just before.
func (c *controller) gather(at lease.Instant) {
	now := at.Boot
	c.machine.ReadBack()
	if c.mode == holding {
		excess, known := c.excessWall()
		c.drift.look(now, excess, known)
	}
	if c.caps.running != "" {
		c.heat.Look(now)
	}
	if now-c.machine.LookedAt < looseElapsed {
		c.meter.Again()
		return
	}
	c.meter.Look(at)
	c.tally.loop.AddLimited(c.limitedBy(now), c.meter.Sample.Elapsed)
	if c.meter.Add(now) {
		c.noteOver(now)
	}
	c.demand.Observe(now, capping.Look{
		Wall: c.meter.Reading(), Limited: c.limited(), Busy: c.busy, BusyKnown: c.busyKnown, Elapsed: c.meter.Sample.Elapsed,
	})
}

// limited reports whether the cap in force limited the node in the last sample.
func (c *controller) limited() bool {
	if c.mode != holding {
		return false
	}
	if c.machine.Ladder.Use == capping.RungFreq {
		return c.machine.Freq.State.Limited
	}
	return c.law.Limited
}

// decide computes the cap in force and its limits.
func (c *controller) decide(now lease.Instant) {
	switch {
	case c.mode == holding:
	case c.shadows():
		c.shadow(now)
		return
	default:
		return
	}
	c.decideCap(now)
	f := c.machine.Freq
	onFreq := c.machine.Ladder.Use == capping.RungFreq
	if onFreq {
		f.Step(capping.FreqSample{Sample: c.meter.Sample, Busy: c.busy, BusyKnown: c.busyKnown}, c.caps.now, c.meter.Blind(), c.meter.Model)
	} else {
		c.act, c.law = capping.Step(now.Boot, c.meter.Sample, c.caps.now, c.law, c.meter.Model)
		c.parts = c.machine.Share(c.act, c.parts, (*machine.Package).Held)
	}
	if f != nil && f.Ceilings != nil {
		f.Request(onFreq, c.caps.ceiling.at(now.Boot))
	}
}

// apply writes the decided limits as far as held.json covers them, and verifies them; the
// rest waits for the writer. Its results are for exchange.carryOut.
func (c *controller) apply() []lease.Output {
	if c.mode != holding {
		return nil
	}
	want := c.bound()
	covered := c.records.OnDisk().Allows(want)
	if !covered {
		c.records.Ask(c.records.OnDisk().Union(want))
	}
	c.writeErr = c.write(covered, instant().Boot)
	c.health.Fail(c.writeErr != nil, "limit-refused",
		fmt.Sprintf("limit not accepted: %v", c.writeErr),
		"the node is charged for the limit that reads back; see powerd status")
	whole := c.writeErr == nil && covered
	if whole {
		c.caps.applied, c.caps.stepped = c.caps.now, false
		if !c.records.OnDisk().Same(want) {
			c.records.Ask(want)
		}
	}
	excess, known := c.excessWall()
	return c.lease.Wrote(lease.WriteResult{Excess: excess, Known: known, Whole: whole, Failed: c.writeErr != nil})
}

// write writes the decided limits, or what held.json covers of them.
func (c *controller) write(covered bool, now time.Duration) error {
	var failed error
	for i, s := range c.machine.Limited() {
		if s.Zone.Gone() {
			continue
		}
		to := s.Requested
		if !covered {
			to = to.AtMost(c.records.OnDisk().Limits[i].Long, c.records.OnDisk().Limits[i].Short)
		}
		if s.Drifted || s.Off {
			if !c.mayWriteOver(now, s.RewroteAt) {
				continue
			}
			s.RewroteAt = now
		}
		err := s.Write(to, c.records.Trail.Note)
		c.tally.writeFailed(s.Zone.Label, err)
		failed = errors.Join(failed, err)
	}
	f := c.machine.Freq
	if f == nil || f.Ceilings == nil || c.machine.Ladder.Use != capping.RungFreq && c.caps.ceiling.until == 0 {
		return failed
	}
	drifted := len(f.Drifted()) > 0
	if over := c.mayWriteOver(now, f.RewroteAt); drifted && !over || !f.Due(over) {
		return failed
	}
	if drifted {
		f.RewroteAt = now
	}
	var most map[string]units.Freq
	if !covered {
		most = maps.Clone(f.Written)
	}
	err := f.Write(most, c.records.Trail.Note)
	c.tally.ceilingsWritten(f, err)
	return errors.Join(failed, err)
}

// rail returns whether the limits are at a bound.
func (c *controller) rail() capping.Rail {
	if c.machine.Ladder.Use == capping.RungFreq {
		return c.machine.Freq.Actions.Rail
	}
	return c.act.Rail
}

// limitedBy returns what limits the node most, "" for nothing.
func (c *controller) limitedBy(now time.Duration) string {
	_, state := c.lease.Cap()
	switch {
	case c.heat.Slow(now):
		return "thermal"
	case !c.limited():
		return ""
	case c.lease.Local(now) > 0 || c.caps.ceiling.at(now) > 0:
		return "local"
	case state != lease.Held:
		return "fail-safe"
	case c.caps.running != "":
		return "sprint"
	}
	return "cap"
}

// rung returns the name of the rung that enforces the cap.
func (c *controller) rung() string { return c.machine.Ladder.Use.String() }

// leaseInForce returns the lease of the cap, nil without one.
func (c *controller) leaseInForce() *headroomv1.Stamp {
	if _, state := c.lease.Cap(); state != lease.Held {
		return nil
	}
	return wire.StampMessage(c.lease.Applied())
}

// noteSettle counts the time until measured power meets a new cap, while the cap is what
// limits the node.
func (c *controller) noteSettle(now time.Duration) {
	wall := c.meter.Reading()
	switch {
	case c.stepAt == 0 || c.meter.Sample.Elapsed == 0:
	case now-c.stepAt > settleMost:
		c.stepAt = 0
	case wall.Known && c.limited() && math.Abs(wall.Power.Watts()/c.caps.now.Watts()-1) <= settledWithin:
		c.tally.loop.ObserveSettle(now-c.stepAt, c.leaseInForce())
		c.stepAt = 0
	}
}

// decideCap computes the cap for this step.
func (c *controller) decideCap(now lease.Instant) {
	fresh, late := c.meter.Fresh()
	want := c.lease.Turn(now, lease.TurnInput{
		Fresh: fresh, Late: late, Wall: c.meter.Reading(), Elapsed: c.meter.Sample.Elapsed, Effective: c.effective(),
		Hot: c.heat.Hot(now.Boot), Stop: c.stopping || !c.cfg.Sprint.Allow, Rated: c.cfg.Power.Rated,
	})
	if want != c.caps.now {
		c.caps.now, c.caps.stepped = want, true
		c.stepAt = now.Boot
	}
	c.noteSprint(now.Boot)
}

// effective returns the cap that the hardware holds by reading back: the last one that was
// written completely, plus the excess above it.
func (c *controller) effective() capping.Reading {
	if c.mode != holding || c.caps.applied == 0 || c.writeErr != nil {
		return capping.Reading{}
	}
	over, ok := c.excessWall()
	return capping.Reading{Power: c.caps.applied + over, Known: ok}
}

// excessWall returns how much more than the cap in force the node may draw at the wall, by
// the limits that read back; false if unknown.
func (c *controller) excessWall() (units.Power, bool) {
	switch c.machine.Ladder.Use {
	case capping.RungRAPL:
		if c.machine.Off() || len(c.machine.Strange)+len(c.machine.Lost) > 0 {
			return max(0, c.cfg.Power.Rated-c.caps.now), true
		}
		over, ok := c.machine.Excess()
		return units.FromWatts(over.Watts()/c.cfg.Power.SupplyEfficiency) + c.act.Excess, ok
	case capping.RungFreq:
		charge, ok := c.machine.Freq.Charge()
		return max(0, charge-c.caps.now), ok
	case capping.RungNone, capping.RungBandwidth, capping.RungDCMI:
	}
	return 0, false
}

// floor returns the lowest cap that the node can hold: power.floor, or what the rung in use
// reaches at its lowest if that is more.
func (c *controller) floor() units.Power {
	least := units.Power(0)
	switch m := c.machine; {
	case c.mode != holding:
	case m.Ladder.Use == capping.RungFreq:
		least = m.Freq.Config.Least()
	case m.PackageLeast() > 0:
		least = c.meter.Model.Wall(m.PackageLeast(), 0)
	}
	return max(c.cfg.Power.Floor, min(least, c.cfg.Power.Rated))
}

// bound returns the most that the node is about to hold.
func (c *controller) bound() records.Bound {
	_, state := c.lease.Cap()
	k := records.Bound{Cap: c.caps.now, State: state.String(), Stamp: c.lease.Memory().Highest}
	switch c.mode {
	case observing:
		return records.Bound{Cap: c.cfg.Power.Rated, State: records.StateObserving, Stamp: k.Stamp}
	case released:
		return records.Bound{Cap: c.cfg.Power.Rated, State: records.StateReleased, Stamp: k.Stamp}
	case holding:
	}
	if c.machine.Ladder.Use == capping.RungFreq {
		k.Cap = max(k.Cap, c.machine.Freq.WillCharge())
	}
	for _, s := range c.machine.Limited() {
		k.Limits = append(k.Limits, records.Limits{Zone: s.Zone.Label, Long: s.Requested.Long, Short: s.Requested.Short})
	}
	return k
}

// noteOver counts time over the cap, which is the cap of the step before: it was in force
// while the power was measured.
func (c *controller) noteOver(now time.Duration) {
	inForce := units.Power(0)
	if c.mode == holding {
		inForce = c.caps.now
	}
	mean, known := c.meter.Mean.Value()
	c.tally.over(now, capping.Reading{Power: mean, Known: known}, inForce)
}

// mayWriteOver reports whether to overwrite a value of another program now; last is the
// time of the last overwrite, 0 for never.
func (c *controller) mayWriteOver(now, last time.Duration) bool {
	return c.caps.stepped || c.cfg.Fights(now, last) // a new cap is always written at once
}

// watch raises health items about the cap.
func (c *controller) watch() {
	text, least := "the cap is below the lowest limit of the processor", c.floor()
	if least > c.cfg.Power.Floor {
		text = fmt.Sprintf("the node cannot hold less than %v, and is charged at least that; power.floor is %v: %s", least, c.cfg.Power.Floor, c.machine.Ladder.Why)
	}
	c.health.Warn(c.mode == holding && (c.rail() == capping.AtFloor || least > c.cfg.Power.Floor), "cap-below-floor",
		text, "raise power.floor in powerd.yaml to the power that the node can hold")
	c.watchBind()
	c.watchSprint()
}

// watchBind reports limits that read back well and do not hold the node at its cap.
func (c *controller) watchBind() {
	draws := c.lease.Unbound()
	where := "no limit that it has holds it"
	if c.machine.OnRAPL() {
		pkg, limit := c.meter.Sample.Package.Power, c.machine.EffectiveLimit()
		where = fmt.Sprintf("its packages draw %v above their limits of %v", pkg, limit)
		if pkg <= limit {
			where = fmt.Sprintf("its packages draw %v, within their limits of %v: the rest of the machine draws too much", pkg, limit)
		}
	}
	c.health.Fail(c.mode == holding && draws > 0, "limit-unbound",
		fmt.Sprintf("the node draws %v under a cap of %v: %s; it is charged what it draws", draws, c.caps.now, where),
		"drain the node; check firmware and power.other as the runbook limit-unbound describes")
}
