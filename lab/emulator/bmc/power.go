package bmc

import (
	"math"
	"time"

	"headroom/units"
)

// meter is the BMC's power measurement: samples in, a reading that is renewed now and
// then out. Time is an argument.
type meter struct {
	samples []point // oldest first
	born    time.Time
	frozen  *units.Power

	least, most units.Power
	sum         float64
	count       int
}

type point struct {
	at    time.Time
	watts units.Power
}

func (m *meter) add(now time.Time, p units.Power) {
	if m.born.IsZero() {
		m.born = now
	}
	m.samples = append(m.samples, point{now, p})
	for len(m.samples) > 1 && now.Sub(m.samples[0].at) > history {
		m.samples = m.samples[1:]
	}
	if m.count == 0 || p < m.least {
		m.least = p
	}
	m.most = max(m.most, p)
	m.sum += float64(p)
	m.count++
}

// history is how long samples are kept, above every update interval.
const history = 2 * time.Minute

// at is the reading at now: the power at the last renewal.
func (m *meter) at(now time.Time, update time.Duration) units.Power {
	if m.frozen != nil {
		return *m.frozen
	}
	age := now.Sub(m.born)
	moment := m.born.Add(age - age%update)
	value := units.Power(0)
	for i, s := range m.samples {
		if i > 0 && s.at.After(moment) {
			break
		}
		value = s.watts
	}
	return value
}

// forget starts the statistics again.
func (m *meter) forget() { m.least, m.most, m.sum, m.count = math.MaxInt64, 0, 0, 0 }

// mean is of all samples since the statistics began.
func (m *meter) mean() units.Power {
	if m.count == 0 {
		return 0
	}
	return units.Power(m.sum / float64(m.count))
}

// reading is what the BMC reports now, with its faults. b.mu is held.
func (b *BMC) reading(now time.Time) units.Power {
	f := b.fault
	if !f.Freeze {
		b.meter.frozen = nil
	}
	p := b.meter.at(now, b.cfg.Update)
	if f.Factor != 0 {
		p = units.Power(float64(p) * f.Factor)
	}
	return p + f.Offset
}

// limit is the BMC's power limit.
type limit struct {
	action      byte
	watts       uint16
	correction  uint32 // ms
	period      uint16 // s
	set, active bool

	overSince time.Time // zero: not above the limit
	fired     bool
}

func newLimit(action *byte) limit {
	l := limit{action: powerOff, correction: 500, period: 1}
	if action != nil {
		l.action = *action
	}
	return l
}

// watch notes whether the exception action would have been taken.
func (l *limit) watch(now time.Time, p units.Power) {
	if !l.active || p <= units.Power(l.watts)*units.Watt {
		l.overSince = time.Time{}
		return
	}
	if l.overSince.IsZero() {
		l.overSince = now
	}
	if l.action == powerOff && now.Sub(l.overSince) >= time.Duration(l.correction)*time.Millisecond {
		l.fired = true
	}
}

// toWatts is p in whole watts, as a field of 16 bits holds it.
func toWatts(p units.Power) uint16 {
	return uint16(min(max((p+units.Watt/2)/units.Watt, 0), math.MaxUint16))
}
