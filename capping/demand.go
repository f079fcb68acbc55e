package capping

import (
	"time"

	"headroom/units"
)

const (
	// minute is how many one-second slots the limited ratio looks back over.
	minute = 60
	// peakSlots is how many of them the demand of an unlimited node looks at.
	peakSlots = 5
	// peakMore is what an unlimited node asks for above its peak.
	peakMore = 1.10
	// limitedLittle is the ratio of time below which a node counts as unlimited.
	limitedLittle = 0.05
)

// Look is one sample of the node, for the estimate of its demand.
type Look struct {
	// Wall power, mean over Elapsed.
	Wall Reading
	// Limited says that a limit held the node back during Elapsed.
	Limited bool
	// Busy is the share of CPU time in use, 0 to 1, and whether it is known.
	Busy      float64
	BusyKnown bool
	Elapsed   time.Duration
}

// Demand estimates the power that a node could use at full speed. The measured power of a
// capped node is censored: as its demand it would lower the cap for ever. The demand of a
// node limited less than 5 % of the last minute is therefore its 5 s peak + 10 %, and that
// of a limited one is the power of the model at full frequency for the CPU time in use.
// The zero Demand is unknown. It belongs to one goroutine.
type Demand struct {
	slots [minute]slot
	idle  units.Power // least draw seen, the model's foot
	busy  float64     // smoothed CPU use
	known bool        // busy stands on a reading
}

// slot is one second of samples.
type slot struct {
	second  int64
	watched time.Duration
	limited time.Duration
	peak    units.Power
	filled  bool
}

// busySmooth is the time constant of the smoothed CPU use.
const busySmooth = 2 * time.Second

// Observe adds one sample at now, on any monotonic clock.
func (d *Demand) Observe(now time.Duration, l Look) {
	seen := Sample{Package: l.Wall, Elapsed: l.Elapsed}.sane()
	l.Wall, l.Elapsed, l.Busy = seen.Package, seen.Elapsed, clamp(l.Busy, 0, 1)
	second := int64(max(now, 0) / time.Second)
	s := &d.slots[second%minute]
	if !s.filled || s.second != second {
		*s = slot{second: second, filled: true}
	}
	s.watched += l.Elapsed
	if l.Limited {
		s.limited += l.Elapsed
	}
	if l.Wall.Known && l.Wall.Power > 0 {
		s.peak = max(s.peak, l.Wall.Power)
		if d.idle == 0 || l.Wall.Power < d.idle {
			d.idle = l.Wall.Power
		}
	}
	if l.BusyKnown {
		weight := min(1, l.Elapsed.Seconds()/busySmooth.Seconds())
		if !d.known {
			weight = 1
		}
		d.busy, d.known = d.busy+(l.Busy-d.busy)*weight, true
	}
}

// LimitedRatio returns the ratio of the last minute in which the node was limited, as far
// as it was sampled.
func (d *Demand) LimitedRatio(now time.Duration) (float64, bool) {
	var watched, limited time.Duration
	d.each(now, minute, func(s *slot) { watched, limited = watched+s.watched, limited+s.limited })
	if watched <= 0 {
		return 0, false
	}
	return limited.Seconds() / watched.Seconds(), true
}

// Watts returns the power that the node could use, at the wall, and whether it is known.
// idle and most bound the model: the power of an idle node (as configured, or lower if
// measured) and the most that it can use.
func (d *Demand) Watts(now time.Duration, idle, most units.Power) (units.Power, bool) {
	ratio, known := d.LimitedRatio(now)
	if !known {
		return 0, false
	}
	var peak units.Power
	d.each(now, peakSlots, func(s *slot) { peak = max(peak, s.peak) })
	if ratio < limitedLittle {
		return min(units.FromWatts(peak.Watts()*peakMore), most), peak > 0
	}
	if !d.known {
		return most, true // limited, and nothing known about how busy: it may need everything
	}
	if d.idle > 0 {
		idle = min(idle, d.idle)
	}
	model := idle.Watts() + d.busy*(most-idle).Watts()
	return min(max(units.FromWatts(model), peak), most), true
}

// each visits the slots of the last n seconds, the current one included.
func (d *Demand) each(now time.Duration, n int64, visit func(*slot)) {
	second := int64(now / time.Second)
	for i := range d.slots {
		if s := &d.slots[i]; s.filled && s.second <= second && s.second > second-n {
			visit(s)
		}
	}
}
