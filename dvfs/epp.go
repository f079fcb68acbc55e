package dvfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
)

// The files of the energy preference.
const (
	eppFile      = "energy_performance_preference"
	eppListFile  = "energy_performance_available_preferences"
	eppBytes     = 256 // a number below is the register's own value
	governorPins = "performance"
)

// EPP is an energy performance preference of a processor that selects its own frequency.
// Values 0 (performance) to 255 (power saving) are those of the register; higher ones are
// the words of the kernel. Their meaning never changes, because journals store them.
type EPP int64

// The kernel's words.
const (
	EPPDefault            EPP = eppBytes + iota // "default"
	EPPPerformance                              // "performance"
	EPPBalancePerformance                       // "balance_performance"
	EPPBalancePower                             // "balance_power"
	EPPPower                                    // "power"
)

// ParseEPP reads a preference as the kernel shows it: a word or a number from 0
// to 255.
func ParseEPP(text string) (EPP, error) {
	for e := EPPDefault; e <= EPPPower; e++ {
		if text == e.String() {
			return e, nil
		}
	}
	v, err := sysfs.ParseInt(eppFile, []byte(text))
	if err != nil || v >= eppBytes {
		return 0, fmt.Errorf("dvfs: %.64q: %w", text, errNotPreference)
	}
	return EPP(v), nil
}

// String returns the preference as the kernel accepts it.
func (e EPP) String() string {
	switch e {
	case EPPDefault:
		return "default"
	case EPPPerformance:
		return "performance"
	case EPPBalancePerformance:
		return "balance_performance"
	case EPPBalancePower:
		return "balance_power"
	case EPPPower:
		return "power"
	}
	return strconv.FormatInt(int64(e), 10)
}

// EPP reads the energy preference in force. It returns ErrNoPreference if the driver has
// none.
func (p *Policy) EPP() (EPP, error) {
	v, err := p.open.ReadInt(p.path(eppFile))
	if err != nil {
		return 0, noPreference(p.Name, err)
	}
	return EPP(v), nil
}

// Pinned reports whether the performance governor is in force, which fixes the energy
// preference at "performance".
func (p *Policy) Pinned() bool {
	g, err := p.Governor()
	return err == nil && g == governorPins
}

// Preference writes a policy's energy preference. It is for one goroutine.
type Preference struct {
	policy  *Policy
	control *sysfs.Control
}

// Preference opens the policy's energy preference for writing, without writing. It returns
// ErrNoPreference if the driver has none.
func (p *Policy) Preference() (*Preference, error) {
	c, err := sysfs.NewControl(p.path(eppFile), p.open)
	if err != nil {
		return nil, noPreference(p.Name, err)
	}
	return &Preference{p, c}, nil
}

// Knob returns the file of the preference, for saving and restoring it.
func (p *Preference) Knob() Knob { return Knob{p.policy.Name + " energy preference", p.control} }

// Set writes a preference and returns the value that reads back. Under the performance
// governor it returns ErrPinned and changes nothing.
func (p *Preference) Set(e EPP) (EPP, error) {
	v, err := p.control.Write(int64(e))
	if errors.Is(err, unix.ENODEV) && p.control.Reopen() == nil {
		v, err = p.control.Write(int64(e))
	}
	got := EPP(v)
	if err == nil && !sameEPP(got, e) {
		err = ErrNotTaken
	}
	if errors.Is(err, unix.EBUSY) {
		err = errors.Join(p.busy(), err)
	}
	if err != nil {
		return got, fmt.Errorf("dvfs: %s: energy preference %v: %w", p.policy.Name, e, err)
	}
	return got, nil
}

// busy distinguishes the two meanings of EBUSY: pinned by the governor, or offline.
func (p *Preference) busy() error {
	if p.policy.Pinned() {
		return ErrPinned
	}
	return ErrOffline
}

// Close closes the descriptors. The preference does not change.
func (p *Preference) Close() error { return p.control.Close() }

// sameEPP reports whether got matches want: the default is the choice of the firmware, and
// reads back by another name.
func sameEPP(got, want EPP) bool {
	switch {
	case got == want || want == EPPDefault:
		return true
	case want == EPPPerformance:
		return got == 0
	}
	// A number may read back as the word for it, whichever the processor uses.
	return want < eppBytes && got >= eppBytes
}

func noPreference(policy string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dvfs: %s: %w", policy, errors.Join(ErrNoPreference, err))
	}
	return fmt.Errorf("dvfs: %s: %w", policy, offline(err))
}

// numbered shows the energy preference of any policy as a number.
func numbered(open sysfs.Opener) sysfs.Opener {
	return func(file string, write bool) (sysfs.File, error) {
		f, err := open(file, write)
		if err != nil || path.Base(file) != eppFile {
			return f, err
		}
		return &eppNumber{f}, nil
	}
}

// eppNumber turns the words of an energy preference into numbers and back.
type eppNumber struct{ file sysfs.File }

// eppTextMax is enough for the longest word.
const eppTextMax = 64

// Pread returns the number of the preference. An invalid text is returned unchanged, so
// that the error quotes it.
func (n *eppNumber) Pread(buf []byte) (int, error) {
	var text [eppTextMax]byte
	size, err := n.file.Pread(text[:])
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text[:size]), "\n")
	e, err := ParseEPP(strings.TrimSpace(line))
	if err != nil {
		return copy(buf, text[:size]), nil
	}
	return copy(buf, strconv.FormatInt(int64(e), 10)+"\n"), nil
}

// Pwrite writes the word of a preference given as a number.
func (n *eppNumber) Pwrite(text []byte) (int, error) {
	v, err := sysfs.ParseInt(eppFile, text)
	if err != nil {
		return 0, err
	}
	if EPP(v) > EPPPower {
		return 0, fmt.Errorf("%d: %w", v, errNotPreference)
	}
	word := EPP(v).String() + "\n"
	size, err := n.file.Pwrite([]byte(word))
	if err == nil && size != len(word) {
		return 0, nil // a short write: the caller compares with its own length
	}
	return len(text), err
}

// Close closes the file.
func (n *eppNumber) Close() error { return n.file.Close() }
