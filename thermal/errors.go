package thermal

import "errors"

// ErrSentinel reports a reading that is a driver's way to say "I do not know":
// the largest number that fits its register, for example.
var ErrSentinel = errors.New("the driver's value for an unknown reading")

// ErrImplausible reports a reading that no server can have: out of the range of
// silicon, above the bound that was given, or a leap by a thousand.
var ErrImplausible = errors.New("not a plausible reading")

// ErrGone reports a sensor whose device went away; Refresh finds what is there now.
var ErrGone = errors.New("the sensor is gone")

// ErrNoEvents reports a kernel that tells no thermal events: it lacks the netlink
// family "thermal" (CONFIG_THERMAL_NETLINK, or a kernel older than 5.9).
var ErrNoEvents = errors.New("this kernel tells no thermal events")

// ErrMessage reports a netlink message that could not be understood.
var ErrMessage = errors.New("malformed thermal message")
