package bmc

import (
	"math"
	"time"

	"headroom/units"
)

// meter is the BMC's power measurement: samples in, a reading that is renewed now and
// then out. Time is an argument.
type meter struct {
	shown units.Power
	next  time.Time // of a renewal

	least, most units.Power
	sum         float64
	count       int
}

// add takes a sample, which is the reading if a renewal is due, unless it is frozen.
func (m *meter) add(now time.Time, p units.Power, update time.Duration, frozen bool) {
	if m.next.IsZero() {
		m.next = now
	}
	if !frozen && !now.Before(m.next) {
		m.shown = p
	}
	for !m.next.After(now) {
		m.next = m.next.Add(update)
	}
	if m.count == 0 || p < m.least {
		m.least = p
	}
	m.most = max(m.most, p)
	m.sum += float64(p)
	m.count++
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
func (b *BMC) reading() units.Power {
	p := b.meter.shown
	if b.fault.Factor != 0 {
		p = units.Power(float64(p) * b.fault.Factor)
	}
	return p + b.fault.Offset
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
