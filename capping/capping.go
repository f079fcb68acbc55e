// Package capping is the control law of a node: which limits to write so that the whole
// machine keeps a cap at the wall.
//
// The one idea: a model relates the package limit to the cap,
//
//	wall = (package + DRAM + other) / efficiency
//	package limit = cap * efficiency - other - DRAM
//
// so a new cap changes the limit at once (feed-forward), and the RAPL controller of the
// processor follows within milliseconds. A slow integral of the difference between cap and
// power corrects the errors of the model (feedback), down fast and up slowly. Lefurgy, Wang
// and Ware ("Server-level power control", ICAC 2007) use feedback of wall power only and need
// several readings to settle; the model avoids those.
//
// Besides Step: Learner, the slow half of the control, learns from a late BMC how the wall
// differs from the model and gives Step a better Config. Share divides a limit between
// sockets. StepFreq and StepBandwidth enforce a cap without package limits. Choose selects
// the control that a node uses, with the reason. Sprint raises a cap for a limited time.
// Demand estimates the power that the node could use. Bind finds limits that read back well and
// do not hold the node at its cap.
//
// Guarantees: Step depends on its arguments only; a limit is a multiple of 1/8 W, never 0,
// never above the maximum of the zone; an unknown sample never raises a limit; the integral
// does not wind up while the processor does not reach its limit or the limit is at a bound.
// The package does no I/O, starts no goroutine and reads no clock.
package capping

import (
	"math"
	"time"

	"headroom/units"
)

// Grain is the smallest step of a limit in hardware; limits are rounded down to it.
const Grain = units.Watt / 8

// Config configures the law. Zero gains have defaults.
type Config struct {
	// Other is what is drawn behind the supply by everything that is neither
	// package nor DRAM.
	Other units.Power
	// Efficiency of the supply, above 0 and at most 1.
	Efficiency float64
	// PackageMin is the least limit worth writing, for all packages together.
	PackageMin units.Power
	// PackageLeast is the lowest limit that the packages take together; 0: not known.
	PackageLeast units.Power
	// PackageMax is the highest limit the packages take together; 0: not known.
	PackageMax units.Power
	// HasDRAM says that DRAM power is measured. Without, it is part of Other.
	HasDRAM bool
}

// Constants of the law, chosen on the emulated plant and checked by the tests
// there: settling, overshoot and mean of design section 9.
const (
	// margin is how far below the cap the feedback aims, so that the mean over
	// seconds stays on the safe side of it.
	margin = 0.006
	// limitedBand: within this ratio of its limit a package counts as limited.
	limitedBand = 0.04
	// settle is how long after a step of the limit the feedback waits: samples
	// until then are means over the old limit and the new one.
	settle = 600 * time.Millisecond
	// stepMin is the change of cap, as a ratio, that counts as a step.
	stepMin = 0.01
	// gain is the part of the difference taken out per second. It is the same both
	// ways: counters move in steps, so single samples read high and low by turns,
	// and a gain that differs would turn that noise into a lower limit.
	gain = 0.2
	// gainOver is the gain while the smoothed power is above the cap by more than
	// overBand: down fast.
	gainOver, overBand = 1.0, 0.03
	// smoothing is the time constant of the smoothed power.
	smoothing = 1 * time.Second
	// biasDown and biasUp bound the correction, as ratios of the DC power behind
	// the cap: a model that is off by more is a broken sensor.
	biasDown, biasUp = 0.30, 0.03
	// slewUp bounds how fast feedback raises the limit, as a ratio a second.
	slewUp = 0.04
	// dramJump is the rise of a DRAM reading above the smoothed one, as a ratio,
	// that is believed at once.
	dramJump = 0.30
	// dramUp and dramDown are the powers of the change of limit by which memory is
	// foreseen to follow: its traffic follows frequency, power the square of
	// frequency or more. Both err on the side of more DRAM, so of a lower limit.
	dramUp, dramDown = 1.0 / 2, 1.0 / 3
	// dramMost bounds what is foreseen.
	dramMost = 1.5
	// foresight is how long after a step what was foreseen counts: readings until
	// then are mostly of the time before it.
	foresight = 200 * time.Millisecond
	// dramAssumed is what is set aside for DRAM before its first reading, as a
	// ratio of the DC power behind the cap.
	dramAssumed = 0.10
	// shortAbove is how far the short-term limit stands above the long-term one.
	shortAbove = 0.01
	// hysteresis: feedback moves the limit only by this ratio or more, so that a
	// steady node is not rewritten at each step.
	hysteresis = 0.0015
)

// Windows of the two limits. RAPL bounds means over these, so a step settles no
// faster than the long one.
const (
	LongWindow  = 100 * time.Millisecond
	ShortWindow = 10 * time.Millisecond
)

// Reading is a power that may be unknown.
type Reading struct {
	Power units.Power
	Known bool
}

// Sample is the measurement since the last step.
type Sample struct {
	// Package is the mean power of all packages together.
	Package Reading
	// DRAM is the mean power of all memory; not looked at without HasDRAM.
	DRAM Reading
	// Elapsed is the time that both are means over.
	Elapsed time.Duration
}

// State is kept between steps. The zero State is a node of
// which nothing is known and to which nothing was written.
type State struct {
	// Cap of the step before; 0 before the first.
	Cap units.Power
	// Limit wanted by the step before, for all packages together; 0 before the first.
	Limit units.Power
	// SettledAt is when the last step of the limit counts as carried out.
	SettledAt time.Duration
	// Limited says that the cap held the packages back when they were last seen.
	Limited bool

	bias    float64 // correction of the model, W of DC power
	dram    float64 // DRAM power, smoothed, W
	hasDRAM bool    // dram stands on a reading
	pkg     float64 // package power, smoothed, W
	hasPkg  bool    // pkg stands on a reading
}

// Rail reports whether the limit wanted could be had.
type Rail int

// Rails.
const (
	Free    Rail = iota // the limit is what the law wants
	AtFloor             // the cap asks for less than the packages can be limited to
	AtTop               // the cap is above what the packages can use
)

// String is the rail in words.
func (r Rail) String() string {
	switch r {
	case AtFloor:
		return "at the floor"
	case AtTop:
		return "at the top"
	case Free:
	}
	return "free"
}

// Actions are what to write now.
type Actions struct {
	// Long and Short are the two limits, for all packages together.
	Long, Short units.Power
	// Rail that the limit stands at.
	Rail Rail
	// Excess is what packages and memory at PackageLeast draw above the cap, at the wall;
	// 0 where the cap asks for no less.
	Excess units.Power
}

// partMost is above what the packages, or the memory, of any machine draw.
const partMost = 100 * units.Kilowatt

// sane makes unknown what cannot be true: counters that jumped give powers below
// nothing or above anything.
func (in Sample) sane() Sample {
	for _, r := range []*Reading{&in.Package, &in.DRAM} {
		if r.Power < 0 || r.Power > partMost {
			*r = Reading{}
		}
	}
	in.Elapsed = max(0, in.Elapsed)
	return in
}

// Step decides the limits that go with the granted cap. now is any clock that
// only goes forward.
func Step(now time.Duration, in Sample, granted units.Power, s State, c Config) (Actions, State) {
	in = in.sane()
	known := in.Package.Known && (in.DRAM.Known || !c.HasDRAM)
	s = s.observe(now, in, c)
	dc := granted.Watts() * c.Efficiency // what may flow behind the supply
	switch {
	case s.isStep(granted):
		s.bias = clamp(s.bias, -biasDown*dc, biasUp*dc)
		s.SettledAt = now + settle
		s.dram = s.foresee(dc - c.Other.Watts())
	case known && now >= s.SettledAt:
		s.bias = s.integrate(in, dc, c)
	}
	want := s.want(dc, c)
	switch held := s.Limit.Watts(); {
	case s.Limit == 0: // the first step: anything is better than what stands there
		s.Cap = granted
	case !known && want > held: // the cap counts as not yet carried out, so that it is a step again
		want = held
	default:
		want, s.Cap = s.restrain(want, now < s.SettledAt, in.Elapsed), granted
	}
	long, rail := c.rails(want)
	s.Limit = long
	a := Actions{Long: long, Short: max(grain(want*(1+shortAbove)), c.PackageLeast), Rail: rail}
	if want < c.PackageLeast.Watts() {
		a.Excess = max(0, c.Wall(long, units.FromWatts(s.dram))-granted)
	}
	return a, s
}

// observe takes the sample into the smoothed powers. While a step settles they
// follow at once.
func (s State) observe(now time.Duration, in Sample, c Config) State {
	// After a step the mean begins anew and grows to its full length.
	since := min(max(now-(s.SettledAt-settle/2), in.Elapsed, 1), smoothing)
	part := min(1, in.Elapsed.Seconds()/since.Seconds())
	s = s.observeDRAM(now, in, c)
	if in.Package.Known {
		p := in.Package.Power.Watts()
		if s.hasPkg {
			p = s.pkg + (p-s.pkg)*part
		}
		s.pkg, s.hasPkg = p, true
		// At the top it is the processor's own design that limits, not the cap.
		s.Limited = s.Limit > 0 && s.pkg >= s.Limit.Watts()*(1-limitedBand) && !s.atTop(c)
	}
	return s
}

// observeDRAM smooths DRAM power. After a step the mean begins anew, with what was
// foreseen as its first reading; readings from before the step are left out.
func (s State) observeDRAM(now time.Duration, in Sample, c Config) State {
	stepped := s.SettledAt - settle
	if !c.HasDRAM || !in.DRAM.Known || (s.hasDRAM && s.Cap > 0 && now < stepped+foresight) {
		return s
	}
	d := in.DRAM.Power.Watts()
	if s.hasDRAM && d < s.dram*(1+dramJump) {
		since := min(max(now-stepped, 0)+in.Elapsed, smoothing)
		d = s.dram + (d-s.dram)*min(1, in.Elapsed.Seconds()/max(since.Seconds(), 1e-9))
	}
	s.dram, s.hasDRAM = d, true
	return s
}

// foresee is the DRAM power to expect once package and DRAM together draw share.
func (s State) foresee(share float64) float64 {
	if !s.hasDRAM || !s.hasPkg || s.pkg+s.dram <= 0 || share <= 0 {
		return s.dram
	}
	change := share / (s.pkg + s.dram)
	if change > 1 {
		return s.dram * min(math.Pow(change, dramUp), dramMost)
	}
	return s.dram * math.Pow(change, dramDown)
}

func (s State) isStep(granted units.Power) bool {
	return max(granted-s.Cap, s.Cap-granted).Watts() > stepMin*s.Cap.Watts()
}

// integrate moves the correction by the part of the difference that belongs to
// the time of the sample, and only while the packages are held by the limit:
// below it, power says nothing about the model.
func (s State) integrate(in Sample, dc float64, c Config) float64 {
	if !s.Limited {
		return s.bias
	}
	aim, smooth := dc*(1-margin)-c.Other.Watts(), s.pkg
	e := aim - in.Package.Power.Watts()
	if c.HasDRAM {
		e, smooth = e-in.DRAM.Power.Watts(), smooth+s.dram
	}
	rate := gain
	if over := aim - smooth; over < -overBand*dc {
		e, rate = over, gainOver
	}
	return clamp(s.bias+e*min(1, rate*in.Elapsed.Seconds()), -biasDown*dc, biasUp*dc)
}

func (s State) atTop(c Config) bool { return c.PackageMax > 0 && s.Limit >= c.PackageMax }

// want is the package limit that goes with the DC power behind the cap, W.
func (s State) want(dc float64, c Config) float64 {
	share := dc - c.Other.Watts() + s.bias
	switch {
	case !c.HasDRAM:
		return share
	case !s.hasDRAM:
		return share - dramAssumed*dc
	}
	return share - s.dram
}

// restrain keeps feedback from raising the limit fast and from moving it for
// next to nothing. While a step settles the model alone decides.
func (s State) restrain(want float64, settling bool, elapsed time.Duration) float64 {
	held := s.Limit.Watts()
	if settling {
		return want
	}
	want = min(want, held*(1+slewUp*elapsed.Seconds()))
	if math.Abs(want-held) < hysteresis*held {
		return held
	}
	return want
}

// rails keeps the limit between what is worth writing and what the packages take.
func (c Config) rails(want float64) (units.Power, Rail) {
	p := grain(want)
	switch low := max(c.PackageMin/Grain*Grain, (c.PackageLeast+Grain-1)/Grain*Grain, Grain); {
	case p < low:
		return low, AtFloor
	case c.PackageMax > 0 && p > c.PackageMax:
		return max(low, c.PackageMax/Grain*Grain), AtTop
	}
	return p, Free
}

// Wall is the wall power that the model gives for what the packages and memory draw.
func (c Config) Wall(pkg, dram units.Power) units.Power {
	return units.FromWatts((pkg + dram + c.Other).Watts() / c.Efficiency)
}

// grain rounds down to what hardware can hold, and never to 0.
func grain(watts float64) units.Power {
	return max(Grain, units.FromWatts(clamp(watts, 0, wattsMost))/Grain*Grain)
}

// wattsMost keeps what is asked for within the numbers that a Power holds.
const wattsMost = 1e9

func clamp[T float64 | time.Duration](x, low, high T) T { return min(max(x, low), high) }
