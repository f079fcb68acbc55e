package dvfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
)

// The two turbo switches of the kernel. They mean opposite things.
const (
	noTurboFile = "sys/devices/system/cpu/intel_pstate/no_turbo"
	boostFile   = "sys/devices/system/cpu/cpufreq/boost"
)

// Turbo is the machine's turbo switch, open for reading.
type Turbo struct {
	// Path is the switch's file below the root.
	Path string

	inverted bool // the file says "no turbo"
	open     sysfs.Opener
	attr     *sysfs.Attr
}

// OpenTurbo finds the turbo switch: no_turbo of intel_pstate (in either mode),
// else boost of the other drivers. ErrNoTurbo where there is neither.
func OpenTurbo(files *sysfs.Files) (*Turbo, error) { return openTurbo(files.Open) }

func openTurbo(open sysfs.Opener) (*Turbo, error) {
	// With intel_pstate off, no_turbo stays but the driver does not answer for it.
	status, err := open.ReadText(intelStatus)
	intel := err != nil || status != "off"
	for _, t := range []*Turbo{{Path: noTurboFile, inverted: true}, {Path: boostFile}} {
		if t.inverted && !intel {
			continue
		}
		t.open = open
		if t.attr, err = sysfs.NewAttr(t.Path, open); err == nil {
			_, err = t.attr.Int()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return t, nil // another error is for whoever reads it
		}
	}
	return nil, fmt.Errorf("dvfs: %w", ErrNoTurbo)
}

// Allowed reads whether turbo may be used now.
func (t *Turbo) Allowed() (bool, error) {
	v, err := t.attr.Int()
	return (v != 0) != t.inverted, err
}

// Raw is what the switch's file holds when turbo is allowed, or not.
func (t *Turbo) Raw(on bool) int64 {
	if on != t.inverted {
		return 1
	}
	return 0
}

// Close closes the descriptors.
func (t *Turbo) Close() error { return t.attr.Close() }

// TurboSwitch is the hand on the turbo switch. It is for one goroutine.
type TurboSwitch struct {
	turbo   *Turbo
	control *sysfs.Control
}

// Switch opens the switch for writing; nothing is written yet.
func (t *Turbo) Switch() (*TurboSwitch, error) {
	c, err := sysfs.NewControl(t.Path, t.open)
	if err != nil {
		return nil, fmt.Errorf("dvfs: %w", err)
	}
	return &TurboSwitch{t, c}, nil
}

// Knob is the file behind the switch, for saving and putting back: as the file
// has it, so 1 in no_turbo means that turbo is off.
func (s *TurboSwitch) Knob() Knob { return Knob{"turbo switch", s.control} }

// Allow lets turbo be used, or not, and returns what reads back. ErrTurboLocked
// when firmware holds it.
func (s *TurboSwitch) Allow(on bool) (bool, error) {
	raw, err := s.control.Write(s.turbo.Raw(on))
	got := (raw != 0) != s.turbo.inverted
	switch {
	case errors.Is(err, unix.EPERM):
		err = errors.Join(ErrTurboLocked, err) // intel_pstate: "Turbo disabled by BIOS"
	case err == nil && got != on:
		err = ErrNotTaken
	}
	if err != nil {
		return got, fmt.Errorf("dvfs: turbo: %w", err)
	}
	return got, nil
}

// Close closes the descriptors. The switch stays as it is.
func (s *TurboSwitch) Close() error { return s.control.Close() }
