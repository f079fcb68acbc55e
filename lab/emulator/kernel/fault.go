package kernel

import (
	"path"
	"slices"
	"syscall"

	"headroom/lab/emulator/plant"
)

// AllZones is the target of a fault that acts on every zone.
const AllZones = "*"

// Faults are those that act on a tree; the zero value is a healthy machine. A target is a zone by
// its folder's or its own name, AllZones, or "" for none.
type Faults struct {
	// FailRead makes reading a counter fail, FailWrite writing a limit, Permission opening either.
	FailRead, FailWrite, Permission string
	// Frozen keeps every counter at its present value.
	Frozen bool
	// Locked: the firmware has locked the limits, which a write meets as success; with Refuse it fails.
	Locked, Refuse bool
	// Offline is a CPU that is offline and stays so; 0: none.
	Offline int
	// Hot: every package is 2 degrees Celsius above the temperature at which it slows down.
	Hot bool
	// Unbound: limits read back as written and bind nothing.
	Unbound bool
	// NoTurbo: the firmware holds the turbo switch.
	NoTurbo bool
}

// SetFaults replaces the faults.
func (t *Tree) SetFaults(f Faults) {
	if t.faults.Offline != 0 {
		t.plant.SetOnline(t.faults.Offline, true)
	}
	if f.Offline != 0 {
		t.plant.SetOnline(f.Offline, false)
	}
	t.frozen = map[*Attr]string{}
	for _, a := range t.attrs {
		if f.Frozen && a.role == counter {
			t.frozen[a], _ = a.show()
		}
	}
	for _, d := range t.plant.Domains() {
		d.Unbind(f.Unbound)
		d.SetHeat(0)
		if f.Hot {
			d.SetHeat(plant.TempTrip + 2)
		}
	}
	t.faults = f
}

// isTarget reports whether a fault of this target acts on the zone, which is nil for other files.
func (z *zone) isTarget(target string) bool {
	return z != nil && target != "" && slices.Contains([]string{AllZones, path.Base(z.dir), z.name}, target)
}

// opening is the error of opening a file.
func (f *Faults) opening(a *Attr) error {
	if a.role != plain && a.zone.isTarget(f.Permission) {
		return syscall.EACCES
	}
	return nil
}

// reading is the error of reading a file.
func (f *Faults) reading(a *Attr) error {
	if a.role == counter && a.zone.isTarget(f.FailRead) {
		return syscall.EINVAL // powercap: whatever the driver returned
	}
	return f.opening(a)
}

// refuses reports whether writes to a zone's limits fail.
func (f *Faults) refuses(z *zone) bool { return f.Locked && f.Refuse || z.isTarget(f.FailWrite) }
