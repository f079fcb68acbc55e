// Package units defines the quantities used by all of Headroom: power in microwatts, energy
// in microjoules, frequency in kilohertz.
//
// The one idea: a number without a unit is never accepted and never shown. The integer types
// are those of the Linux kernel (powercap in uW and uJ, cpufreq in kHz), so sysfs needs no
// conversion; floats appear only at the edges (JSON in base SI units, tables).
//
// Guarantees: parsing requires a unit, and an error gives position and reason; a value
// printed by Exact and parsed again is the same value. The package does no I/O and keeps no
// state.
//
//headroom:apply
package units

import "time"

// Power is a power in microwatts (uW), the unit of the kernel's powercap files.
type Power int64

// Energy is an energy in microjoules (uJ), the unit of the kernel's energy_uj.
type Energy int64

// Freq is a frequency in kilohertz (kHz), the unit of the kernel's cpufreq files.
type Freq int64

// Units of power.
const (
	Microwatt Power = 1
	Milliwatt       = 1000 * Microwatt
	Watt            = 1000 * Milliwatt
	Kilowatt        = 1000 * Watt
)

// Units of energy.
const (
	Microjoule Energy = 1
	Millijoule        = 1000 * Microjoule
	Joule             = 1000 * Millijoule
	Kilojoule         = 1000 * Joule
)

// Units of frequency.
const (
	Kilohertz Freq = 1
	Megahertz      = 1000 * Kilohertz
	Gigahertz      = 1000 * Megahertz
)

// Watts returns p in watts, for models and JSON.
func (p Power) Watts() float64 { return float64(p) / float64(Watt) }

// Joules returns e in joules.
func (e Energy) Joules() float64 { return float64(e) / float64(Joule) }

// Hertz returns f in hertz.
func (f Freq) Hertz() float64 { return float64(f) * 1000 }

// FromWatts returns w watts, rounded to the nearest microwatt.
func FromWatts(w float64) Power { return Power(round(w * float64(Watt))) }

// FromJoules returns j joules, rounded to the nearest microjoule.
func FromJoules(j float64) Energy { return Energy(round(j * float64(Joule))) }

// For returns the energy that power p uses in d.
func (p Power) For(d time.Duration) Energy {
	return Energy(round(float64(p) * d.Seconds()))
}

// Over returns the mean power that uses e in d. It is 0 if d is not positive.
func (e Energy) Over(d time.Duration) Power {
	if d <= 0 {
		return 0
	}
	return Power(round(float64(e) / d.Seconds()))
}

func round(x float64) int64 {
	if x < 0 {
		return int64(x - 0.5)
	}
	return int64(x + 0.5)
}
