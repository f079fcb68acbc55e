package msr

import (
	"math/bits"
	"time"

	"headroom/rapl"
	"headroom/units"
)

// Units are what one count of each field of a machine's RAPL registers means
// (Intel SDM vol. 3B, 15.10.1, MSR_RAPL_POWER_UNIT): 2^-n of a watt, a joule and
// a second.
type Units struct {
	PowerShift  uint // 1 / 2^PowerShift W, usually 1/8 W
	EnergyShift uint // 1 / 2^EnergyShift J, usually 61 uJ or 15.3 uJ
	TimeShift   uint // 1 / 2^TimeShift s, usually 976 us
}

// decodeUnits reads the unit register. A register of 0 means "no RAPL" (a
// virtual machine answers so), not units of 1 W and 1 J.
func decodeUnits(v uint64) (Units, bool) {
	u := Units{PowerShift: uint(v & 0xf), EnergyShift: uint(v >> 8 & 0x1f), TimeShift: uint(v >> 16 & 0xf)}
	return u, v != 0
}

// limitBits is the width of a power limit field.
const limitBits = 15

// windowShift are where the parts of a 7-bit window field stand: Y in its low
// five bits, Z in the two above.
const (
	windowYBits = 5
	windowYMax  = 1<<windowYBits - 1
)

// Power returns the power of n counts.
func (u Units) Power(n uint64) units.Power {
	return units.Power(n * uint64(units.Watt) >> u.PowerShift)
}

// EncodePower is the field for p, rounded down as the kernel rounds, and an
// error for what is 0 W in the field (rapl.ErrZeroLimit) or does not fit its 15
// bits (rapl.ErrTooHigh): hardware would hold what is left of it.
func (u Units) EncodePower(p units.Power) (uint64, error) {
	most := u.Power(1<<limitBits - 1)
	switch {
	case p > most:
		return 0, rapl.ErrTooHigh
	case p <= 0:
		return 0, rapl.ErrZeroLimit
	}
	n := uint64(p) << u.PowerShift / uint64(units.Watt)
	if n == 0 {
		return 0, rapl.ErrZeroLimit
	}
	return n, nil
}

// Energy returns the energy of n counts.
func (u Units) Energy(n uint64) units.Energy {
	hi, lo := bits.Mul64(n, uint64(units.Joule))
	return units.Energy(hi<<(64-u.EnergyShift) | lo>>u.EnergyShift)
}

// Window decodes a 7-bit window field: 2^Y * (1 + Z/4) time units.
func (u Units) Window(field uint64) time.Duration {
	y, z := field&windowYMax, field>>windowYBits&3
	quarters := (4 + z) << y // of a time unit
	hi, lo := bits.Mul64(quarters, uint64(time.Second))
	shift := u.TimeShift + 2
	return time.Duration(hi<<(64-shift) | lo>>shift)
}

// EncodeWindow is the field whose window is the longest that is not longer than
// d, or the shortest there is. What is longer than the field can say becomes the
// longest.
func (u Units) EncodeWindow(d time.Duration) uint64 {
	var best uint64
	found := false
	for field := range uint64(1 << 7) {
		if w := u.Window(field); w <= d && (!found || w > u.Window(best)) {
			best, found = field, true
		}
	}
	return best
}

// Limit is one of the two limits in a package limit register.
type Limit struct {
	Power  uint64 // counts of power, 15 bits
	Enable bool
	Clamp  bool   // may go below the base frequency to hold it
	Window uint64 // 7-bit field
}

// packageLimit is MSR_PKG_POWER_LIMIT (SDM vol. 3B, 15.10.3).
type packageLimit struct {
	Long, Short Limit
	Locked      bool // read-only until the next reset
}

// lockBit makes the whole register read-only.
const lockBit = 63

// shortShift is where the short-term half begins.
const shortShift = 32

// Bits of one half of the register.
const (
	enableBit = 15
	clampBit  = 16
	windowBit = 17
	halfMask  = 1<<24 - 1
)

// decodeLimit takes the register apart.
func decodeLimit(v uint64) packageLimit {
	return packageLimit{Long: decodeHalf(v), Short: decodeHalf(v >> shortShift), Locked: v>>lockBit == 1}
}

func decodeHalf(v uint64) Limit {
	return Limit{
		Power: v & (1<<limitBits - 1), Enable: v>>enableBit&1 == 1, Clamp: v>>clampBit&1 == 1, Window: v >> windowBit & 0x7f,
	}
}

// Encode puts l into the register that read old, keeping the bits that are
// reserved there.
func (l packageLimit) Encode(old uint64) uint64 {
	v := old &^ (halfMask | halfMask<<shortShift | 1<<lockBit)
	v |= l.Long.encode() | l.Short.encode()<<shortShift
	if l.Locked {
		v |= 1 << lockBit
	}
	return v
}

func (l Limit) encode() uint64 {
	v := l.Power&(1<<limitBits-1) | l.Window&0x7f<<windowBit
	if l.Enable {
		v |= 1 << enableBit
	}
	if l.Clamp {
		v |= 1 << clampBit
	}
	return v
}
