package dvfs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"headroom/units"
)

// ErrNoPolicy reports a machine without cpufreq: a virtual machine, or a kernel
// without a driver for its processor.
var ErrNoPolicy = errors.New("no cpufreq policy")

// ErrNotTaken reports a value that was written without an error and then did not
// read back: for a ceiling, one that reads back above what was asked for.
var ErrNotTaken = errors.New("written, but another value reads back")

// ErrOffline reports a policy that cannot be asked because its CPUs are offline
// or gone. It draws nothing then, and must be bounded again when it is back.
var ErrOffline = errors.New("processors of the policy are offline")

// ErrPinned reports an energy preference that the performance governor holds at
// "performance". That is how the drivers are made, and no fault.
var ErrPinned = errors.New("energy preference fixed by the performance governor")

// ErrNoPreference reports a policy without an energy preference.
var ErrNoPreference = errors.New("no energy preference")

// ErrNoTurbo reports a machine without a turbo switch.
var ErrNoTurbo = errors.New("no turbo switch")

// ErrTurboLocked reports a turbo switch that firmware holds.
var ErrTurboLocked = errors.New("turbo switch locked by firmware")

// errNotPreference reports a text or a number that is no energy preference.
var errNotPreference = errors.New("not an energy preference")

// Several is one error of many, nil without any: the first, and how many more there are. The text
// of all would grow with the machine.
func Several(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
}

// WriteError reports a ceiling that the driver did not take.
type WriteError struct {
	// Policy is the policy's directory name.
	Policy string
	// Want is what was written, Got what reads back; Got is 0 when nothing could
	// be read.
	Want, Got units.Freq
	// Err is the system's error, ErrNotTaken or ErrOffline.
	Err error
}

// Error names the policy and both values.
func (e *WriteError) Error() string {
	return fmt.Sprintf("dvfs: %s: wrote ceiling %v, reads %v: %v", e.Policy, e.Want, e.Got, e.Err)
}

// Unwrap is the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// offline marks the errors by which the kernel says that a policy's CPUs are
// away: EBUSY while the policy stands without a CPU, ENODEV on a descriptor that
// outlived its policy, ENOENT when the directory itself is gone.
func offline(err error) error {
	if err == nil || errors.Is(err, ErrOffline) {
		return err
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist) {
		return errors.Join(ErrOffline, err)
	}
	return err
}
