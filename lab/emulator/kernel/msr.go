package kernel

import (
	"math"
	"path"
	"strconv"
	"syscall"
	"time"

	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Registers of the msr device, by their numbers in Intel's and AMD's manuals.
const (
	msrPowerUnit     = 0x606
	msrPackageLimit  = 0x610
	msrPackageEnergy = 0x611
	msrPackageInfo   = 0x614
	msrDRAMEnergy    = 0x619
	msrCoreEnergy    = 0x639
	msrUncoreEnergy  = 0x641
	amdPowerUnit     = 0xc0010299
	amdCoreEnergy    = 0xc001029a
	amdPackageEnergy = 0xc001029b
)

// msrStore is the register file of one CPU.
type msrStore struct {
	tree *Tree
	cpu  int
}

// registers builds dev/cpu/N/msr, where the machine has RAPL registers.
func (t *Tree) registers() {
	if t.shape.Powercap == NoPowercap {
		return
	}
	for cpu := range t.plant.Spec().Cores {
		t.add(&Attr{
			Path: path.Join("dev/cpu", strconv.Itoa(cpu), "msr"), Mode: 0o600, Pace: Device, cpu: cpu,
			msr: &msrStore{tree: t, cpu: cpu},
		})
	}
}

// ReadRegister is the register at offset of a file of pace Device. It fails with
// EIO where the processor has none, EINVAL on other files.
func (t *Tree) ReadRegister(a *Attr, offset int64) (uint64, error) {
	if a.msr == nil {
		return 0, syscall.EINVAL
	}
	if !t.plant.Online(a.cpu) {
		return 0, syscall.ENXIO
	}
	return a.msr.read(offset)
}

// WriteRegister writes the register at offset of a file of pace Device. It fails
// with EIO where the processor has none that can be written.
func (t *Tree) WriteRegister(a *Attr, offset int64, value uint64) error {
	if a.msr == nil {
		return syscall.EINVAL
	}
	if !t.plant.Online(a.cpu) {
		return syscall.ENXIO
	}
	if offset != msrPackageLimit || t.shape.Powercap != Limits {
		return syscall.EIO
	}
	if t.faults.lockedAt(nil) {
		return syscall.EIO
	}
	d := t.plant.At(a.cpu)
	for c := plant.LongTerm; c <= plant.ShortTerm; c++ {
		half := value >> (32 * uint(c))
		d.SetLimit(plant.MSR, c, units.Power(half&0x7fff)*units.Watt/8)
		d.SetWindow(plant.MSR, c, unpackWindow(half>>17&0x7f))
	}
	d.SetEnabled(plant.MSR, value>>15&1 == 1)
	return nil
}

func (m *msrStore) read(offset int64) (uint64, error) {
	d, shape := m.tree.plant.At(m.cpu), m.tree.shape
	span := m.tree.plant.Spec().PackageWrap()
	if shape.Powercap == Counters {
		switch offset {
		case amdPowerUnit:
			return 0xa1003, nil // 1/8 W, 1/65536 J, 1/1024 s
		case amdPackageEnergy:
			return count(d.Energy(), span), nil
		case amdCoreEnergy:
			return count(d.CoreEnergy(), span), nil
		}
		return 0, syscall.EIO
	}
	switch offset {
	case msrPowerUnit:
		return 0xa0e03, nil // 1/8 W, 1/16384 J, 1/1024 s
	case msrPackageLimit:
		return m.limits(d), nil
	case msrPackageEnergy:
		return count(d.Energy(), span), nil
	case msrPackageInfo:
		return uint64(m.tree.plant.Spec().TDP / (units.Watt / 8)), nil
	}
	return m.part(d, offset)
}

// count is a counter as its register has it: 32 bits over the whole span, so that
// register and powercap wrap at one moment.
func count(e, span units.Energy) uint64 {
	return uint64(math.Floor(float64(e) / float64(span+1) * (1 << 32)))
}

// part is the counter of a part of the package, where the package has the part.
func (m *msrStore) part(d *plant.Domain, offset int64) (uint64, error) {
	shape, spec := m.tree.shape, m.tree.plant.Spec()
	span := spec.PackageWrap()
	switch {
	case offset == msrDRAMEnergy && shape.DRAM:
		return count(d.DRAMEnergy(), spec.DRAMWrap()), nil
	case offset == msrCoreEnergy && shape.Core:
		return count(d.CoreEnergy(), span), nil
	case offset == msrUncoreEnergy && shape.Uncore:
		return count(d.UncoreEnergy(), span), nil
	}
	return 0, syscall.EIO
}

// limits is MSR_PKG_POWER_LIMIT: both limits with enable, clamp and window.
func (m *msrStore) limits(d *plant.Domain) uint64 {
	var value uint64
	for c := plant.LongTerm; c <= plant.ShortTerm; c++ {
		half := uint64(d.Limit(plant.MSR, c) / (units.Watt / 8))
		if d.Enabled(plant.MSR) {
			half |= 1<<15 | 1<<16
		}
		half |= packWindow(d.Window(plant.MSR, c)) << 17
		value |= half << (32 * uint(c))
	}
	if m.tree.faults.lockedAt(nil) {
		value |= 1 << 63
	}
	return value
}

// packWindow is a window as the register has it, 2^Y * (1 + F/4) of 976 us: F in
// the upper two of seven bits.
func packWindow(d time.Duration) uint64 {
	for code := range uint64(1 << 7) {
		y, f := code&0x1f, code>>5
		if time.Duration(1<<y)*time.Duration(4+f)*976*time.Microsecond/4 == d {
			return code
		}
	}
	return 0
}

func unpackWindow(code uint64) time.Duration {
	y, f := code&0x1f, code>>5
	return time.Duration(1<<y) * time.Duration(4+f) * 976 * time.Microsecond / 4
}
