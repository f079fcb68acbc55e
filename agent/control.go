package agent

import (
	"errors"
	"fmt"
	"os"
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

// kind says what a control holds, and so how its values are compared and shown.
type kind string

// Kinds of control. The first seven are files and can be put back by anybody who
// may write them; the others are reached through another program.
const (
	powerControl  kind = "power"     // microwatts, rounded to 1/8 W by hardware
	windowControl kind = "window"    // microseconds, rounded to a coarse ladder
	switchControl kind = "switch"    // 0 or 1
	freqControl   kind = "frequency" // kilohertz, rounded down to a step by the driver

	preferenceControl kind = "preference" // the number of a dvfs.EPP
	noTurboControl    kind = "no-turbo"   // 1: turbo is off
	boostControl      kind = "boost"      // 1: turbo is on

	bandwidthControl kind = "bandwidth" // systemd: CPU time a second, microseconds
	bmcControl       kind = "bmc"       // the BMC's own limit, as encodeLimit writes it
)

const (
	// windowSlack is how far a window may read back, as a part of it (rapl.SetWindow).
	windowSlack = 4
	// freqSlack is how far below what was asked for a driver may round a frequency,
	// as a part of it: a step of the coarsest tables.
	freqSlack = 8
)

// value is what a control holds: a number, or words.
type value struct {
	number int64
	text   string
}

func (k kind) known() bool {
	switch k {
	case powerControl, windowControl, switchControl, freqControl, preferenceControl, noTurboControl, boostControl, bandwidthControl, bmcControl:
		return true
	}
	return false
}

// turbo says that the control is one of the turbo switches.
func (k kind) turbo() bool { return k == noTurboControl || k == boostControl }

// file says that the control is a file below the root.
func (k kind) file() bool { return k.known() && k != bandwidthControl && k != bmcControl }

// same says whether two values are one but for what hardware rounds.
func (k kind) same(a, b value) bool {
	apart := max(a.number-b.number, b.number-a.number)
	switch k {
	case powerControl:
		return rapl.Same(units.Power(a.number), units.Power(b.number))
	case windowControl:
		return apart <= max(a.number, b.number)/windowSlack
	case freqControl:
		return apart <= max(a.number, b.number)/freqSlack
	case bandwidthControl:
		return systemd.Bandwidth(a.number).Same(systemd.Bandwidth(b.number))
	case preferenceControl:
		return a == b || fastest(a) && fastest(b)
	case switchControl, noTurboControl, boostControl, bmcControl:
	}
	return a == b
}

// fastest says that a preference is the one with two names.
func fastest(v value) bool { return v.number == 0 || dvfs.EPP(v.number) == dvfs.EPPPerformance }

// words is a value for an operator.
func (k kind) words(v value) string {
	switch k {
	case powerControl:
		return units.Power(v.number).String()
	case windowControl:
		return (time.Duration(v.number) * time.Microsecond).String()
	case freqControl:
		return units.Freq(v.number).String()
	case bandwidthControl:
		return systemd.Bandwidth(v.number).String()
	case bmcControl:
		return limitWords(v.text)
	case preferenceControl:
		return dvfs.EPP(v.number).String()
	case noTurboControl:
		return onOff(v.number == 0)
	case switchControl, boostControl:
	}
	return onOff(v.number != 0)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// control is one thing that powerd may write.
type control struct {
	path  string
	label string
	kind  kind
	// read is what it holds now.
	read func() (value, error)
}

// fileControl is a control that is a file with a number in it.
func fileControl(c *sysfs.Control, label string, k kind) control {
	return control{path: c.Path(), label: label, kind: k, read: func() (value, error) {
		v, err := c.Read()
		return value{number: v}, err
	}}
}

// save is the control as it stands now.
func (c control) save() (saved, error) {
	v, err := c.read()
	if err != nil {
		return saved{}, fmt.Errorf("agent: save %s: %w: %w", c.label, ErrUnread, err)
	}
	return saved{Path: c.path, Label: c.label, Kind: c.kind, Original: v.number, Text: v.text}, nil
}

// errNoFile reports a control that is no file, so that only another program can
// say what it holds.
var errNoFile = errors.New("agent: this control is no file")

// open opens the control's file, which may be a register shown as one.
func (c saved) open(root *os.Root) (*sysfs.Control, error) {
	switch {
	case !c.Kind.file():
		return nil, errNoFile
	case msr.Owns(c.Path):
		return msr.OpenControl(root, c.Path)
	}
	return sysfs.NewControl(c.Path, dvfs.Files(root))
}

// read is what the control's file holds now.
func (c saved) read(root *os.Root) (v value, err error) {
	file, err := c.open(root)
	if err != nil {
		return value{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	v.number, err = file.Read()
	return v, err
}

// write puts v into the control's file and reads it back. A bound of frequency, which
// the kernel carries out a little later, is waited for as long as patience lasts.
func (c saved) write(root *os.Root, v value, patience *time.Duration) (got value, err error) {
	file, err := c.open(root)
	if err != nil {
		return value{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	got.number, err = file.Write(v.number)
	if err != nil || c.Kind != freqControl {
		return got, err
	}
	stands, err := dvfs.Settle(file, units.Freq(got.number), func(f units.Freq) bool {
		return c.took(root, value{number: int64(f)}, v)
	}, patience)
	return value{number: int64(stands)}, err
}

// took says whether got is what became of v, which was written. While turbo is off,
// ceilings read back lower than they are; where the range has moved, they go as far as it does.
func (c saved) took(root *os.Root, got, v value) bool {
	return c.Kind.same(got, v) || c.Kind == freqControl && got.number < v.number && turboIsOff(root) || rangeMoved(root, c, got.number)
}

func turboIsOff(root *os.Root) bool {
	turbo, err := dvfs.OpenTurbo(root)
	if err != nil {
		return false
	}
	on, err := turbo.Allowed()
	return errors.Join(err, turbo.Close()) == nil && !on
}

// standing is what the control's file holds. A ceiling that the turbo switch moved,
// which goes back before it, is waited for: it comes out as it was found, or as byTurbo
// knows it.
func (c saved) standing(root *os.Root, t *trail, patience *time.Duration) (v value, err error) {
	v, err = c.read(root)
	if err != nil || c.Kind != freqControl {
		return v, err
	}
	file, err := c.open(root)
	if err != nil {
		return value{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	stands, err := dvfs.Settle(file, units.Freq(v.number), func(f units.Freq) bool {
		now := value{number: int64(f)}
		return now == c.found() || t.ours(c, now) || c.byTurbo(root, t, now)
	}, patience)
	return value{number: int64(stands)}, err
}

// byTurbo says that a ceiling stands at the top because powerd switched turbo: some
// drivers set every ceiling anew then (cppc_cpufreq), whatever it was.
func (c saved) byTurbo(root *os.Root, t *trail, now value) bool {
	return t.switched() && c.atTop(root, now.number)
}

// topFile is the end of a policy's range.
const topFile = "cpuinfo_max_freq"

// atTop says that the control is a ceiling, and v the end of its range.
func (c saved) atTop(root *os.Root, v int64) bool {
	top, known := c.top(root)
	return known && v == top
}

// top is the end of the range of a ceiling; false where it is not known, or c is none.
func (c saved) top(root *os.Root) (int64, bool) {
	if c.Kind != freqControl || path.Base(c.Path) == floorFile {
		return 0, false
	}
	v, err := sysfs.ReadInt(root, path.Join(path.Dir(c.Path), topFile))
	return v, err == nil
}

// asFound is the control with the original that goes back now: of a ceiling that was met at
// the end of its range, while powerd had turbo off, the end of the range with turbo.
func (c saved) asFound(root *os.Root) saved {
	if top, known := c.top(root); c.Top && known {
		c.Original = max(c.Original, top)
	}
	return c
}

// rangeMoved says that a frequency bound reads back as the end of the range that the
// policy has now, beyond which the original lies: turbo was switched, or firmware or
// a kernel moved it. That is as far back as it can go.
func rangeMoved(root *os.Root, c saved, now int64) bool {
	end, beyond := "", false
	switch {
	case c.Kind != freqControl:
	case strings.HasSuffix(c.Path, "/"+floorFile):
		end, beyond = "cpuinfo_min_freq", now > c.Original
	default:
		end, beyond = topFile, now < c.Original
	}
	if !beyond {
		return false
	}
	v, err := sysfs.ReadInt(root, path.Join(path.Dir(c.Path), end))
	return err == nil && v == now
}
