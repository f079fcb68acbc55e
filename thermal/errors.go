package thermal

import "errors"

// errSentinel reports a reading that is a driver's way to say "I do not know":
// the largest number that fits its register, for example.
var errSentinel = errors.New("the driver reports an unknown reading")

// errImplausible reports a reading that no server can have: out of the range of
// silicon, above the bound that was given, or a leap by a thousand.
var errImplausible = errors.New("implausible reading")

// errGone reports a sensor whose device went away; Refresh finds what is there now.
var errGone = errors.New("sensor removed")

// ErrNoEvents reports a kernel that tells no thermal events: it lacks the netlink
// family "thermal" (CONFIG_THERMAL_NETLINK, or a kernel older than 5.9).
var ErrNoEvents = errors.New("the kernel has no thermal events")

// errMessage reports a netlink message that could not be understood.
var errMessage = errors.New("malformed thermal message")
