package rapl

import (
	"errors"
	"fmt"

	"headroom/units"
)

// ErrNoTree reports a machine without a powercap tree: no RAPL, a kernel
// without CONFIG_POWERCAP, or a virtual machine.
var ErrNoTree = errors.New("no powercap tree")

// ErrNoZone reports a powercap tree without a RAPL zone.
var ErrNoZone = errors.New("no RAPL zone")

// ErrNoConstraint reports a zone without a limit of that name.
var ErrNoConstraint = errors.New("no such constraint")

// errNotPackage reports an attempt to limit a zone that is no processor package:
// cores, memory and the platform may show limits too, but a cap is a package's.
var errNotPackage = errors.New("only a processor package can be limited")

// ErrZeroLimit reports an attempt to write a limit of 0 W (or less), which
// hardware may take as "as slow as you can": it is never written.
var ErrZeroLimit = errors.New("a limit of 0 W is not allowed")

// ErrTooHigh reports a limit that does not fit the register's 15 bits: the kernel
// would write what is left of it after cutting the rest off.
var ErrTooHigh = errors.New("the limit does not fit the register")

// errZeroWindow reports an attempt to write an averaging window of nothing.
var errZeroWindow = errors.New("an averaging window of 0 is not allowed")

// errGone reports a zone that is not there any more.
var errGone = errors.New("zone removed")

// errImplausible reports a counter above its range.
var errImplausible = errors.New("the counter is above its range")

// ErrNotTaken reports a value that was written without an error and then did
// not read back.
var ErrNotTaken = errors.New("written, but another value reads back")

// WriteError reports a limit that the hardware did not take as written.
type WriteError struct {
	Zone       string // label of the zone, e.g. "package-0"
	Constraint string // name of the constraint, e.g. "long_term"
	Want, Got  units.Power
	Err        error // the system's error, or ErrNotTaken
}

// Error names the zone, the constraint and both values.
func (e *WriteError) Error() string {
	return fmt.Sprintf("rapl: %s %s: wrote %v, reads %v: %v", e.Zone, e.Constraint, e.Want, e.Got, e.Err)
}

// Unwrap is the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// LockedError reports limits that firmware has locked until the next reboot. It
// wraps the error that found it.
type LockedError struct {
	Zone string // label of the zone
	How  string // how it was detected
	Err  error
}

// Error names the zone and how the lock was detected.
func (e *LockedError) Error() string {
	return fmt.Sprintf("rapl: %s: limits are locked (%s): %v", e.Zone, e.How, e.Err)
}

// Unwrap is the cause.
func (e *LockedError) Unwrap() error { return e.Err }
