package rapl

import (
	"errors"
	"time"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// Limits are the settings of one zone.
type Limits struct {
	Long, Short             units.Power
	LongWindow, ShortWindow time.Duration
	Enable                  bool // limits are switched on (and clamp, where that is told)
}

// Note is called with a control's path, the value about to be written and the one
// that stands there, before each write. When it fails, nothing is written.
type Note func(path string, value, before int64) error

// Drift is a control that no longer holds what was written.
type Drift struct {
	Path    string // of the control
	Written int64  // as it read back right after the write
	Reads   int64  // now
}

// SwitchOn is Enable for what is not on, with each switch noted before it is written.
func (l *Limiter) SwitchOn(note Note) error {
	off := false
	for _, c := range []*sysfs.Control{l.clamp, l.enabled} {
		if c == nil {
			continue
		}
		before, err := l.read(c)
		if err == nil && before == 1 {
			continue
		}
		off = true
		if note != nil {
			if err := note(c.Path(), 1, before); err != nil {
				return err
			}
		}
	}
	if !off {
		return nil
	}
	return l.Enable()
}

// Read reads every setting back. A field that the zone does not have is zero;
// Enable is true for a zone without a switch. The error joins what could not be
// read, and those fields are zero.
func (l *Limiter) Read() (Limits, error) {
	var got Limits
	var errs []error
	if err := l.sync(); err != nil {
		return got, err
	}
	read := func(c *sysfs.Control) int64 {
		if c == nil {
			return 0
		}
		v, err := c.Read()
		errs = append(errs, err)
		return v
	}
	got.Long, got.Short = units.Power(read(l.power[LongTerm])), units.Power(read(l.power[ShortTerm]))
	got.LongWindow = time.Duration(read(l.window[LongTerm])) * time.Microsecond
	got.ShortWindow = time.Duration(read(l.window[ShortTerm])) * time.Microsecond
	got.Enable = (l.enabled == nil || read(l.enabled) == 1) && (l.clamp == nil || read(l.clamp) == 1)
	return got, errors.Join(errs...)
}

// Drift lists the controls whose value changed since this limiter wrote it:
// another program writes them too. The error joins what could not be read.
func (l *Limiter) Drift() ([]Drift, error) {
	var found []Drift
	var errs []error
	for _, c := range l.Controls() {
		m, ok := l.written[c]
		if !ok {
			continue
		}
		v, err := l.read(c)
		if err == nil && v != m.got {
			found = append(found, Drift{Path: c.Path(), Written: m.got, Reads: v})
		}
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}

// Binding is the limit that a domain is really held to.
type Binding struct {
	Limit units.Power
	Zone  *Zone // whose limit that is: the zone asked for, or its twin
	// On reports whether the zone's limits are switched on. A zone that firmware has
	// locked reads as off.
	On bool
}

// Binding reads the limit of that name on z and on its twins and returns the
// lowest, which is the one that hardware obeys. A twin counts only when it says
// that it is switched on and holds more than 0 W: taking a limit for lower than
// it is would be the unsafe mistake.
func (t *Tree) Binding(z *Zone, constraint string) (Binding, error) {
	c, err := z.Constraint(constraint)
	if err != nil {
		return Binding{}, err
	}
	limit, err := c.Power()
	if err != nil {
		return Binding{}, err
	}
	low := Binding{Limit: limit, Zone: z, On: z.on()}
	for _, twin := range z.twins {
		o := twin.constraint(constraint)
		if o == nil || !twin.on() {
			continue
		}
		if p, err := o.Power(); err == nil && p > 0 && p < low.Limit {
			low = Binding{Limit: p, Zone: twin, On: true}
		}
	}
	return low, nil
}

// on reports whether the zone's limits are in force, as far as it tells.
func (z *Zone) on() bool {
	if z.gone {
		return false
	}
	if z.enabled == nil {
		return true
	}
	v, err := z.enabled.Int()
	return err == nil && v == 1
}
