package plant

import (
	"math/bits"
	"time"

	"headroom/units"
)

// What the kernel's RAPL driver does with numbers on their way to the hardware
// and back, as seen on Linux 6.1 with intel_rapl_common on simulated registers.
const (
	powerUnit = units.Watt / 8         // MSR_RAPL_POWER_UNIT 0xa0e03: 1/8 W
	powerMask = 1<<15 - 1              // a limit has 15 bits; what is above is cut off
	timeUnit  = 976 * time.Microsecond // 1/1024 s, truncated to microseconds by the driver
	timeYMax  = 1<<5 - 1               // a window is 2^Y * (1 + F/4) time units, Y of 5 bits

	// PackageRange and DRAMRange are the highest values of the two counters, as
	// max_energy_range_uj shows them: 32 bits of 61.03 and of 15.3 uJ.
	PackageRange units.Energy = 262143328850
	DRAMRange    units.Energy = 65712999613
)

// RoundLimit is the limit that the hardware holds after p was written: rounded
// down to 1/8 W and cut to 15 bits, so that a limit of 99999.999999 W becomes
// 1695.875 W. Negative values never reach the hardware and come back as 0.
func RoundLimit(p units.Power) units.Power {
	if p < 0 {
		return 0
	}
	return p / powerUnit & powerMask * powerUnit
}

// RoundWindow is the averaging window that the hardware holds after d was
// written: rounded down to whole 976 us, then to 2^Y * (1 + F/4) of them, at
// least one. Firmware can hold fractions (2440 us) that no write brings back.
func RoundWindow(d time.Duration) time.Duration {
	if d < timeUnit {
		return timeUnit
	}
	value := uint64(d / timeUnit)
	y := bits.Len64(value) - 1
	if y > timeYMax {
		return time.Duration(1<<timeYMax) * 7 * timeUnit / 4
	}
	f := 4 * (value - 1<<y) >> y
	return time.Duration(1<<y) * time.Duration(4+f) * timeUnit / 4
}

// RoundFreq is the rung of the ladder that a frequency ceiling of f becomes:
// the highest rung not above it, within FreqMin and FreqMax.
func (s Spec) RoundFreq(f units.Freq) units.Freq {
	if f >= s.FreqMax {
		return s.FreqMax
	}
	down := s.FreqMax - (s.FreqMax-f+s.FreqStep-1)/s.FreqStep*s.FreqStep
	return max(down, s.FreqMin)
}
