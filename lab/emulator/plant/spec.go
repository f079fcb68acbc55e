package plant

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"headroom/units"
)

// ErrSpec reports a Spec that describes no machine that could exist.
var ErrSpec = errors.New("plant: impossible machine")

// Spec describes the parts of a machine. All powers but FailSafe are behind the
// supply (direct current); FailSafe, Rated and Floor are at the wall. All packages
// are alike.
type Spec struct {
	// Idle is the power of an idle package.
	Idle units.Power
	// Dynamic is the additional power at full load and FreqMax.
	Dynamic units.Power
	// Exponent e of the law P = Idle + Dynamic * utilisation * (f/FreqMax)^e:
	// 1 is frequency alone, 3 is frequency with voltage in step. 1 to 4.
	Exponent float64

	// FreqMin and FreqMax bound the frequency; FreqStep is the distance between
	// the rungs of the ladder that cpufreq offers.
	FreqMin, FreqMax, FreqStep units.Freq
	// FreqBase is the highest frequency without turbo; 0 where FreqMax is that.
	FreqBase units.Freq
	// Cores counts the node's virtual CPUs, each with a cpufreq policy.
	Cores int
	// Packages counts the power domains that have counters and limits of their own:
	// sockets times dies. Idle, Dynamic, TDP, Peak and the powers of memory are of
	// one; Cores is divided among them. 0 counts as 1.
	Packages int
	// Twin gives each package a second set of limits (memory-mapped registers
	// beside the model-specific ones); the lower limit wins.
	Twin bool

	// TDP is the package's factory long-term limit (PL1), and what
	// constraint_0_max_power_uw shows.
	TDP units.Power
	// Peak is the package's factory short-term limit (PL2).
	Peak units.Power
	// LongWindow and ShortWindow are the factory averaging windows of the two.
	LongWindow, ShortWindow time.Duration
	// Response is the time constant with which the package follows a new
	// frequency or load.
	Response time.Duration

	// DRAMIdle is what memory draws at rest; DRAMDynamic is what full load at
	// FreqMax adds. Memory traffic follows work done: utilisation * f/FreqMax.
	DRAMIdle, DRAMDynamic units.Power
	// PackageSpan and DRAMSpan are the highest values of the counters; 0 counts as
	// PackageRange and DRAMRange.
	PackageSpan, DRAMSpan units.Energy
	// Other is everything else behind the supply: fans, disks, board.
	Other units.Power
	// Efficiency is the supply's at rated load, 0 to 1; EfficiencyDroop is what it
	// loses towards no load (falling with the cube of the missing load).
	Efficiency, EfficiencyDroop float64

	// FailSafe is the cap, at the wall, that the node falls to by itself.
	FailSafe units.Power
	// EnergyStart is where the package and DRAM counters of the first package begin, so
	// that a wrap can be met without waiting for it; every other counter begins at an
	// offset of its own from there.
	EnergyStart units.Energy
}

// packages is Packages with its default.
func (s Spec) packages() int { return max(1, s.Packages) }

// PackageWrap is the highest value of a package's counter.
func (s Spec) PackageWrap() units.Energy { return cmp.Or(s.PackageSpan, PackageRange) }

// DRAMWrap is the highest value of a memory counter.
func (s Spec) DRAMWrap() units.Energy { return cmp.Or(s.DRAMSpan, DRAMRange) }

// Base is the highest frequency without turbo: FreqBase with its default.
func (s Spec) Base() units.Freq { return cmp.Or(s.FreqBase, s.FreqMax) }

// DefaultSpec is a one-socket server: about 61 W idle, 69 W at full load on its
// lowest frequency, and 241 W at full load with no cap, all at the wall.
func DefaultSpec() Spec {
	return Spec{
		Idle: 28 * units.Watt, Dynamic: 155 * units.Watt, Exponent: 2.4,
		FreqMin: 800 * units.Megahertz, FreqMax: 3400 * units.Megahertz, FreqStep: 100 * units.Megahertz,
		Cores: 4,
		TDP:   185 * units.Watt, Peak: 222 * units.Watt,
		LongWindow: 999424 * time.Microsecond, ShortWindow: 1952 * time.Microsecond,
		Response: 40 * time.Millisecond,
		DRAMIdle: 6 * units.Watt, DRAMDynamic: 10 * units.Watt,
		Other: 22 * units.Watt, Efficiency: 0.92, EfficiencyDroop: 0.015,
		FailSafe:    95 * units.Watt,
		EnergyStart: 1 * units.Joule,
	}
}

// validate is nil when s describes a machine that could exist, else an error
// that wraps ErrSpec and names the field.
func (s Spec) validate() error {
	for fields, good := range map[string]bool{
		"Idle, Dynamic":                      s.Idle >= 0 && s.Dynamic > 0,
		"Exponent":                           s.Exponent >= 1 && s.Exponent <= 4,
		"FreqMin, FreqMax, FreqStep":         s.FreqMin > 0 && s.FreqMax >= s.FreqMin && s.FreqStep > 0,
		"Cores, Packages":                    s.Cores >= 1 && s.Cores%s.packages() == 0,
		"TDP, Peak, LongWindow, ShortWindow": s.TDP > 0 && s.Peak > 0 && s.LongWindow > 0 && s.ShortWindow > 0,
		"Response":                           s.Response > 0,
		"DRAMIdle, DRAMDynamic, Other":       s.DRAMIdle >= 0 && s.DRAMDynamic >= 0 && s.Other >= 0,
		"Efficiency, EfficiencyDroop":        s.Efficiency <= 1 && s.EfficiencyDroop >= 0 && s.EfficiencyDroop < s.Efficiency,
	} {
		if !good {
			return fmt.Errorf("%w: %s", ErrSpec, fields)
		}
	}
	return nil
}

// Rated returns the machine's wall power at full load without a cap.
func (s Spec) Rated() units.Power {
	return units.FromWatts(s.wall(s.fullLoad(1)))
}

// Floor is the least cap, at the wall, that the machine can hold at full load:
// its draw at FreqMin. A lower limit is not met.
func (s Spec) Floor() units.Power {
	return units.FromWatts(s.wall(s.fullLoad(s.slowest())))
}

// IdleWall returns the machine's wall power when idle.
func (s Spec) IdleWall() units.Power {
	return units.FromWatts(s.wall((units.Power(s.packages())*(s.Idle+s.DRAMIdle) + s.Other).Watts()))
}

// WorstEfficiency is the supply's efficiency at the floor, the lowest that a
// capped node meets: a node that computes with it never draws more than its cap.
func (s Spec) WorstEfficiency() float64 {
	return s.efficiency(s.fullLoad(s.slowest()))
}

// Frequencies is the ladder that cpufreq offers, highest first.
func (s Spec) Frequencies() []units.Freq {
	var ladder []units.Freq
	for f := s.FreqMax; f > s.FreqMin; f -= s.FreqStep {
		ladder = append(ladder, f)
	}
	return append(ladder, s.FreqMin)
}

// slowest is FreqMin as a share of FreqMax.
func (s Spec) slowest() float64 { return float64(s.FreqMin) / float64(s.FreqMax) }

// fullLoad is the direct current, in watts, at full load and speed (f/FreqMax).
func (s Spec) fullLoad(speed float64) float64 {
	pkg := s.Idle.Watts() + s.Dynamic.Watts()*math.Pow(speed, s.Exponent)
	dram := s.DRAMIdle.Watts() + s.DRAMDynamic.Watts()*speed
	n := float64(s.packages())
	return n*pkg + n*dram + s.Other.Watts()
}

// wall is what dc watts behind the supply draw before it.
func (s Spec) wall(dc float64) float64 { return dc / s.efficiency(dc) }

func (s Spec) efficiency(dc float64) float64 {
	missing := 1 - math.Min(1, dc/s.fullLoad(1))
	return s.Efficiency - s.EfficiencyDroop*missing*missing*missing
}
