package capping

import (
	"math"
	"time"

	"headroom/units"
)

// Constants of the bandwidth rung.
const (
	// cpusLeast is the usual floor: a slice must still be able to end what it does.
	cpusLeast = 0.10
	// cpusHysteresis: the bound moves by this ratio or more, or not at all.
	cpusHysteresis = 0.05
	// cpusUp is how fast the bound is raised, in CPUs a second for each CPU there is.
	cpusUp = 0.05
	// roomLeast is the room below the cap, as a ratio, that lets the bound rise.
	roomLeast = 0.03
)

// BandwidthConfig is what the last rung knows of its node.
type BandwidthConfig struct {
	// CPUs that are online.
	CPUs int
	// Least CPUs that the slices together keep; 0: a tenth of one.
	Least float64
	// PerCPU is what one busy CPU draws at the wall at the lowest frequency; 0: not
	// known, then the whole excess is counted as the slices'.
	PerCPU units.Power
}

// BandwidthInput is what the last rung looks at.
type BandwidthInput struct {
	// Wall power, mean over Elapsed.
	Wall    Reading
	Elapsed time.Duration
	// Lowest says that the frequency stands at its lowest already.
	Lowest bool
	// Used is how many CPUs the slices together use now, and whether that is known.
	Used      float64
	UsedKnown bool
}

// BandwidthState is carried from step to step; the zero state bounds nothing.
type BandwidthState struct {
	// Bounded says that the slices are bounded to CPUs.
	Bounded bool
	CPUs    float64
}

// StepBandwidth decides how many CPUs the slices of low priority may use together.
// It bounds them only while the frequency is at its lowest and the power is above
// the cap all the same; takes away at once what the excess costs in CPUs, and
// gives back slowly: while there is room below the cap, or while the frequency is
// above its lowest and can answer for it. The bound goes away once it is as wide
// as the machine. An unknown power never raises it.
func StepBandwidth(in BandwidthInput, granted units.Power, s BandwidthState, c BandwidthConfig) BandwidthState {
	power := Sample{Package: in.Wall, Elapsed: in.Elapsed}.sane()
	if !power.Package.Known {
		return s
	}
	excess := power.Package.Power.Watts() - granted.Watts()
	switch {
	case excess > 0 && in.Lowest:
		return s.lower(excess, in, c)
	case s.Bounded && (!in.Lowest || excess < -roomLeast*granted.Watts()):
		return s.raise(power.Elapsed, c)
	}
	return s
}

// lower takes away the CPUs that the excess costs.
func (s BandwidthState) lower(excess float64, in BandwidthInput, c BandwidthConfig) BandwidthState {
	from := float64(max(1, c.CPUs))
	if s.Bounded {
		from = s.CPUs
	}
	if in.UsedKnown && in.Used >= 0 {
		from = min(from, in.Used) // a bound above what is used takes nothing away
	}
	away := from
	if c.PerCPU > 0 {
		away = excess / c.PerCPU.Watts()
	}
	to := c.within(from - away)
	if s.Bounded && to > s.CPUs*(1-cpusHysteresis) && to > c.least() {
		return s
	}
	if s.Bounded {
		to = min(to, s.CPUs)
	}
	s.Bounded, s.CPUs = true, to
	return s
}

// raise gives back, and lets go at the end.
func (s BandwidthState) raise(elapsed time.Duration, c BandwidthConfig) BandwidthState {
	whole := float64(max(1, c.CPUs))
	s.CPUs = c.within(s.CPUs + cpusUp*whole*min(1, elapsed.Seconds()))
	if s.CPUs >= whole {
		return BandwidthState{}
	}
	return s
}

func (c BandwidthConfig) least() float64 {
	if c.Least > 0 {
		return min(c.Least, float64(max(1, c.CPUs)))
	}
	return cpusLeast
}

// within keeps the bound between the floor and the machine; what is no number is
// the floor.
func (c BandwidthConfig) within(cpus float64) float64 {
	if math.IsNaN(cpus) {
		return c.least()
	}
	return clamp(cpus, c.least(), float64(max(1, c.CPUs)))
}
