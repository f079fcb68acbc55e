package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// Names of the constraints that limit a package (kernel: intel_rapl_common.c).
const (
	LongTerm  = "long_term"  // PL1: mean over the long window
	ShortTerm = "short_term" // PL2: mean over a window of milliseconds
)

// constraintsMax bounds the constraint files looked for in a zone; the kernel
// registers three at most (long_term, short_term, peak_power).
const constraintsMax = 8

// openZone opens what can be read of the zone in dir.
func openZone(root *os.Root, dir, control string) (*Zone, error) {
	name, err := sysfs.ReadText(root, path.Join(dir, "name"))
	if err != nil {
		return nil, err
	}
	z := &Zone{Kind: kindOf(name), Control: control, Name: name, Dir: dir, root: root}
	z.energy, z.energyErr = sysfs.Open(root, path.Join(dir, "energy_uj"))
	if span, err := sysfs.ReadInt(root, path.Join(dir, "max_energy_range_uj")); err == nil {
		z.Range = units.Energy(span)
	}
	if z.enabled, err = sysfs.Open(root, path.Join(dir, "enabled")); err != nil {
		z.enabled = nil // zones without limits have no switch
	}
	for n := range constraintsMax {
		c, err := openConstraint(root, dir, n)
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
	if z.energy == nil {
		return 0, fmt.Errorf("rapl: %s: %w", z.Label, z.energyErr)
	}
	v, err := z.energy.Int()
	if err != nil {
		return 0, fmt.Errorf("rapl: %s: %w", z.Label, err)
	}
	return units.Energy(v), nil
}

// Enabled says whether the zone's limits are switched on. A zone locked by
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
	for _, c := range z.constraints {
		if c.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("rapl: %s: %s: %w", z.Label, name, ErrNoConstraint)
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

func (z *Zone) close() error {
	var errs []error
	for _, a := range []*sysfs.Attr{z.energy, z.enabled} {
		if a != nil {
			errs = append(errs, a.Close())
		}
	}
	for _, c := range z.constraints {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// Constraint is one limit of a zone, open for reading.
type Constraint struct {
	// Name is "long_term", "short_term" or "peak_power".
	Name string
	// PowerMax is the highest limit the constraint says it accepts; 0 when it
	// does not say (the kernel answers ENODATA for some).
	PowerMax units.Power

	number int
	power  *sysfs.Attr
	window *sysfs.Attr // nil for peak_power, which has none
}

func openConstraint(root *os.Root, dir string, number int) (*Constraint, error) {
	name, err := sysfs.ReadText(root, constraintPath(dir, number, "name"))
	if err != nil {
		return nil, err
	}
	power, err := sysfs.Open(root, constraintPath(dir, number, "power_limit_uw"))
	if err != nil {
		return nil, err
	}
	c := &Constraint{Name: name, number: number, power: power}
	if w, err := sysfs.Open(root, constraintPath(dir, number, "time_window_us")); err == nil {
		c.window = w
	}
	if v, err := sysfs.ReadInt(root, constraintPath(dir, number, "max_power_uw")); err == nil {
		c.PowerMax = units.Power(v)
	}
	return c, nil
}

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

func (c *Constraint) close() error {
	if c.window == nil {
		return c.power.Close()
	}
	return errors.Join(c.power.Close(), c.window.Close())
}
