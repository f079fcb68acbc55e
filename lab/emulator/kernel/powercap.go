package kernel

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Where the kernel keeps powercap zones, and how RAPL names its control types.
const (
	powercapDevices = "sys/devices/virtual/powercap"
	powercapClass   = "sys/class/powercap"
	controlMSR      = "intel-rapl" // AMD's too
	controlMMIO     = "intel-rapl-mmio"
)

// zone is one powercap zone.
type zone struct {
	dir    string
	name   string
	domain *plant.Domain // nil for the whole platform
	bank   plant.Bank
}

// powercap builds the RAPL zones.
func (t *Tree) powercap() {
	if t.shape.Powercap == NoPowercap {
		return
	}
	t.controlType(controlMSR)
	for i, d := range t.plant.Domains() {
		z := t.zone(controlMSR, strconv.Itoa(i), t.shape.packageName(i), d, plant.MSR, t.packageEnergy(i), t.plant.Spec().PackageWrap())
		t.limits(z)
		t.parts(z, i)
	}
	if t.shape.Psys {
		n := strconv.Itoa(len(t.plant.Domains()))
		z := t.zone(controlMSR, n, "psys", nil, plant.MSR, t.plant.PlatformEnergy, t.plant.Spec().PackageWrap())
		t.heldNothing(z, plant.LongTerm, plant.ShortTerm)
	}
	if t.plant.Spec().Twin {
		t.controlType(controlMMIO)
		for i, d := range t.plant.Domains() {
			t.limits(t.zone(controlMMIO, strconv.Itoa(i), t.shape.packageName(i), d, plant.MMIO, t.packageEnergy(i), t.plant.Spec().PackageWrap()))
		}
	}
}

// packageEnergy is the counter of a package; where the dies of a socket mirror one
// counter, that is the sum of them all.
func (t *Tree) packageEnergy(i int) func() units.Energy {
	domains := t.plant.Domains()
	if !t.shape.Mirrored {
		return domains[i].Energy
	}
	first := i - i%t.shape.dies()
	return func() units.Energy {
		var sum units.Energy
		for _, d := range domains[first : first+t.shape.dies()] {
			sum += d.Energy()
		}
		return sum % (t.plant.Spec().PackageWrap() + 1)
	}
}

func (t *Tree) controlType(name string) {
	top := path.Join(powercapDevices, name)
	t.inert(path.Join(top, "enabled"), "1", checkBool, syscall.ENOSYS)
	t.fixed(top, "uevent", "")
	t.classLink(top, true)
}

// zone adds what every zone has. at is its number, as the folder's name ends.
func (t *Tree) zone(control, at, name string, d *plant.Domain, b plant.Bank, energy func() units.Energy, span units.Energy) *zone {
	dir, folder := path.Join(powercapDevices, control), control
	for n := range strings.SplitSeq(at, ":") {
		folder += ":" + n
		dir = path.Join(dir, folder)
	}
	z := &zone{dir: dir, name: name, domain: d, bank: b}
	e := t.reading(path.Join(dir, "energy_uj"), Quick, number(energy))
	e.Mode, e.role, e.zone = 0o400, counter, z
	t.fixed(dir, "name", name, "max_energy_range_uj", format(span), "uevent", "")
	t.classLink(dir, false)
	return z
}

// parts adds the zones within a package.
func (t *Tree) parts(z *zone, i int) {
	d, spec, n := z.domain, t.plant.Spec(), 0
	part := func(on bool, name string, energy func() units.Energy, span units.Energy) {
		if !on {
			return
		}
		p := t.zone(controlMSR, strconv.Itoa(i)+":"+strconv.Itoa(n), name, d, plant.MSR, energy, span)
		if t.shape.Powercap == Limits {
			t.heldNothing(p, plant.LongTerm)
		} else {
			t.unlimited(p)
		}
		n++
	}
	part(t.shape.Core, "core", d.CoreEnergy, spec.PackageWrap())
	part(t.shape.Uncore, "uncore", d.UncoreEnergy, spec.PackageWrap())
	part(t.shape.DRAM, "dram", d.DRAMEnergy, spec.DRAMWrap())
}

// limits adds the controls of a package.
func (t *Tree) limits(z *zone) {
	if t.shape.Powercap != Limits {
		t.unlimited(z)
		return
	}
	enabled := t.control(path.Join(z.dir, "enabled"), Prompt,
		func() (string, error) { return formatBool(z.domain.Enabled(z.bank) && !t.faults.Locked), nil },
		func(text string) error {
			on, err := ParseBool(text)
			if err != nil {
				return err
			}
			if t.faults.Locked || t.faults.refuses(z) {
				return syscall.ENOSYS
			}
			z.domain.SetEnabled(z.bank, on)
			return nil
		})
	enabled.role, enabled.zone = switches, z
	most := [2]units.Power{t.plant.Spec().TDP, t.shape.MaxShort}
	for c := plant.LongTerm; c <= plant.ShortTerm; c++ {
		t.constraint(z, c)
		name := fmt.Sprintf("constraint_%d_", c)
		t.fixed(z.dir, name+"name", c.String(), name+"max_power_uw", format(most[c]))
	}
}

// windowMax keeps microseconds inside a time.Duration; far above what hardware holds.
const windowMax = 1 << 50

func (t *Tree) constraint(z *zone, c plant.Constraint) {
	name := path.Join(z.dir, fmt.Sprintf("constraint_%d_", c))
	t.bound(z, name+"power_limit_uw", number(func() units.Power { return z.domain.Limit(z.bank, c) }),
		func(v int64) { z.domain.SetLimit(z.bank, c, units.Power(v)) })
	t.bound(z, name+"time_window_us", number(func() int64 { return z.domain.Window(z.bank, c).Microseconds() }),
		func(v int64) { z.domain.SetWindow(z.bank, c, time.Duration(min(v, windowMax))*time.Microsecond) })
}

// bound adds one number of a constraint. Any failure on the way to the register
// becomes ENODATA; a lock that the driver does not notice is no failure.
func (t *Tree) bound(z *zone, name string, show func() (string, error), take func(int64)) {
	a := t.control(name, Prompt, show, func(text string) error {
		v, err := ParseUint(text)
		switch {
		case err != nil:
			return err
		case t.faults.refuses(z):
			return syscall.ENODATA
		case t.faults.Locked:
			return nil // Linux 6.1 does not look at what the register did
		}
		take(v)
		return nil
	})
	a.role, a.zone = bound, z
}

// heldNothing adds the controls of a zone whose limits exist and hold nothing: the
// firmware has them off, and what is written is gone.
func (t *Tree) heldNothing(z *zone, constraints ...plant.Constraint) {
	t.inert(path.Join(z.dir, "enabled"), "0", checkBool, syscall.ENOSYS)
	for _, c := range constraints {
		name := path.Join(z.dir, fmt.Sprintf("constraint_%d_", c))
		t.fixed(z.dir, path.Base(name)+"name", c.String())
		t.reading(name+"max_power_uw", Fixed, func() (string, error) { return "", syscall.ENODATA })
		for suffix, value := range map[string]string{"power_limit_uw": "0", "time_window_us": "976"} {
			a := t.inert(name+suffix, value, checkUint, nil)
			a.role, a.zone = bound, z
		}
	}
}

// unlimited adds what a zone has that only counts energy.
func (t *Tree) unlimited(z *zone) {
	t.inert(path.Join(z.dir, "enabled"), "0", checkBool, syscall.ENOSYS)
}

// classLink makes the class's link to a powercap device, and the device's own
// links back.
func (t *Tree) classLink(dir string, top bool) {
	t.link(path.Join(powercapClass, path.Base(dir)), dir)
	t.link(path.Join(dir, "subsystem"), powercapClass)
	if !top {
		t.links[path.Join(dir, "device")] = "../../" + path.Base(path.Dir(dir))
	}
}
