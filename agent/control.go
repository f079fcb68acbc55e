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
	released              // the originals are back
)

// controller is the inner loop: it gathers what the machine shows, decides the cap in
// force and the limits that go with it, applies them as far as held.json covers them, and
// verifies what reads back. It belongs to the owner goroutine.
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

// looseElapsed is the shortest time over which a fresh sample is worth taking:
// counters move once a millisecond, and the parts of one sample are read one
// after the other.
const looseElapsed = 50 * time.Millisecond

const (
	// settledWithin is how near to a new cap the power has to come to have met it.
	settledWithin = 0.02
	// settleMost is when waiting for that is given up: the node does not want it.
	settleMost = 30 * time.Second
)

// gather reads the limits, and the counters unless that was done just before.
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
		c.meter.Sample.Elapsed = 0 // the last reading, which has been taken in before
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

// limited reports whether the cap in force held the node back when it was last seen.
func (c *controller) limited() bool {
	if c.mode != holding {
		return false
	}
	if c.machine.Ladder.Use == capping.RungFreq {
		return c.machine.Freq.State.Limited
	}
	return c.law.Limited
}

// decide finds the cap in force and turns it into limits.
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

// apply writes what was decided, as far as held.json covers it; the rest waits
// for the writer. Then it verifies. What it returns goes to exchange.carryOut.
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

// write brings the hardware to what was decided, or to what held.json covers of it.
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
	over := c.mayWriteOver(now, f.RewroteAt)
	if drifted && !over || !f.Due(over) {
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

// rail is where the limits stand.
func (c *controller) rail() capping.Rail {
	if c.machine.Ladder.Use == capping.RungFreq {
		return c.machine.Freq.Actions.Rail
	}
	return c.act.Rail
}

// limitedBy is what holds the node back most, "" for nothing.
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

// rung is the rung that holds the cap, in the words of the contract.
func (c *controller) rung() string { return c.machine.Ladder.Use.String() }

// leaseInForce is the lease that the cap comes with, nil where it comes with none.
func (c *controller) leaseInForce() *headroomv1.Stamp {
	if _, state := c.lease.Cap(); state != lease.Held {
		return nil
	}
	return wire.StampMessage(c.lease.Applied())
}

// noteSettle counts how long a new cap takes to be met by the measured power, as
// long as it is the cap that holds the node back.
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

// decideCap finds the cap for this turn.
func (c *controller) decideCap(now lease.Instant) {
	want := c.lease.Turn(now, lease.TurnInput{
		Wall: c.meter.Reading(), Elapsed: c.meter.Sample.Elapsed, Effective: c.effective(),
		Hot: c.heat.Hot(now.Boot), Stop: c.stopping || !c.cfg.Sprint.Allow, Rated: c.cfg.Power.Rated,
	})
	if want != c.caps.now {
		c.caps.now, c.caps.stepped = want, true
		c.stepAt = now.Boot
	}
	c.noteSprint(now.Boot)
}

// effective is the cap that the hardware holds as read back: the one last carried
// out whole, and what stands above it.
func (c *controller) effective() capping.Reading {
	if c.mode != holding || c.caps.applied == 0 || c.writeErr != nil {
		return capping.Reading{}
	}
	over, ok := c.excessWall()
	return capping.Reading{Power: c.caps.applied + over, Known: ok}
}

// excessWall is how much more than the cap in force the node may draw, at the
// wall, by what reads back; false where that cannot be known.
func (c *controller) excessWall() (units.Power, bool) {
	switch c.machine.Ladder.Use {
	case capping.RungRAPL:
		if c.machine.Off() || len(c.machine.Strange)+len(c.machine.Lost) > 0 {
			return max(0, c.cfg.Power.Rated-c.caps.now), true
		}
		over, ok := c.machine.Excess()
		return units.FromWatts(over.Watts() / c.cfg.Power.SupplyEfficiency), ok
	case capping.RungFreq:
		charge, ok := c.machine.Freq.Charge()
		return max(0, charge-c.caps.now), ok
	case capping.RungNone, capping.RungBandwidth, capping.RungDCMI:
	}
	return 0, false
}

// bound is what the node is about to hold, no more.
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

// noteOver counts time over the cap. The cap in force is that of the turn before: the one
// that the power was held by.
func (c *controller) noteOver(now time.Duration) {
	inForce := units.Power(0)
	if c.mode == holding {
		inForce = c.caps.now
	}
	mean, known := c.meter.Mean.Value()
	c.tally.over(now, capping.Reading{Power: mean, Known: known}, inForce)
}

// mayWriteOver reports whether a value that another program has changed is written
// over now; last is when that was done last, 0 for never.
func (c *controller) mayWriteOver(now, last time.Duration) bool {
	return c.caps.stepped || c.cfg.Fights(now, last) // a new cap is always written, and cuts never wait
}

// watch shows what is wrong with the cap itself.
func (c *controller) watch() {
	c.health.Warn(c.mode == holding && c.rail() == capping.AtFloor, "cap-below-floor",
		"the cap is below the lowest limit of the processor", "raise power.floor in powerd.yaml to the power that the node can hold")
	c.watchSprint()
}
