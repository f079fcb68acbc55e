package agent

import (
	"time"

	"headroom/capping"
	"headroom/units"
)

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
