package systemd

import (
	"errors"
	"fmt"
)

// Sentinels of this package.
var (
	// ErrNoBus says that systemd cannot be asked: no system bus, or a file system
	// root that is not this machine's.
	ErrNoBus = errors.New("systemd: no system bus")
	// ErrNoSystemd says that neither a bus nor a cgroup tree of systemd is there.
	ErrNoSystemd = errors.New("systemd: not running here")
	// ErrDenied says that systemd does not let this user change units.
	ErrDenied = errors.New("systemd: not permitted (a polkit rule must let this user set properties of the slice)")
	// ErrNotTaken says that the kernel holds another bandwidth than was written.
	ErrNotTaken = errors.New("systemd: the kernel does not hold the bandwidth written")
	// ErrChanged says that another writer has changed the slice since.
	ErrChanged = errors.New("systemd: another writer has changed the bandwidth")
	// ErrTooSmall says that a bandwidth is below BandwidthMin.
	ErrTooSmall = errors.New("systemd: bandwidth too small")
	// ErrNotifyAddress says that NOTIFY_SOCKET names no socket that can be used.
	ErrNotifyAddress = errors.New("systemd: NOTIFY_SOCKET is no socket path")
	// ErrMalformed says that the kernel or the bus answered with something unreadable.
	ErrMalformed = errors.New("systemd: malformed answer")
	// ErrNoSocket says that this process was not started for exactly one socket.
	ErrNoSocket = errors.New("systemd: this process was not started for a socket (LISTEN_FDS)")
)

// RefusedError says why the bandwidth of a slice is not to be touched.
type RefusedError struct {
	Slice  string
	Reason string // in words, for an operator
}

// Error is one sentence.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("systemd: bandwidth of %s is not touched: %s", e.Slice, e.Reason)
}
