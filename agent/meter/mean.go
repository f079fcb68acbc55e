package meter

import (
	"time"

	"headroom/agent/config"
	"headroom/capping"
	"headroom/units"
)

// Drawn is what the node has drawn at the wall since this process began, as far as
// its power was known.
type Drawn struct {
	Energy units.Energy
	Time   time.Duration
	at     time.Duration // up to when it is counted; 0 before the first reading
}

// drawnGapMost is the longest time that one reading stands for: longer than any reading takes,
// and shorter than a suspend that must not count as drawn.
const drawnGapMost = 5 * time.Second

// add counts the time since the reading before.
func (d *Drawn) add(r capping.Reading, now time.Duration) {
	elapsed := now - d.at
	if known := r.Known && r.Power >= 0 && d.at > 0; known && elapsed > 0 && elapsed <= drawnGapMost {
		d.Energy, d.Time = d.Energy+r.Power.For(elapsed), d.Time+elapsed
	}
	d.at = now
}

// Mean is the mean wall power over the last second or so.
type Mean struct {
	slots [8]struct {
		energy  units.Energy
		elapsed time.Duration
		known   bool
	}
	next int
}

// Add counts a reading that stands for the time elapsed.
func (w *Mean) Add(r capping.Reading, elapsed time.Duration) {
	s := &w.slots[w.next]
	s.energy, s.elapsed, s.known = r.Power.For(elapsed), elapsed, r.Known
	w.next = (w.next + 1) % len(w.slots)
}

// Value is the mean over the newest readings that make up a second; an unknown
// one among them makes it unknown.
func (w *Mean) Value() (units.Power, bool) {
	var energy units.Energy
	var elapsed time.Duration
	for i := range w.slots {
		s := &w.slots[(w.next+len(w.slots)-1-i)%len(w.slots)]
		if !s.known {
			return 0, false
		}
		energy, elapsed = energy+s.energy, elapsed+s.elapsed
		if elapsed >= config.Beat-config.Period/10 {
			break
		}
	}
	return energy.Over(elapsed), elapsed > 0
}
