package rapl

import (
	"time"

	"headroom/units"
)

// powerUnlisted bounds the power of a zone that states no highest limit: no
// package, DIMM set or platform known draws more through one zone.
const powerUnlisted = 4 * units.Kilowatt

// peakFactor is how far above its design power a package is believed to go for
// a moment; more is taken for a counter reset.
const peakFactor = 4

// Reading is what a Meter learned from one look at the counter.
type Reading struct {
	// Energy spent in Elapsed. Meaningless unless Known.
	Energy  units.Energy
	Elapsed time.Duration
	// Known is false for the first look, after an error, after a reset and after
	// a gap in which the counter may have wrapped more than once.
	Known bool
}

// Power is the mean power of the reading.
func (r Reading) Power() (units.Power, bool) {
	if !r.Known || r.Elapsed <= 0 {
		return 0, false
	}
	return r.Energy.Over(r.Elapsed), true
}

// Meter turns the energy counter of one zone into energy spent between looks.
// It is for one goroutine.
type Meter struct {
	zone     *Zone
	span     units.Energy
	powerMax units.Power // more than this between two looks is a reset, not a draw

	last   units.Energy
	lastAt time.Duration
	primed bool // false until one look has set the starting point, and after each error
}

// NewMeter makes a meter for z. The highest power it believes is several times
// what the zone states as its highest limit.
func NewMeter(z *Zone) *Meter {
	m := &Meter{zone: z, span: z.Range, powerMax: powerUnlisted}
	if top, ok := z.PowerMax(); ok {
		m.powerMax = peakFactor * top
	}
	return m
}

// Look reads the counter at the moment now, on any clock that only goes
// forward. An error makes the reading unknown, and the one after it too: the
// first difference after an error spans a time that nobody watched.
func (m *Meter) Look(now time.Duration) (Reading, error) {
	e, err := m.zone.Energy()
	if err != nil {
		m.primed = false
		return Reading{}, err
	}
	return m.next(e, now), nil
}

// next is Look without the file: the counter stood at e at the moment now.
func (m *Meter) next(e units.Energy, now time.Duration) Reading {
	from, at, primed := m.last, m.lastAt, m.primed
	m.last, m.lastAt, m.primed = e, now, true
	elapsed := now - at
	if !primed || elapsed <= 0 {
		return Reading{}
	}
	used, ok := spent(from, e, m.span, m.powerMax.For(elapsed))
	return Reading{Energy: used, Elapsed: elapsed, Known: ok}
}

// spent is the energy between two looks at a counter that wraps at span, and
// whether it can be known. It cannot when most, the highest energy possible in
// that time, reaches around the whole span (several wraps look like one), nor
// when the difference is higher than most: then the counter was reset.
func spent(from, to, span, most units.Energy) (units.Energy, bool) {
	d := to - from
	if d < 0 {
		if span <= 0 || from > span {
			return 0, false
		}
		d += span
	}
	if d < 0 || d > most || (span > 0 && most >= span) {
		return 0, false
	}
	return d, true
}
