package thermal

import "errors"

// errSentinel reports a reading with which a driver signals an unknown value:
// the largest number that fits its register, for example.
var errSentinel = errors.New("the driver reports an unknown reading")

// errImplausible reports a reading that no server can have: out of the range of
// silicon, above the bound that was given, or a leap by a thousand.
var errImplausible = errors.New("implausible reading")

// errGone reports a sensor whose device was removed; Refresh finds the present ones.
var errGone = errors.New("sensor removed")

// ErrNoEvents reports a kernel without thermal events: it lacks the netlink
// family "thermal" (CONFIG_THERMAL_NETLINK, or a kernel older than 5.9).
var ErrNoEvents = errors.New("the kernel has no thermal events")

// errMessage reports a netlink message that could not be understood.
var errMessage = errors.New("malformed thermal message")
