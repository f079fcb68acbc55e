package rapl

import (
	"fmt"
	"time"

	"headroom/units"
)

// powerUnlisted bounds the power of a zone that states no highest limit: no
// package, DIMM set or platform known draws more through one zone.
const powerUnlisted = 4 * units.Kilowatt

// peakFactor is the multiple of its design power that a package may reach for
// a moment; more is taken for a counter reset.
const peakFactor = 4

// suspendMin is by how much more the boot-time clock must have moved than the
// awake one before the difference is a suspend and not the time between reading
// the two.
const suspendMin = 250 * time.Millisecond

// Why is the source of a Reading, or the reason why it is unknown.
type Why int

// Why a reading is known or not.
const (
	WhyFirst     Why = iota // first look, or the first after an error, a reopened file or Forget
	WhyMeasured             // known
	WhyFailed               // the counter could not be read, or read what it cannot hold
	WhySameTime             // no time has passed since the last read
	WhyReset                // the counter went back without having reached its range
	WhyJump                 // the counter went ahead by more than any power can account for
	WhyGap                  // the counter may have wrapped more than once since the last read
	WhySuspended            // the machine slept in between
)

// String is the reason in the words that status shows.
func (w Why) String() string {
	switch w {
	case WhyMeasured:
		return "measured"
	case WhyFailed:
		return "counter not readable"
	case WhySameTime:
		return "no time passed"
	case WhyReset:
		return "counter was reset"
	case WhyJump:
		return "counter jumped"
	case WhyGap:
		return "too long since the last read"
	case WhySuspended:
		return "the machine was suspended"
	case WhyFirst:
	}
	return "first read"
}

// Reading is the result of one read of the counter.
type Reading struct {
	// Energy spent in Elapsed. 0 unless Known.
	Energy  units.Energy
	Elapsed time.Duration
	// Known is false for the first look, after an error, after a reset and after
	// a gap in which the counter may have wrapped more than once.
	Known bool
	// Why is WhyMeasured when Known, else the reason.
	Why Why
}

// Power is the mean power of the reading.
func (r Reading) Power() (units.Power, bool) {
	if !r.Known || r.Elapsed <= 0 {
		return 0, false
	}
	return r.Energy.Over(r.Elapsed), true
}

// Moment is one moment on two clocks.
type Moment struct {
	Boot  time.Duration // since boot, sleep included (CLOCK_BOOTTIME)
	Awake time.Duration // since boot, sleep left out (CLOCK_MONOTONIC)
}

// Meter turns the energy counter of one zone into energy spent between looks.
// Unknown energy is left out of the total and reported as unknown: no
// value is ever invented. It is for one goroutine.
type Meter struct {
	zone     *Zone
	span     units.Energy
	powerMax units.Power // more than this between two reads is a reset

	last       units.Energy
	at         Moment
	primed     bool // false until the first read, and after each error
	generation int  // of the zone's files at the last look

	total   units.Energy
	counted bool          // total contains at least one known reading
	covered time.Duration // time that total covers
	missed  time.Duration // time since the first look that it does not
	moved   time.Duration // when the counter last showed another value
}

// NewMeter returns a meter for z. The highest power it believes is several times
// what the zone states as its highest limit.
func NewMeter(z *Zone) *Meter {
	m := &Meter{zone: z, span: z.Range, powerMax: powerUnlisted}
	if top, ok := z.PowerMax(); ok {
		m.powerMax = peakFactor * top
	}
	return m
}

// Look reads the counter at the moment now, on any clock that only goes
// forward. An error makes this reading and the next one unknown: the
// first difference after an error spans an unobserved time.
func (m *Meter) Look(now time.Duration) (Reading, error) {
	return m.LookAt(Moment{Boot: now, Awake: now})
}

// LookAt is Look on two clocks, so that an interval in which the machine slept
// is detected: what the counter did meanwhile depends on the machine, so such an
// interval is unknown.
func (m *Meter) LookAt(now Moment) (Reading, error) {
	e, err := m.zone.Energy()
	if err == nil && m.span > 0 && e >= m.span {
		err = fmt.Errorf("rapl: %s: %d uJ: %w", m.zone.Label, e, errImplausible)
	}
	if err != nil {
		return m.fail(now), err
	}
	if m.generation != m.zone.generation {
		m.generation = m.zone.generation
		m.primed = false
	}
	return m.next(e, now), nil
}

// Total is the energy since the first look, through wraps and resets, less what
// was spent while it could not be known. It never goes back. It is false until a
// reading was known.
func (m *Meter) Total() (units.Energy, bool) { return m.total, m.counted }

// Unchanged is for how long the counter has shown the same value, as of the last
// look that read it; 0 before there were two. A package that does anything
// moves its counter every millisecond, so seconds of this under load are a
// counter that froze.
func (m *Meter) Unchanged() time.Duration {
	if !m.primed {
		return 0
	}
	return m.at.Boot - m.moved
}

// Count is the counter as last read, and false when the last look failed.
func (m *Meter) Count() (units.Energy, bool) { return m.last, m.primed }

// fail records a failed read.
func (m *Meter) fail(now Moment) Reading {
	r := Reading{Why: WhyFailed}
	if m.primed || m.missed > 0 || m.counted {
		r.Elapsed = max(0, now.Boot-m.at.Boot)
		m.missed += r.Elapsed
	}
	m.primed, m.at = false, now
	return r
}

// next is LookAt without the file: the counter stood at e at the moment now.
func (m *Meter) next(e units.Energy, now Moment) Reading {
	from, at, primed := m.last, m.at, m.primed
	elapsed := now.Boot - at.Boot
	if primed && elapsed == 0 {
		return Reading{Why: WhySameTime} // the next read covers both
	}
	if !primed || e != from {
		m.moved = now.Boot
	}
	m.last, m.at, m.primed = e, now, true
	if !primed || elapsed < 0 {
		if m.counted || m.missed > 0 {
			m.missed += max(0, elapsed)
		}
		return Reading{}
	}
	r := Reading{Elapsed: elapsed}
	if asleep := elapsed - (now.Awake - at.Awake); asleep >= suspendMin || asleep <= -suspendMin {
		r.Why = WhySuspended
		m.moved = now.Boot
	} else {
		r.Energy, r.Why = spent(from, e, m.span, m.powerMax.For(elapsed))
	}
	if r.Why != WhyMeasured {
		m.missed += elapsed
		return r
	}
	r.Known = true
	m.total += r.Energy
	m.covered += elapsed
	m.counted = true
	return r
}

// spent is the energy between two looks at a counter that wraps at span, and
// whether it can be known. It cannot when most, the highest energy possible in
// that time, reaches around the whole span (several wraps look like one), nor
// when the difference is higher than most: then the counter was reset.
func spent(from, to, span, most units.Energy) (units.Energy, Why) {
	if most < 0 || span > 0 && most >= span {
		return 0, WhyGap
	}
	d, backwards := to-from, to < from
	if backwards {
		if span <= 0 || from > span {
			return 0, WhyReset
		}
		d += span
	}
	switch {
	case d >= 0 && d <= most:
		return d, WhyMeasured
	case backwards:
		return 0, WhyReset
	}
	return 0, WhyJump
}
