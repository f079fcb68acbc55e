package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"time"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// Rounding is how far a limit may read back from what was written: the register
// counts in 1/8 W.
const Rounding = units.Watt / 8

// windowRounding is how far a window may read back, as a ratio: it is encoded as
// 2^Y * (1 + Z/4) units (Intel SDM vol. 3B, 15.10.1).
const windowRounding = 0.25

// hintRefused is the way out when a limit does not take.
const hintRefused = "the firmware may have locked the limits: look for a RAPL lock or cTDP in the BIOS set-up;" +
	" until then set enforce: false on this node"

// Limiter is the hand on the limits of one zone. There is at most one for a
// zone, and only its owner writes them. It is for one goroutine.
type Limiter struct {
	zone    *Zone
	power   map[string]*sysfs.Control
	window  map[string]*sysfs.Control
	enabled *sysfs.Control
}

// Limiter opens the zone's limits for writing. It fails with ErrNoConstraint
// when the zone has no long_term limit (AMD, cores, DRAM) and with
// fs.ErrPermission when the files may not be written. Nothing is written yet.
func (z *Zone) Limiter() (*Limiter, error) {
	if _, err := z.Constraint(LongTerm); err != nil {
		return nil, err
	}
	l := &Limiter{zone: z, power: map[string]*sysfs.Control{}, window: map[string]*sysfs.Control{}}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("rapl: %s: %w", z.Label, err), l.Close())
	}
	return l, nil
}

func (l *Limiter) open() error {
	for _, name := range []string{LongTerm, ShortTerm} {
		c, err := l.zone.Constraint(name)
		if err != nil {
			continue // short_term is optional
		}
		if l.power[name], err = l.control(constraintPath(l.zone.Dir, c.number, "power_limit_uw")); err != nil {
			return err
		}
		if l.window[name], err = l.control(constraintPath(l.zone.Dir, c.number, "time_window_us")); err != nil {
			return err
		}
	}
	var err error
	l.enabled, err = l.control(path.Join(l.zone.Dir, "enabled"))
	return err
}

// control opens one file for writing; a file that is not there is nil.
func (l *Limiter) control(file string) (*sysfs.Control, error) {
	c, err := sysfs.OpenControl(l.zone.root, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return c, err
}

// Zone is the zone whose limits these are.
func (l *Limiter) Zone() *Zone { return l.zone }

// Has says whether the zone has a limit of that name.
func (l *Limiter) Has(constraint string) bool { return l.power[constraint] != nil }

// Controls are the files that this limiter may write, in the order in which
// they have to be put back: limits, windows, and the switch last (toggling it
// also toggles clamping, and firmware checks the limit when it is set).
func (l *Limiter) Controls() []*sysfs.Control {
	var all []*sysfs.Control
	for _, set := range []map[string]*sysfs.Control{l.power, l.window} {
		for _, name := range []string{LongTerm, ShortTerm} {
			if set[name] != nil {
				all = append(all, set[name])
			}
		}
	}
	if l.enabled != nil {
		all = append(all, l.enabled)
	}
	return all
}

// PowerPath is the file that holds the limit of that name, "" without one.
func (l *Limiter) PowerPath(constraint string) string {
	if c := l.power[constraint]; c != nil {
		return c.Path()
	}
	return ""
}

// WindowPath is the file that holds the window of that limit, "" without one.
func (l *Limiter) WindowPath(constraint string) string {
	if c := l.window[constraint]; c != nil {
		return c.Path()
	}
	return ""
}

// SwitchPath is the file that switches the zone's limits on, "" without one.
func (l *Limiter) SwitchPath() string {
	if l.enabled == nil {
		return ""
	}
	return l.enabled.Path()
}

// SetPower writes a limit and returns what reads back. A *WriteError says that
// the two differ by more than rounding, or that the write failed.
func (l *Limiter) SetPower(constraint string, want units.Power) (units.Power, error) {
	c := l.power[constraint]
	switch {
	case c == nil:
		return 0, fmt.Errorf("rapl: %s: %s: %w", l.zone.Label, constraint, ErrNoConstraint)
	case want <= 0:
		return 0, fmt.Errorf("rapl: %s: %s: %w", l.zone.Label, constraint, ErrZeroLimit)
	}
	v, err := c.Write(int64(want))
	got := units.Power(v)
	if err == nil && !Same(want, got) {
		err = ErrNotTaken
	}
	if err == nil {
		return got, nil
	}
	return got, &WriteError{Zone: l.zone.Label, Constraint: constraint, Want: want, Got: got, Err: err, Hint: hintRefused}
}

// Power reads back the limit that the hardware holds now.
func (l *Limiter) Power(constraint string) (units.Power, error) {
	c := l.power[constraint]
	if c == nil {
		return 0, fmt.Errorf("rapl: %s: %s: %w", l.zone.Label, constraint, ErrNoConstraint)
	}
	v, err := c.Read()
	return units.Power(v), err
}

// Window reads back the averaging window that the hardware holds now.
func (l *Limiter) Window(constraint string) (time.Duration, error) {
	c := l.window[constraint]
	if c == nil {
		return 0, fmt.Errorf("rapl: %s: %s window: %w", l.zone.Label, constraint, ErrNoConstraint)
	}
	v, err := c.Read()
	return time.Duration(v) * time.Microsecond, err
}

// SetWindow writes an averaging window and returns what reads back. A
// *WindowError says that the two differ by more than the encoding's rounding.
func (l *Limiter) SetWindow(constraint string, want time.Duration) (time.Duration, error) {
	c := l.window[constraint]
	if c == nil {
		return 0, fmt.Errorf("rapl: %s: %s window: %w", l.zone.Label, constraint, ErrNoConstraint)
	}
	v, err := c.Write(want.Microseconds())
	got := time.Duration(v) * time.Microsecond
	if err == nil && math.Abs(float64(got-want)) > windowRounding*float64(want) {
		err = ErrNotTaken
	}
	if err == nil {
		return got, nil
	}
	return got, &WindowError{Zone: l.zone.Label, Constraint: constraint, Want: want, Got: got, Err: err}
}

// Enable switches the zone's limits on. A zone without a switch is always on.
func (l *Limiter) Enable() error {
	if l.enabled == nil {
		return nil
	}
	got, err := l.enabled.Write(1)
	if err == nil && got != 1 {
		err = ErrNotTaken
	}
	if err == nil {
		return nil
	}
	return &EnableError{Zone: l.zone.Label, Err: err, Hint: hintRefused}
}

// Close gives the descriptors back. The limits stay as they are.
func (l *Limiter) Close() error {
	var errs []error
	for _, c := range l.Controls() {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Same says whether two limits are the same but for the register's rounding.
func Same(a, b units.Power) bool { return max(a-b, b-a) <= Rounding }
