package originals

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"headroom/dvfs"
	"headroom/rapl"
	"headroom/rapl/msr"
	"headroom/rapl/sysfs"
	"headroom/systemd"
	"headroom/units"
)

// Kind is what a control holds, which determines how its values are compared and shown.
type Kind string

// Kinds of control. The first seven are files and can be restored by any process that
// may write them; the others are reached through another program.
const (
	Power     Kind = "power"     // microwatts, rounded to 1/8 W by hardware
	Window    Kind = "window"    // microseconds, rounded to a coarse ladder
	Switch    Kind = "switch"    // 0 or 1
	Frequency Kind = "frequency" // kilohertz, rounded down to a step by the driver

	Preference Kind = "preference" // the number of a dvfs.EPP
	NoTurbo    Kind = "no-turbo"   // 1: turbo is off
	Boost      Kind = "boost"      // 1: turbo is on

	Bandwidth Kind = "bandwidth" // systemd: CPU time a second, microseconds
	BMC       Kind = "bmc"       // the BMC's own limit, as encodeLimit writes it
)

const (
	// windowSlack is how far a window may read back, as a part of it (rapl.SetWindow).
	windowSlack = 4
	// freqSlack is how far below what was asked for a driver may round a frequency,
	// as a part of it: a step of the coarsest tables.
	freqSlack = 8
)

// Value is what a control holds: a number, or words.
type Value struct {
	Number int64
	Text   string
}

func (k Kind) known() bool {
	switch k {
	case Power, Window, Switch, Frequency, Preference, NoTurbo, Boost, Bandwidth, BMC:
		return true
	}
	return false
}

// turbo reports whether the control is one of the turbo switches.
func (k Kind) turbo() bool { return k == NoTurbo || k == Boost }

// file reports whether the control is a file below the root.
func (k Kind) file() bool { return k.known() && k != Bandwidth && k != BMC }

// Same reports whether two values are one but for what hardware rounds.
func (k Kind) Same(a, b Value) bool {
	apart := max(a.Number-b.Number, b.Number-a.Number)
	switch k {
	case Power:
		return rapl.Same(units.Power(a.Number), units.Power(b.Number))
	case Window:
		return apart <= max(a.Number, b.Number)/windowSlack
	case Frequency:
		return apart <= max(a.Number, b.Number)/freqSlack
	case Bandwidth:
		return systemd.Bandwidth(a.Number).Same(systemd.Bandwidth(b.Number))
	case Preference:
		return a == b || fastest(a) && fastest(b)
	case Switch, NoTurbo, Boost, BMC:
	}
	return a == b
}

// fastest reports whether a preference is the one with two names.
func fastest(v Value) bool { return v.Number == 0 || dvfs.EPP(v.Number) == dvfs.EPPPerformance }

// Words is a value for an operator.
func (k Kind) Words(v Value) string {
	switch k {
	case Power:
		return units.Power(v.Number).String()
	case Window:
		return (time.Duration(v.Number) * time.Microsecond).String()
	case Frequency:
		return units.Freq(v.Number).String()
	case Bandwidth:
		return systemd.Bandwidth(v.Number).String()
	case BMC:
		return limitWords(v.Text)
	case Preference:
		return dvfs.EPP(v.Number).String()
	case NoTurbo:
		return OnOff(v.Number == 0)
	case Switch, Boost:
	}
	return OnOff(v.Number != 0)
}

// OnOff is a switch in words.
func OnOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Control is one thing that powerd may write.
type Control struct {
	Path  string
	Label string
	Kind  Kind
	// Read is what it holds now.
	Read func() (Value, error)
	// Optional: it is left out of the journal while it cannot be read, and not written.
	Optional bool
}

// FileControl is a control that is a file with a number in it.
func FileControl(c *sysfs.Control, label string, k Kind) Control {
	return Control{Path: c.Path(), Label: label, Kind: k, Read: func() (Value, error) {
		v, err := c.Read()
		return Value{Number: v}, err
	}}
}

// ErrUnread reports a control that cannot be read, so that it cannot be saved and
// must not be written.
var ErrUnread = errors.New("current value not readable")

// save is the control as it stands now.
func (c Control) save() (Saved, error) {
	v, err := c.Read()
	if err != nil {
		return Saved{}, fmt.Errorf("agent: save %s: %w: %w", c.Label, ErrUnread, err)
	}
	return Saved{Path: c.Path, Label: c.Label, Kind: c.Kind, Original: v.Number, Text: v.Text}, nil
}

// errNoFile reports a control that is no file, so that only another program can
// say what it holds.
var errNoFile = errors.New("agent: control is not a file")

// Open opens the control's file, which may be a register shown as one. A file that powerd
// holds open is used as it is. For another one, which is opened for each use, and for a
// register, files gives up a spare descriptor where there is no other.
func (c Saved) Open(files *sysfs.Files) (*sysfs.Control, error) {
	switch {
	case !c.Kind.file():
		return nil, errNoFile
	case msr.Owns(c.Path):
		defer files.Lend()()
		return msr.OpenControl(files.Root(), c.Path)
	}
	return sysfs.NewControl(c.Path, dvfs.Files(files))
}

// read is what the control's file holds now.
func (c Saved) read(files *sysfs.Files) (v Value, err error) {
	file, err := c.Open(files)
	if err != nil {
		return Value{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	v.Number, err = file.Read()
	return v, err
}

// write puts v into the control's file and reads it back. A bound of frequency, which
// the kernel carries out a little later, is waited for as long as patience lasts.
func (c Saved) write(files *sysfs.Files, v Value, patience *time.Duration) (got Value, err error) {
	file, err := c.Open(files)
	if err != nil {
		return Value{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	got.Number, err = file.Write(v.Number)
	if err != nil || c.Kind != Frequency {
		return got, err
	}
	stands, err := dvfs.Settle(file, units.Freq(got.Number), func(f units.Freq) bool {
		return c.took(files, Value{Number: int64(f)}, v)
	}, patience)
	return Value{Number: int64(stands)}, err
}

// took reports whether got is what became of v, which was written. While turbo is off,
// ceilings read back lower than they are; where the range has moved, they go as far as it does.
func (c Saved) took(files *sysfs.Files, got, v Value) bool {
	return c.Kind.Same(got, v) || c.Kind == Frequency && got.Number < v.Number && turboIsOff(files) || rangeMoved(files, c, got.Number)
}

func turboIsOff(files *sysfs.Files) bool {
	turbo, err := dvfs.OpenTurbo(files)
	if err != nil {
		return false
	}
	on, err := turbo.Allowed()
	return errors.Join(err, turbo.Close()) == nil && !on
}

// standing is what the control's file holds. A ceiling that the turbo switch moved,
// which goes back before it, is waited for: it comes out as it was found, or as byTurbo
// knows it.
func (c Saved) standing(files *sysfs.Files, t *Trail, patience *time.Duration) (v Value, err error) {
	v, err = c.read(files)
	if err != nil || c.Kind != Frequency {
		return v, err
	}
	file, err := c.Open(files)
	if err != nil {
		return Value{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	stands, err := dvfs.Settle(file, units.Freq(v.Number), func(f units.Freq) bool {
		now := Value{Number: int64(f)}
		return now == c.Found() || t.ours(c, now) || c.byTurbo(files, t, now)
	}, patience)
	return Value{Number: int64(stands)}, err
}

// byTurbo reports whether a ceiling is at the top because powerd switched turbo: some
// drivers set every ceiling anew then (cppc_cpufreq), whatever it was.
func (c Saved) byTurbo(files *sysfs.Files, t *Trail, now Value) bool {
	return t.switched() && c.atTop(files, now.Number)
}

// FloorFile is the frequency floor, which is only ever lowered.
const FloorFile = "scaling_min_freq"

// topFile is the end of a policy's range.
const topFile = "cpuinfo_max_freq"

// atTop reports whether the control is a ceiling, and v the end of its range.
func (c Saved) atTop(files *sysfs.Files, v int64) bool {
	top, known := c.top(files)
	return known && v == top
}

// top is the end of the range of a ceiling; false where it is not known, or c is none.
func (c Saved) top(files *sysfs.Files) (int64, bool) {
	if c.Kind != Frequency || path.Base(c.Path) == FloorFile {
		return 0, false
	}
	v, err := files.ReadInt(path.Join(path.Dir(c.Path), topFile))
	return v, err == nil
}

// asFound is the control with the original that goes back now: of a ceiling that was met at
// the end of its range, while powerd had turbo off, the end of the range with turbo.
func (c Saved) asFound(files *sysfs.Files) Saved {
	if top, known := c.top(files); c.Top && known {
		c.Original = max(c.Original, top)
	}
	return c
}

// rangeMoved reports whether a frequency bound reads back as the end of the range that the
// policy has now, beyond which the original lies: turbo was switched, or firmware or
// a kernel moved it. That is as far back as it can go.
func rangeMoved(files *sysfs.Files, c Saved, now int64) bool {
	end, beyond := "", false
	switch {
	case c.Kind != Frequency:
	case strings.HasSuffix(c.Path, "/"+FloorFile):
		end, beyond = "cpuinfo_min_freq", now > c.Original
	default:
		end, beyond = topFile, now < c.Original
	}
	if !beyond {
		return false
	}
	v, err := files.ReadInt(path.Join(path.Dir(c.Path), end))
	return err == nil && v == now
}
