package agent

import (
	"math"
	"time"

	"headroom/capping"
	"headroom/units"
)

const (
	// settledWithin is how near to a new cap the power has to come to have met it.
	settledWithin = 0.02
	// settleMost is when waiting for that is given up: the node does not want it.
	settleMost = 30 * time.Second
)

// noteSettle counts how long a new cap takes to be met by the measured power, as
// long as it is the cap that holds the node back.
func (n *node) noteSettle(now time.Duration) {
	wall := n.meter.reading()
	switch {
	case n.stepAt == 0 || n.meter.sample.Elapsed == 0:
	case now-n.stepAt > settleMost:
		n.stepAt = 0
	case wall.Known && n.limited() && math.Abs(wall.Power.Watts()/n.caps.now.Watts()-1) <= settledWithin:
		n.tally.ObserveSettle(now-n.stepAt, n.leaseInForce())
		n.stepAt = 0
	}
}

// overTolerance is how far above the cap the power may stand without being over it.
const overTolerance = 0.02

// overCap is the time, and the energy above the cap, that a stretch of time counts as
// spent over the cap: all of it where the mean stands above the cap by more than
// overTolerance, nothing otherwise. Unknown power and no cap (0) count nothing.
func overCap(mean capping.Reading, inForce units.Power, d time.Duration) (time.Duration, units.Energy) {
	if !mean.Known || inForce <= 0 || d <= 0 || mean.Power.Watts() <= inForce.Watts()*(1+overTolerance) {
		return 0, 0
	}
	return d, (mean.Power - inForce).For(d)
}

// noteOver counts the time since it was last called. The cap in force is that of the
// turn before: the one that the power was held by.
func (n *node) noteOver(now time.Duration) {
	d := now - n.overAt
	if n.overAt == 0 {
		d = 0
	}
	n.overAt = now
	if n.mode != holding {
		return
	}
	mean, known := n.meter.mean.value()
	over, energy := overCap(capping.Reading{Power: mean, Known: known}, n.caps.now, d)
	n.counters.overTime += over
	n.counters.overEnergy += energy
}

// drawnEnergy is what the node has drawn at the wall since this process began, as far as
// its power was known.
type drawnEnergy struct {
	energy units.Energy
	time   time.Duration
	at     time.Duration // up to when it is counted; 0 before the first reading
}

// drawnGapMost is the longest time that one reading stands for: longer than any reading takes,
// and shorter than a suspend that must not count as drawn.
const drawnGapMost = 5 * time.Second

// add counts the time since the reading before.
func (d *drawnEnergy) add(r capping.Reading, now time.Duration) {
	elapsed := now - d.at
	if known := r.Known && r.Power >= 0 && d.at > 0; known && elapsed > 0 && elapsed <= drawnGapMost {
		d.energy, d.time = d.energy+r.Power.For(elapsed), d.time+elapsed
	}
	d.at = now
}

// wallMean is the mean wall power over the last second or so.
type wallMean struct {
	slots [8]struct {
		energy  units.Energy
		elapsed time.Duration
		known   bool
	}
	next int
}

func (w *wallMean) add(r capping.Reading, elapsed time.Duration) {
	s := &w.slots[w.next]
	s.energy, s.elapsed, s.known = r.Power.For(elapsed), elapsed, r.Known
	w.next = (w.next + 1) % len(w.slots)
}

// value is the mean over the newest readings that make up a second; an unknown
// one among them makes it unknown.
func (w *wallMean) value() (units.Power, bool) {
	var energy units.Energy
	var elapsed time.Duration
	for i := range w.slots {
		s := &w.slots[(w.next+len(w.slots)-1-i)%len(w.slots)]
		if !s.known {
			return 0, false
		}
		energy, elapsed = energy+s.energy, elapsed+s.elapsed
		if elapsed >= beat-period/10 {
			break
		}
	}
	return energy.Over(elapsed), elapsed > 0
}
