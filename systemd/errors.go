package systemd

import (
	"errors"
	"fmt"
)

// Sentinels of this package.
var (
	// ErrNoBus reports that there is no system bus, or that the root is not this
	// machine's.
	ErrNoBus = errors.New("systemd: no system bus")
	// ErrNoSystemd reports that there is neither a bus nor a cgroup tree of systemd.
	ErrNoSystemd = errors.New("systemd: not running here")
	// ErrDenied reports that this user may not change units.
	ErrDenied = errors.New("systemd: not permitted (a polkit rule must let this user set properties of the slice)")
	// ErrNotTaken reports that the kernel holds another bandwidth than written.
	ErrNotTaken = errors.New("systemd: the kernel does not hold the bandwidth written")
	// ErrChanged reports that another program has changed the slice.
	ErrChanged = errors.New("systemd: another writer has changed the bandwidth")
	// ErrTooSmall reports a bandwidth below BandwidthMin.
	ErrTooSmall = errors.New("systemd: bandwidth too small")
	// ErrNotifyAddress reports an unusable NOTIFY_SOCKET.
	ErrNotifyAddress = errors.New("systemd: NOTIFY_SOCKET is no socket path")
	// ErrMalformed reports an unreadable answer of the kernel or the bus.
	ErrMalformed = errors.New("systemd: malformed answer")
	// ErrNoSocket reports that this process was not started for exactly one socket.
	ErrNoSocket = errors.New("systemd: this process was not started for a socket (LISTEN_FDS)")
)

// RefusedError gives the reason why the bandwidth of a slice must not be changed.
type RefusedError struct {
	Slice  string
	Reason string // in words, for an operator
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("systemd: bandwidth of %s is not touched: %s", e.Slice, e.Reason)
}
