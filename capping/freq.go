package capping

import (
	"math"
	"time"

	"headroom/units"
)

// Constants of the frequency rung.
const (
	// freqExponent is the power of frequency that power follows, frequency with
	// voltage partly in step; what a machine really does is learned on top of it.
	freqExponent = 2.4
	// freqSteepest is the highest such power that is believed: clock, and voltage in step twice.
	// A floor below it is not what this range can reach.
	freqSteepest = 3.0
	// freqGrid is the distance of frequencies where the driver takes any.
	freqGrid = 10 * units.Megahertz
	// freqMargin is how far below the cap the mean is kept.
	freqMargin = 0.008
	// freqResponse is the time constant with which power follows a frequency.
	freqResponse = 40 * time.Millisecond
	// freqRise is how much of the whole range the frequency may rise in a second.
	freqRise = 0.6
	// busyEnough: below this share of CPU time in use, power says little about full load.
	busyEnough = 0.90
	// idleFall is how fast what full load draws is believed to have become less, a second.
	idleFall = 0.05
	// creditTime is over how long a mean above or below the cap is made good, and
	// creditMost bounds what is made good at once, as a ratio.
	creditTime = 3 * time.Second
	creditMost = 0.03
	// excessBand: above the expected power by more than this, more than noise.
	excessBand = 0.02
	// scaleMost bounds how far full load may draw above what rated says.
	scaleLow, scaleMost = 0.2, 2.0
	// steadyLevel: a change of frequency that leaves the next sample comparable.
	steadyLevel = 0.02
)

// FreqRange is the range of the policies of one kind.
type FreqRange struct {
	// Min and Max are the lowest and the highest frequency that can be held; equal where
	// nothing can be set.
	Min, Max units.Freq
	// CPUs in these policies.
	CPUs int
}

// draw is what the policies draw at a frequency, as phi counts it.
func (r FreqRange) draw(f units.Freq) float64 {
	return float64(r.CPUs) * math.Pow(min(max(f, r.Min), r.Max).Hertz()/1e9, freqExponent)
}

// FreqConfig configures StepFreq.
type FreqConfig struct {
	// Config gives supply, other draw and DRAM, as for Step.
	Config
	// Rungs are the frequencies that can be written, rising or falling; empty: every
	// multiple of 10 MHz from Min to Max.
	Rungs []units.Freq
	// Min and Max of the frequency. Both above 0.
	Min, Max units.Freq
	// Ranges of the policies where they differ, one for each kind: each follows a frequency
	// as far as its own range goes, and no further is credited. Empty: all reach from Min to Max.
	Ranges []FreqRange
	// Policies that can be set apart; 0 counts as 1. With several of one kind, neighbouring
	// frequencies stand side by side; else they follow each other in time.
	Policies int
	// Rated and Floor are the draw at the wall at full load, at Max and at Min.
	Rated, Floor units.Power
	// Strict writes no setting whose charge is above the cap: no excess is ever
	// reported, for a mean that stays up to a rung below the cap.
	Strict bool
}

// FreqSample is a sample with the CPU use.
type FreqSample struct {
	Sample
	// Busy is the share of CPU time in use, 0 to 1, and whether it is known.
	Busy      float64
	BusyKnown bool
}

// FreqActions are the ceilings to write now.
type FreqActions struct {
	// High is for the first HighPolicies policies, Low for the others.
	Low, High    units.Freq
	HighPolicies int
	// Rail that the frequency stands at.
	Rail Rail
	// Excess is what full load draws above the cap at the lowest frequency, at the
	// wall: the business of the bandwidth rung. 0 above the floor.
	Excess units.Power
	// Charge is the draw at full load under the highest setting written lately, at
	// the wall: what the node is to be charged (design promise P4).
	Charge units.Power
}

// FreqState is kept between steps. The zero FreqState is a node to which no frequency was
// written.
type FreqState struct {
	// Limited says that the frequency held the node back when it was last seen.
	Limited bool

	begun    bool
	level    int // settings from the lowest: rung times policies, and policies one rung higher
	phi      float64
	fit      line    // power of package and DRAM over phi, at full load, W
	seen     float64 // phi that the power of the next sample stands on, so far
	steadyOf int     // samples since phi last changed by much
	credit   float64 // J of package and DRAM saved (+) or overdrawn (-) against the aim
	carry    float64 // sigma-delta: part of a level that is owed
	scale    float64 // most seen over what Rated and Floor say
	recent   [4]float64
	turn     int
}

// StepFreq decides the frequencies for a cap on a machine without package limits: the
// setting whose mean power at full load meets the cap. It uses feed-forward from a line of
// power over frequency that is learned online, and mixes two neighbouring settings by
// sigma-delta. Down at once, up at most 60 % of the range per second; an unknown sample
// never raises it.
//
// It learns from the duration of its samples and needs no clock. Frequency does not bound
// power as RAPL does: an idle node is kept at the frequency that full load may use, because
// load changes faster than any loop.
func StepFreq(in FreqSample, granted units.Power, s FreqState, c FreqConfig) (FreqActions, FreqState) {
	in.Sample = in.sane()
	known := in.Package.Known && (in.DRAM.Known || !c.HasDRAM)
	if !s.begun {
		s.begun, s.fit, s.scale, s.level = true, c.prior(), 1, -1
	}
	aim := c.share(granted) - freqMargin*granted.Watts()*c.Efficiency
	if known && in.Elapsed > 0 && s.level >= 0 {
		s = s.observe(in, aim, c)
	}
	s, want, rail := s.choose(aim, granted, c)
	if s.level >= 0 {
		switch {
		case want > s.level && !known:
			want = s.level
		case want > s.level:
			rise := freqRise * min(in.Elapsed.Seconds(), 1) * float64(c.top())
			want = min(want, s.level+max(1, int(rise)))
		}
	}
	s = s.set(want, in.Elapsed, c)
	return s.actions(aim, rail, c), s
}

// share returns the power of package and DRAM for a cap, in W.
func (c FreqConfig) share(granted units.Power) float64 {
	return granted.Watts()*c.Efficiency - c.Other.Watts()
}

// prior returns the line through full load at the lowest frequencies and at Max. The floor
// is that of the policies that have a range; what the others draw does not fall.
func (c FreqConfig) prior() line {
	x, high := c.reach(), c.share(c.Rated)
	low := max(c.share(c.Floor), high*math.Pow(x, freqSteepest/freqExponent))
	l := line{b: max(1, (high-low)/max(1-x, 0.01))}
	l.a = high - l.b
	l.paa, l.pbb = sq(0.05*high), sq(0.15*l.b)
	return l
}

// phiOf returns the mean of (f/Max)^e over all CPUs, each at the frequency or at the end of
// its range.
func (c FreqConfig) phiOf(f units.Freq) float64 { return c.phiOver(c.Ranges, f) }

// reach returns the lowest phi of the policies that have a range; 1 where none has.
func (c FreqConfig) reach() float64 {
	if len(c.Ranges) == 0 {
		return c.phiOf(c.Min)
	}
	var able []FreqRange
	for _, r := range c.Ranges {
		if r.Min < r.Max {
			able = append(able, r)
		}
	}
	if len(able) == 0 {
		return 1
	}
	return c.phiOver(able, c.Min)
}

func (c FreqConfig) phiOver(ranges []FreqRange, f units.Freq) float64 {
	if len(ranges) == 0 {
		return math.Pow(clamp(float64(f)/float64(max(c.Max, 1)), 0.001, 1), freqExponent)
	}
	var now, full float64
	for _, r := range ranges {
		now, full = now+r.draw(f), full+r.draw(r.Max)
	}
	return clamp(now/max(full, 1e-9), 1e-9, 1)
}

// Travels reports whether any policy can be set at all: what cannot takes nothing away.
func (c FreqConfig) Travels() bool { return c.reach() < 1 }

// Least returns the draw at full load, at the wall, with every policy at its lowest.
func (c FreqConfig) Least() units.Power { return c.charge(c.phi(0), 1) }

// policies returns the number of policies that are set apart.
func (c FreqConfig) policies() int {
	if len(c.Ranges) > 0 {
		return 1 // which ones are one step higher would matter
	}
	return max(1, c.Policies)
}

// rungs returns the number of frequencies.
func (c FreqConfig) rungs() int {
	if len(c.Rungs) > 0 {
		return len(c.Rungs)
	}
	return 2 + int(max(0, c.Max-c.Min-1)/freqGrid)
}

// rung returns frequency i, counted from the lowest.
func (c FreqConfig) rung(i int) units.Freq {
	i = min(max(i, 0), c.rungs()-1)
	if len(c.Rungs) == 0 {
		return min(c.Min+units.Freq(i)*freqGrid, c.Max)
	}
	if last := len(c.Rungs) - 1; c.Rungs[0] > c.Rungs[last] {
		i = last - i
	}
	return c.Rungs[i]
}

// top returns the highest level.
func (c FreqConfig) top() int { return (c.rungs() - 1) * c.policies() }

// phi returns the mean of (f/Max)^e over the policies at a level.
func (c FreqConfig) phi(level int) float64 {
	n := c.policies()
	level = min(max(level, 0), c.top())
	low := c.phiOf(c.rung(level / n))
	if high := level % n; high > 0 {
		low += (c.phiOf(c.rung(level/n+1)) - low) * float64(high) / float64(n)
	}
	return low
}

// observe learns from the mean power since the last step.
func (s FreqState) observe(in FreqSample, aim float64, c FreqConfig) FreqState {
	y := in.Package.Power.Watts()
	if c.HasDRAM {
		y += in.DRAM.Power.Watts()
	}
	dt := min(in.Elapsed.Seconds(), 1)
	// Power comes after frequency: the sample begins with some of the one before.
	late := min(1, freqResponse.Seconds()/max(in.Elapsed.Seconds(), 1e-9))
	x := s.phi + (s.seen-s.phi)*late
	guess, variance := s.fit.at(x)
	noise := sq(0.5+0.01*y) + sq(s.fit.b*(s.phi-s.seen)*0.5)
	s.Limited = y > guess*(1-limitedBand) && s.level < c.top()
	s.fit.drift(sq(0.01*guess)*dt, sq(0.02*s.fit.b)*dt)
	switch busy := clamp(in.Busy, 0, 1); {
	case y > guess*(1+excessBand) || (in.BusyKnown && busy >= busyEnough):
		s.fit.learn(x, y, noise)
	case !in.BusyKnown && y > guess*(1-2*limitedBand):
		s.fit.learn(x, y, noise)
	case !in.BusyKnown:
		s.fit.learn(x, max(y, guess*(1-idleFall*dt)), noise+variance)
	}
	s.fit.keep(c.prior())
	s = s.tally(y, aim, dt)
	if s.steadyOf > 1 { // what is charged stands on steady samples only
		first := c.prior()
		expected, _ := first.at(x)
		s.scale = clamp(max(s.scale, min(y/max(expected, 1), s.scale*(1+0.02*dt))), 1, scaleMost)
	}
	return s
}

// tally keeps the difference of the mean to the target; a node that does not use its
// frequency earns no credit.
func (s FreqState) tally(y, aim, dt float64) FreqState {
	if s.Limited || y > aim {
		s.credit += (aim - y) * dt
	}
	most := creditMost * max(aim, 1) * creditTime.Seconds()
	s.credit = clamp(s.credit, -most, most/8)
	return s
}

// keep bounds the line around the configured one.
func (l *line) keep(prior line) {
	l.b = clamp(l.b, scaleLow*prior.b, scaleMost*prior.b)
	high := prior.a + prior.b
	l.a = clamp(l.a, -high/2, high)
}

// choose finds the level whose power meets the target, alternating between two.
func (s FreqState) choose(aim float64, granted units.Power, c FreqConfig) (next FreqState, level int, rail Rail) {
	fit := s.fit
	target := (aim + s.credit/creditTime.Seconds() - fit.a) / fit.b
	n := c.below(target)
	switch {
	case c.Strict:
		s.carry = 0
		first := c.prior()
		n = max(0, min(n, c.below((c.share(granted)/max(1, s.scale)-first.a)/first.b+1e-9)))
		for n > 0 && c.charge(c.phi(n), s.scale) > granted {
			n-- // rounding alone; power grows with the level
		}
		if n == c.top() {
			return s, n, AtTop
		}
		if n == 0 && c.charge(c.phi(0), s.scale) > granted {
			return s, 0, AtFloor
		}
		return s, n, Free
	case n < 0:
		s.carry = 0
		return s, 0, AtFloor
	case n >= c.top():
		s.carry = 0
		return s, c.top(), AtTop
	}
	low, high := c.phi(n), c.phi(n+1)
	s.carry += (target - low) / max(high-low, 1e-9)
	if s.carry >= 1 {
		s.carry--
		return s, n + 1, Free
	}
	return s, n, Free
}

// below returns the highest level with a phi not above x; -1: none.
func (c FreqConfig) below(x float64) int {
	low, high := -1, c.top()+1 // phi rises with the level
	for high-low > 1 {
		if mid := (low + high) / 2; c.phi(mid) <= x {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// set takes the level on.
func (s FreqState) set(level int, elapsed time.Duration, c FreqConfig) FreqState {
	phi := c.phi(level)
	if s.level < 0 {
		s.phi = phi
	}
	if math.Abs(phi-s.phi) > steadyLevel*phi {
		s.steadyOf = 0
	} else {
		s.steadyOf = min(s.steadyOf+1, 100)
	}
	if elapsed > 0 || s.level < 0 {
		s.seen = s.phi
		s.turn = (s.turn + 1) % len(s.recent)
		s.recent[s.turn] = 0
	}
	s.level, s.phi = level, phi
	s.recent[s.turn] = max(s.recent[s.turn], phi)
	return s
}

func (s FreqState) actions(aim float64, rail Rail, c FreqConfig) FreqActions {
	n := c.policies()
	a := FreqActions{Low: c.rung(s.level / n), HighPolicies: s.level % n, Rail: rail}
	a.High = a.Low
	if a.HighPolicies > 0 {
		a.High = c.rung(s.level/n + 1)
	}
	highest := s.phi
	for _, phi := range s.recent {
		highest = max(highest, phi)
	}
	a.Charge = c.charge(highest, s.scale)
	if rail == AtFloor {
		full, _ := s.fit.at(c.phi(0))
		a.Excess = units.FromWatts(max(0, full-aim) / c.Efficiency)
	}
	return a
}

// charge returns the power at the wall at full load under phi.
func (c FreqConfig) charge(phi, scale float64) units.Power {
	first := c.prior()
	full, _ := first.at(phi)
	return units.FromWatts((full*max(1, scale) + c.Other.Watts()) / c.Efficiency)
}

// Charge returns the charge of a node with this highest frequency on every CPU: its power
// at full load by Rated and Floor, or the highest measured if that is more. It is reported
// for frequencies that read back.
func (c FreqConfig) Charge(highest units.Freq, s FreqState) units.Power {
	return c.charge(c.phiOf(highest), s.scale)
}
