package ipmi

import (
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/units"
)

// Bounds of what the tracker accepts.
type limits struct {
	least, most     units.Power
	period, timeout time.Duration
}

const (
	// gapsKept bounds what the interval is learned from, gapsNeeded is when it is.
	gapsKept   = 16
	gapsNeeded = 3
	// A value that stands still for frozenFactor intervals is stale, within these bounds;
	// frozenUnlearned while the interval is not known.
	frozenFactor    = 10
	frozenLeast     = 15 * time.Second
	frozenMost      = 5 * time.Minute
	frozenUnlearned = time.Minute
	// jumpFactor is a change that no node makes between two readings, but that a BMC makes that
	// mixes up W and mW; jumpTrust is how long it must last before it is accepted.
	jumpFactor = 100
	jumpTrust  = 5 * time.Minute
	// A reference that stands off by more than both of these, for movedFactor intervals
	// altogether and at least movedWait, while the value stands still, shows that the value
	// is frozen. Less than that falls between two readings of a BMC that is well.
	movedShare  = 0.05
	movedLeast  = 5 * units.Watt
	movedFactor = 4
	movedWait   = 10 * time.Second
	// referenceSmooth is the time constant of the reference, referenceLife how long it counts,
	// referenceLag how much later than the BMC it may show a step: it is a mean over a second,
	// reported once a second.
	referenceSmooth = 2 * time.Second
	referenceLife   = 5 * time.Second
	referenceLag    = 2 * time.Second
)

// event is what happened last between the meter and the BMC.
type event int

const (
	eventNone   event = iota // not asked yet
	eventGood                // a plausible value
	eventFailed              // no answer, or a refusal that may pass
	eventInsane              // an answer that cannot be true
	eventAbsent              // nothing to ask
)

// tracker judges readings; time is always an argument. It is not safe for concurrent use.
type tracker struct {
	limits limits
	suite  byte
	last   event
	why    string

	// Of the last good value.
	has              bool
	value            units.Power
	source           Source
	sensors          string
	note             string
	changedAt, asked time.Duration
	serial           uint64
	gaps             []time.Duration // between the last changes, newest last
	statistics       statistics      // as answered last
	measuredAt       time.Duration   // when they changed last
	jumpSince        time.Duration   // of an implausible jump that persists
	jumpValue        units.Power

	// The reference in watts, smoothed; between what it stood when the value changed last,
	// and how long it stood off since.
	reference                   float64
	referenceAt                 time.Duration
	referenceLow, referenceHigh float64
	away                        time.Duration
}

func newTracker(l limits) tracker { return tracker{limits: l} }

// good takes a value whose question was sent at asked and answered at now.
func (t *tracker) good(asked, now time.Duration, p units.Power, source Source, sensors string) {
	if why := t.implausible(now, p); why != "" {
		t.insane(why)
		return
	}
	t.last, t.why, t.jumpSince = eventGood, "", 0
	if t.has && source == t.source && p == t.value {
		t.asked = asked
		return
	}
	if t.has && source == t.source {
		t.learn(now - t.changedAt)
	}
	t.has, t.value, t.source, t.sensors = true, p, source, sensors
	t.changedAt, t.asked = now, asked
	t.serial++
	t.referenceLow, t.referenceHigh, t.away = t.reference, t.reference, 0
}

// measured takes the BMC's own statistics: as long as they change, it measures.
func (t *tracker) measured(now time.Duration, s statistics) {
	if s != t.statistics {
		t.statistics, t.measuredAt = s, now
	}
}

// outside is why this node cannot draw p; empty when it can.
func (l limits) outside(p units.Power) string {
	switch {
	case p < l.least:
		return fmt.Sprintf("%v is below the minimum of this node", p)
	case p > l.most:
		return fmt.Sprintf("%v is above the maximum of this node", p)
	}
	return ""
}

// implausible is why p cannot be the node's power; empty when it can.
//
// Lesson 11: one BMC in a fleet answers 1000 times too much, another 4294967295.
func (t *tracker) implausible(now time.Duration, p units.Power) string {
	why := t.limits.outside(p)
	switch {
	case why != "":
		return why
	case !t.has || (p < t.value*jumpFactor && p > t.value/jumpFactor):
		return ""
	}
	same := t.jumpSince != 0 && p < 2*t.jumpValue && p > t.jumpValue/2
	if !same {
		t.jumpSince, t.jumpValue = now, p
	}
	if same && now-t.jumpSince >= jumpTrust {
		return ""
	}
	return fmt.Sprintf("a change from %[2]v to %[1]v is implausible", p, t.value)
}

func (t *tracker) learn(gap time.Duration) {
	t.gaps = append(t.gaps, gap)
	if len(t.gaps) > gapsKept {
		t.gaps = slices.Delete(t.gaps, 0, 1)
	}
}

// interval is the lower quartile of the gaps: a value that happens to stay the same at
// an update makes a longer gap, nothing makes a shorter one.
func (t *tracker) interval() time.Duration {
	if len(t.gaps) < gapsNeeded {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.gaps))
	return sorted[len(sorted)/4]
}

// insane notes an answer that cannot be true.
func (t *tracker) insane(why string) { t.last, t.why = eventInsane, why }

// failed notes a question without a usable answer.
func (t *tracker) failed(why string) { t.last, t.why = eventFailed, why }

// absent notes that there is nothing to ask.
func (t *tracker) absent(why string) { t.last, t.why = eventAbsent, why }

// reset forgets what a restarted BMC may do differently: the learned interval.
func (t *tracker) reset() { t.gaps = nil }

// observeReference takes the node's power by other sensors.
func (t *tracker) observeReference(now time.Duration, p units.Power) {
	w, gap := p.Watts(), now-t.referenceAt
	known := t.referenceAt != 0 && gap < referenceLife
	t.referenceAt = now
	if !known {
		t.reference, t.referenceLow, t.referenceHigh, t.away = w, w, w, 0
		return
	}
	t.reference += (w - t.reference) * (1 - math.Exp(-gap.Seconds()/referenceSmooth.Seconds()))
	if now-t.changedAt <= referenceLag {
		t.referenceLow, t.referenceHigh = min(t.referenceLow, w), max(t.referenceHigh, w)
		return
	}
	slack := max(movedLeast.Watts(), movedShare*t.value.Watts())
	if t.reference < t.referenceLow-slack || t.reference > t.referenceHigh+slack {
		t.away += gap
	}
}

// reading is what is known at now.
func (t *tracker) reading(now time.Duration) Reading {
	r := Reading{
		ChangedAt: t.changedAt, AskedAt: t.asked, Source: t.source, Sensors: t.sensors, Suite: t.suite,
		Serial: t.serial, Interval: t.interval(),
	}
	r.State, r.Why = t.judge(now)
	if r.State == StateOK {
		r.Power, r.Known, r.Note = t.value, true, t.note
	}
	return r
}

func (t *tracker) judge(now time.Duration) (State, string) {
	switch {
	case t.last == eventNone:
		return StateUnknown, "not read yet"
	case t.last == eventAbsent:
		return StateAbsent, t.why
	case t.last == eventInsane:
		return StateInsane, t.why
	case !t.has:
		return StateUnknown, t.why
	case now-t.asked > t.silence():
		return StateStale, fmt.Sprintf("no answer for %v%s", (now - t.asked).Round(time.Second), because(t.why))
	}
	if why := t.frozen(now); why != "" {
		return StateStale, why
	}
	return StateOK, ""
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// silence returns how long the last value is valid while the BMC does not answer: one lost or
// refused answer is no event. The wait for a hung BMC is no excuse: it may be 20 s.
func (t *tracker) silence() time.Duration {
	return 3*t.limits.period + min(t.limits.timeout, 2*time.Second)
}

// frozen returns why a value that is still answered is no longer valid; empty if it is.
func (t *tracker) frozen(now time.Duration) string {
	still, every := now-t.changedAt, t.interval()
	expected := ""
	if every > 0 {
		expected = fmt.Sprintf(", expected a change every %v", every.Round(100*time.Millisecond))
	}
	if t.referenceAt != 0 && now-t.referenceAt < referenceLife {
		if t.away > max(movedWait, movedFactor*every) {
			return fmt.Sprintf("the same value for %v while the load changed%s", still.Round(time.Second), expected)
		}
		return ""
	}
	wait := frozenUnlearned
	if every > 0 {
		wait = min(max(frozenFactor*every, frozenLeast), frozenMost)
	}
	if still > wait && now-t.measuredAt > wait {
		return fmt.Sprintf("the same value for %v%s", still.Round(time.Second), expected)
	}
	return ""
}
