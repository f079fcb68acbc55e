package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/each"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// Rounding is the largest difference between a written limit and the one that reads back: the register
// counts in 1/8 W.
const Rounding = units.Watt / 8

// LimitMax is the highest limit that fits the register: 15 bits of 1/8 W. What is
// higher would be cut short by the kernel, not clamped.
const LimitMax = (1<<15 - 1) * Rounding

// windowRounding is how far a window may read back, as a ratio: it is encoded as
// 2^Y * (1 + Z/4) units (Intel SDM vol. 3B, 15.10.1).
const windowRounding = 0.25

// Lock reports whether firmware has locked the limits of a zone.
type Lock int

// States of a lock.
const (
	LockUnknown Lock = iota // nothing has been written yet
	Unlocked
	Locked
)

// String is the state in the words that status shows.
func (l Lock) String() string {
	switch l {
	case Unlocked:
		return "unlocked"
	case Locked:
		return "locked"
	case LockUnknown:
	}
	return "unknown"
}

// Limiter writes the limits of one zone. There is at most one for a
// zone, and only its owner writes them. It is for one goroutine.
type Limiter struct {
	zone       *Zone
	power      map[string]*sysfs.Control
	window     map[string]*sysfs.Control
	enabled    *sysfs.Control
	clamp      *sysfs.Control // nil in powercap, where the switch carries it
	written    map[*sysfs.Control]mark
	lock       Lock
	generation int // of the zone's files that are open
}

// mark is the last value written to a control, and the one that read back.
type mark struct{ want, got int64 }

// Limiter opens the zone's limits for writing. It fails with ErrNotPackage for
// cores, memory and the platform, with ErrNoConstraint when the zone has no
// long_term limit (AMD) and with fs.ErrPermission when the files may not be
// written. Nothing is written yet.
func (z *Zone) Limiter() (*Limiter, error) {
	if z.Kind != Package {
		return nil, fmt.Errorf("rapl: %s: %w", z.Label, errNotPackage)
	}
	if _, err := z.Constraint(LongTerm); err != nil {
		return nil, err
	}
	l := &Limiter{
		zone: z, power: map[string]*sysfs.Control{}, window: map[string]*sysfs.Control{},
		written: map[*sysfs.Control]mark{}, generation: z.generation,
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("rapl: %s: %w", z.Label, err), l.Close())
	}
	if locked, known := z.Locked(); known && !locked {
		l.lock = Unlocked
	} else if known {
		l.lock = Locked
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
	if l.clamp, err = l.control(path.Join(l.zone.Dir, "clamp")); err != nil {
		return err
	}
	l.enabled, err = l.control(path.Join(l.zone.Dir, "enabled"))
	return err
}

// control opens one file for writing; a file that is not there is nil.
func (l *Limiter) control(file string) (*sysfs.Control, error) {
	c, err := sysfs.NewControl(file, l.zone.open)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return c, err
}

// sync opens the files again when the zone went away and came back.
func (l *Limiter) sync() error {
	if l.zone.gone {
		return fmt.Errorf("rapl: %s: %w", l.zone.Label, errGone)
	}
	if l.generation == l.zone.generation {
		return nil
	}
	errs := each.Of(l.Controls(), (*sysfs.Control).Reopen)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rapl: %s: %w", l.zone.Label, err)
	}
	l.generation = l.zone.generation
	return nil
}

// Lock returns what is known of a firmware lock. Powercap does not show it, so it
// stays LockUnknown until a write has shown it.
func (l *Limiter) Lock() Lock { return l.lock }

// Has reports whether the zone has a limit of that name.
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
	for _, c := range []*sysfs.Control{l.clamp, l.enabled} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// PowerPath is the file that holds the limit of that name, "" without one.
func (l *Limiter) PowerPath(constraint string) string { return pathOf(l.power[constraint]) }

// WindowPath is the file that holds the window of that limit, "" without one.
func (l *Limiter) WindowPath(constraint string) string { return pathOf(l.window[constraint]) }

// SwitchPath is the file that switches the zone's limits on, "" without one.
func (l *Limiter) SwitchPath() string { return pathOf(l.enabled) }

// ClampPath is the file that lets the zone go below its base frequency to hold
// its limits, "" without one: in powercap the switch carries it.
func (l *Limiter) ClampPath() string { return pathOf(l.clamp) }

func pathOf(c *sysfs.Control) string {
	if c == nil {
		return ""
	}
	return c.Path()
}

// SetPower writes a limit and returns what reads back. What hardware would take
// for 0 W, or could not hold, is refused before the write (ErrZeroLimit,
// ErrTooHigh). A *WriteError says that the two differ by more than rounding, or
// that the write failed; a *LockedError around it that the limits are locked.
func (l *Limiter) SetPower(constraint string, want units.Power) (units.Power, error) {
	c := l.power[constraint]
	var refused error
	switch {
	case c == nil:
		refused = ErrNoConstraint
	case want < Rounding: // would be cut to 0
		refused = ErrZeroLimit
	case want > LimitMax:
		refused = ErrTooHigh
	}
	if refused != nil {
		return 0, fmt.Errorf("rapl: %s: %s: %w", l.zone.Label, constraint, refused)
	}
	before, v, err := l.put(c, int64(want))
	got := units.Power(v)
	if v == 0 && before > 0 && readable(err) {
		stands, errBack := c.Write(before) // the hardware made 0 W of it: restore at once
		return units.Power(stands), l.refused(&WriteError{
			Zone: l.zone.Label, Constraint: constraint, Want: want, Got: got, Err: orNotTaken(errors.Join(err, errBack)),
		}, errors.Join(err, errBack), false)
	}
	if got > 0 && Same(want, got) && readable(err) {
		l.held(c, int64(want), before, v)
		return got, nil
	}
	return got, l.refused(&WriteError{
		Zone: l.zone.Label, Constraint: constraint, Want: want, Got: got, Err: orNotTaken(err),
	}, err, before == v)
}

// Power reads back the limit that the hardware holds now.
func (l *Limiter) Power(constraint string) (units.Power, error) {
	c := l.power[constraint]
	if c == nil {
		return 0, fmt.Errorf("rapl: %s: %s: %w", l.zone.Label, constraint, ErrNoConstraint)
	}
	v, err := l.read(c)
	return units.Power(v), err
}

// Window reads back the averaging window that the hardware holds now.
func (l *Limiter) Window(constraint string) (time.Duration, error) {
	c := l.window[constraint]
	if c == nil {
		return 0, fmt.Errorf("rapl: %s: %s window: %w", l.zone.Label, constraint, ErrNoConstraint)
	}
	v, err := l.read(c)
	return time.Duration(v) * time.Microsecond, err
}

// SetWindow writes an averaging window and returns what reads back. A
// *WindowError says that the two differ by more than the encoding's rounding. A
// window below 1 us is refused with ErrZeroWindow.
func (l *Limiter) SetWindow(constraint string, want time.Duration) (time.Duration, error) {
	c := l.window[constraint]
	switch {
	case c == nil:
		return 0, fmt.Errorf("rapl: %s: %s window: %w", l.zone.Label, constraint, ErrNoConstraint)
	case want < time.Microsecond:
		return 0, fmt.Errorf("rapl: %s: %s window: %w", l.zone.Label, constraint, errZeroWindow)
	}
	before, v, err := l.put(c, want.Microseconds())
	got := time.Duration(v) * time.Microsecond
	if math.Abs(float64(got-want)) <= windowRounding*float64(want) && readable(err) {
		l.held(c, want.Microseconds(), before, v)
		return got, nil
	}
	// No lock is read from this: some firmware fixes a window and leaves the limits free.
	return got, fmt.Errorf("rapl: %s %s window: wrote %v, reads %v: %w", l.zone.Label, constraint, want, got, orNotTaken(err))
}

// Enable switches the zone's limits on, and clamping with them where it has a
// switch of its own: a limit without clamping is not held below the base
// frequency. A zone without a switch is always on.
func (l *Limiter) Enable() error {
	var errs []error
	for _, c := range []*sysfs.Control{l.clamp, l.enabled} {
		if c == nil {
			continue
		}
		before, got, err := l.put(c, 1)
		if got == 1 && readable(err) {
			l.held(c, 1, before, 1)
			continue
		}
		errs = append(errs, l.refused(fmt.Errorf("rapl: %s: enable limits: %w", l.zone.Label, orNotTaken(err)), err, true))
	}
	return errors.Join(errs...)
}

// Close closes the descriptors. The limits stay as they are.
func (l *Limiter) Close() error {
	return errors.Join(each.Of(l.Controls(), (*sysfs.Control).Close)...)
}

// Same reports whether two limits are the same but for the register's rounding.
func Same(a, b units.Power) bool { return max(a-b, b-a) <= Rounding }

// unreadError marks an error of the reading back, so that the value beside it is
// known to be none.
type unreadError struct{ error }

// Unwrap is the system's error.
func (e unreadError) Unwrap() error { return e.error }

// readable reports whether the value which came with err was really read.
func readable(err error) bool {
	var unread unreadError
	return !errors.As(err, &unread)
}

func (l *Limiter) read(c *sysfs.Control) (int64, error) {
	if err := l.sync(); err != nil {
		return 0, err
	}
	return c.Read()
}

// put writes and reads back. The error joins what went wrong with the write and,
// as an unreadError, with reading; only what stands there afterwards counts, since
// the kernel reports some refused writes as done and some done ones as failed.
func (l *Limiter) put(c *sysfs.Control, want int64) (before, got int64, err error) {
	if err := l.sync(); err != nil {
		return 0, 0, unreadError{err}
	}
	before, errBefore := c.Read()
	if errBefore != nil {
		before = -1
	}
	_, err = c.Write(want)
	got, errAfter := c.Read()
	if errAfter != nil {
		err = errors.Join(err, unreadError{errAfter})
	}
	return before, got, err
}

// held notes a write that reads back. One that moved the value shows that
// nothing is locked.
func (l *Limiter) held(c *sysfs.Control, want, before, got int64) {
	l.written[c] = mark{want: want, got: got}
	if before != got {
		l.lock = Unlocked
	}
}

// refused wraps what a write that did not take means. unchanged says that the
// old value still stands.
func (l *Limiter) refused(failure, cause error, unchanged bool) error {
	how := ""
	switch {
	case !readable(cause):
	case errors.Is(cause, unix.ENODATA): // powercap returns this for any refusal by the driver
		how = "the kernel answers ENODATA"
	case errors.Is(cause, unix.ENOSYS): // and this for a refused switch
		how = "the kernel answers ENOSYS"
	case errors.Is(cause, fs.ErrPermission): // the file is open for writing, so this comes from the driver
		how = "the driver answers that it is not permitted"
	case cause == nil && unchanged: // kernels before 6.x drop the register write's error
		how = "the write was accepted and the value stayed"
	}
	if how == "" || !unchanged {
		return failure
	}
	l.lock = Locked
	return &LockedError{Zone: l.zone.Label, How: how, Err: failure}
}

func orNotTaken(err error) error {
	if err == nil {
		return ErrNotTaken
	}
	return err
}
