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

// Apply brings the zone to want and returns what reads back, every field of it.
// Fields that are zero in want are left as they are: no limit of 0 W and no
// switching off can be asked for. Limits come first (the short one never stands
// below the long one), then windows, then the switch. What was written before
// and still reads back is not written again. A field that fails does not stop
// the others.
func (l *Limiter) Apply(want Limits, note Note) (Limits, error) {
	var errs []error
	now, _ := l.Read() // what cannot be read is taken to be lower
	order := []string{ShortTerm, LongTerm}
	if want.Long < now.Long {
		order = []string{LongTerm, ShortTerm}
	}
	powers := map[string]units.Power{LongTerm: want.Long, ShortTerm: want.Short}
	for _, name := range order {
		if c, p := l.power[name], powers[name]; c != nil && p != 0 {
			errs = append(errs, l.step(c, int64(p), note, func() error { _, err := l.SetPower(name, p); return err }))
		}
	}
	windows := map[string]time.Duration{LongTerm: want.LongWindow, ShortTerm: want.ShortWindow}
	for _, name := range []string{LongTerm, ShortTerm} {
		if c, w := l.window[name], windows[name]; c != nil && w != 0 {
			errs = append(errs, l.step(c, w.Microseconds(), note, func() error { _, err := l.SetWindow(name, w); return err }))
		}
	}
	if want.Enable {
		errs = append(errs, l.SwitchOn(note))
	}
	got, err := l.Read()
	return got, errors.Join(append(errs, err)...)
}

// step writes one control unless it holds the value already.
func (l *Limiter) step(c *sysfs.Control, want int64, note Note, write func() error) error {
	before, err := l.read(c)
	if m, ok := l.written[c]; ok && err == nil && m.want == want && m.got == before {
		return nil
	}
	if note != nil {
		if err := note(c.Path(), want, before); err != nil {
			return err
		}
	}
	return write()
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
