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

// BandwidthConfig configures StepBandwidth.
type BandwidthConfig struct {
	// CPUs that are online.
	CPUs int
	// Least CPUs that the slices together keep; 0: a tenth of one.
	Least float64
	// PerCPU is what one busy CPU draws at the wall at the lowest frequency; 0: not
	// known, then the whole excess is counted as the slices'.
	PerCPU units.Power
}

// BandwidthInput is the input of StepBandwidth.
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

// BandwidthState is kept between steps; the zero state limits nothing.
type BandwidthState struct {
	// Bounded says that the slices are bounded to CPUs.
	Bounded bool
	CPUs    float64
}

// StepBandwidth decides how many CPUs the low-priority slices may use together. It limits
// them only while the frequency is at its lowest and power is still above the cap. It
// removes the CPUs of the excess at once, and adds them slowly while there is room below
// the cap, or while the frequency is above its lowest and can compensate. The limit ends
// once it is as wide as the machine. Unknown power never raises it.
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

// lower removes the CPUs of the excess.
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

// raise adds CPUs, and ends the limit at the width of the machine.
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

// AtFloor reports whether the slices are bounded as far as they go: nothing more can be
// taken away.
func (s BandwidthState) AtFloor(c BandwidthConfig) bool { return s.Bounded && s.CPUs <= c.least() }

// within clamps the limit between the floor and the machine; NaN becomes the floor.
func (c BandwidthConfig) within(cpus float64) float64 {
	if math.IsNaN(cpus) {
		return c.least()
	}
	return clamp(cpus, c.least(), float64(max(1, c.CPUs)))
}
