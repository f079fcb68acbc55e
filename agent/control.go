package agent

import (
	"errors"
	"fmt"
	"os"
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

// Kinds of control. The first four are files and can be put back by anybody who
// may write them; the others are reached through another program.
const (
	powerControl  kind = "power"     // microwatts, rounded to 1/8 W by hardware
	windowControl kind = "window"    // microseconds, rounded to a coarse ladder
	switchControl kind = "switch"    // 0 or 1
	freqControl   kind = "frequency" // kilohertz, rounded down to a step by the driver

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
	case powerControl, windowControl, switchControl, freqControl, bandwidthControl, bmcControl:
		return true
	}
	return false
}

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
	case switchControl, bmcControl:
	}
	return a == b
}

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
	case switchControl:
	}
	if v.number == 0 {
		return "off"
	}
	return "on"
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
		return saved{}, fmt.Errorf("agent: save %s: %w", c.label, err)
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
	stands, err := dvfs.Settle(file, units.Freq(got.number), func(f units.Freq) bool { return c.Kind.same(value{number: int64(f)}, v) }, patience)
	return value{number: int64(stands)}, err
}
