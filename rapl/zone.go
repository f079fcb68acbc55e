package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"headroom/internal/each"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// Names of the constraints that limit a package (kernel: intel_rapl_common.c).
const (
	LongTerm  = "long_term"  // PL1: mean over the long window
	ShortTerm = "short_term" // PL2: mean over a window of milliseconds
)

// designLeast is less than any package that takes a limit is designed for. Firmware
// that states less is not believed: a limit clamped to it would be next to 0 W.
const designLeast = 3 * units.Watt

// constraintsMax bounds the constraint files looked for in a zone; the kernel
// registers three at most (long_term, short_term, peak_power).
const constraintsMax = 8

// openZone opens the readable attributes of the zone in d.
func openZone(open sysfs.Opener, d Dir) (*Zone, error) {
	name, err := open.ReadText(path.Join(d.Path, "name"))
	if err != nil {
		return nil, err
	}
	z := &Zone{Kind: kindOf(name), Control: d.Control, Name: name, Dir: d.Path, open: open, info: d.info}
	z.energy, z.energyErr = sysfs.NewAttr(path.Join(d.Path, "energy_uj"), open)
	if span, err := open.ReadInt(path.Join(d.Path, "max_energy_range_uj")); err == nil {
		z.Range = units.Energy(span)
	}
	if z.enabled, err = sysfs.NewAttr(path.Join(d.Path, "enabled"), open); err != nil {
		z.enabled = nil // zones without limits have no switch
	}
	if z.locked, err = sysfs.NewAttr(path.Join(d.Path, "locked"), open); err != nil {
		z.locked = nil // powercap has no such file
	}
	for n := range constraintsMax {
		c, err := openConstraint(open, d.Path, n)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err == nil {
			z.constraints = append(z.constraints, c)
		}
	}
	return z, nil
}

// Energy reads the counter, in microjoules since an arbitrary moment. It wraps
// at Range. energy_uj is readable by root only since Linux 5.10: the error says
// so as fs.ErrPermission.
func (z *Zone) Energy() (units.Energy, error) {
	if z.gone {
		return 0, fmt.Errorf("rapl: %s: %w", z.Label, errGone)
	}
	if z.energy == nil {
		return 0, fmt.Errorf("rapl: %s: %w", z.Label, z.energyErr)
	}
	v, err := z.energy.Int()
	if err != nil {
		return 0, fmt.Errorf("rapl: %s: %w", z.Label, err)
	}
	return units.Energy(v), nil
}

// Enabled reports whether the zone's limits are switched on. A zone locked by
// firmware reads false.
func (z *Zone) Enabled() (bool, error) {
	if z.enabled == nil {
		return false, fmt.Errorf("rapl: %s: enabled: %w", z.Label, fs.ErrNotExist)
	}
	v, err := z.enabled.Int()
	if err != nil {
		return false, fmt.Errorf("rapl: %s: %w", z.Label, err)
	}
	return v != 0, nil
}

// Constraint is the constraint of that name, or ErrNoConstraint. Constraints
// are found by name because their numbers differ between zones.
func (z *Zone) Constraint(name string) (*Constraint, error) {
	if c := z.constraint(name); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("rapl: %s: %s: %w", z.Label, name, ErrNoConstraint)
}

func (z *Zone) constraint(name string) *Constraint {
	for _, c := range z.constraints {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// PowerMax is the highest limit the zone says it accepts (its design power),
// and whether it says so at all.
func (z *Zone) PowerMax() (units.Power, bool) {
	var most units.Power
	for _, c := range z.constraints {
		most = max(most, c.PowerMax)
	}
	return most, most > 0
}

// EnergyOnly reports whether the zone counts energy and has no limit: normal for the
// packages of AMD, and for cores, uncore and memory of many machines.
func (z *Zone) EnergyOnly() bool { return len(z.constraints) == 0 }

// Locked reports whether firmware has locked the zone's limits until the next
// reboot, and whether that can be known by reading. Powercap does not tell; a
// Limiter finds out when it writes.
func (z *Zone) Locked() (locked, known bool) {
	if z.locked == nil {
		return false, false
	}
	v, err := z.locked.Int()
	return v != 0, err == nil
}

// Gone reports whether the zone was there and is not any more, as a package that was
// unplugged. Tree.Refresh finds that out, and finds it again when it returns.
func (z *Zone) Gone() bool { return z.gone }

// reopen opens all files of the zone again, in place.
func (z *Zone) reopen(info fs.FileInfo) error {
	errs := each.Of(z.attrs(), (*sysfs.Attr).Reopen)
	if z.energy == nil {
		z.energy, z.energyErr = sysfs.NewAttr(path.Join(z.Dir, "energy_uj"), z.open)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rapl: %s: %w", z.Label, err)
	}
	z.info, z.gone = info, false
	z.generation++
	return nil
}

// attrs are all files that the zone holds open.
func (z *Zone) attrs() []*sysfs.Attr {
	all := []*sysfs.Attr{z.energy, z.enabled, z.locked}
	for _, c := range z.constraints {
		all = append(all, c.power, c.window)
	}
	return slices.DeleteFunc(all, func(a *sysfs.Attr) bool { return a == nil })
}

func (z *Zone) close() error {
	return errors.Join(each.Of(z.attrs(), (*sysfs.Attr).Close)...)
}

// Constraint is one limit of a zone, open for reading.
type Constraint struct {
	// Name is "long_term", "short_term" or "peak_power".
	Name string
	// PowerMax is the highest limit the constraint says it accepts; 0 when it does
	// not say (the kernel answers ENODATA for some), or says what cannot be.
	PowerMax units.Power
	// PowerMin is the lowest limit the constraint says it accepts; 0 when it does not say.
	PowerMin units.Power
	// Found is the limit that stood when the constraint was opened, 0 if it is none. The zone
	// accepts it, even above PowerMax, which some firmware states as the design power.
	Found units.Power

	number int
	power  *sysfs.Attr
	window *sysfs.Attr // nil for peak_power, which has none
}

func openConstraint(open sysfs.Opener, dir string, number int) (*Constraint, error) {
	name, err := open.ReadText(constraintPath(dir, number, "name"))
	if err != nil {
		return nil, err
	}
	power, err := sysfs.NewAttr(constraintPath(dir, number, "power_limit_uw"), open)
	if err != nil {
		return nil, err
	}
	c := &Constraint{Name: name, number: number, power: power}
	if w, err := sysfs.NewAttr(constraintPath(dir, number, "time_window_us"), open); err == nil {
		c.window = w
	}
	if v, err := open.ReadInt(constraintPath(dir, number, "max_power_uw")); err == nil && units.Power(v) >= designLeast {
		c.PowerMax = units.Power(v)
	}
	if v, err := open.ReadInt(constraintPath(dir, number, "min_power_uw")); err == nil && v > 0 && units.Power(v) <= LimitMax {
		c.PowerMin = units.Power(v)
	}
	if v, err := c.Power(); err == nil && v <= LimitMax {
		c.Found = v
	}
	return c, nil
}

// Travels reports whether the limit can be lowered at all, as far as the constraint says.
func (c *Constraint) Travels() bool { return c.PowerMax == 0 || c.PowerMin < max(c.PowerMax, c.Found) }

func constraintPath(dir string, number int, file string) string {
	return path.Join(dir, fmt.Sprintf("constraint_%d_%s", number, file))
}

// Power reads the limit that the hardware holds now.
func (c *Constraint) Power() (units.Power, error) {
	v, err := c.power.Int()
	if err != nil {
		return 0, fmt.Errorf("rapl: %w", err)
	}
	return units.Power(v), nil
}

// Window reads the averaging window, or fs.ErrNotExist for a constraint
// without one.
func (c *Constraint) Window() (time.Duration, error) {
	if c.window == nil {
		return 0, fmt.Errorf("rapl: %s window: %w", c.Name, fs.ErrNotExist)
	}
	v, err := c.window.Int()
	if err != nil {
		return 0, fmt.Errorf("rapl: %w", err)
	}
	return time.Duration(v) * time.Microsecond, nil
}
