package systemd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

const (
	// urgentWait bounds waiting for room in the manager's socket for what it has to
	// receive: ready and stopping.
	urgentWait = time.Second
	// statusMax bounds a status line, in bytes.
	statusMax = 400
	// watchdogMax bounds WATCHDOG_USEC: beyond it the watchdog would never fire.
	watchdogMax = 24 * time.Hour
)

// beat is the message that resets the watchdog.
var beat = []byte(daemon.SdNotifyWatchdog)

// Notify reports this process's state to the service manager. A nil Notify, and one created
// without a listening manager, does nothing and never fails. It is safe for concurrent use.
//
// The messages are those of the library; the socket is not. The library opens a new one
// for each message and then waits without bound while the manager does not read: a
// manager that hangs would stop the loop that enforces the cap, because of the beat
// that proves that it runs. So one socket stays open, and a beat that finds no room is
// an error instead of a wait. The library also accepts any number for the watchdog,
// even one that overflows.
type Notify struct {
	fd       int // -1: nobody listens
	to       unix.SockaddrUnix
	watchdog time.Duration
}

// OpenNotify reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; getenv is os.Getenv.
// An error should be logged and is no reason to stop: the Notify returned with it does
// nothing.
func OpenNotify(getenv func(string) string) (*Notify, error) {
	n := &Notify{fd: -1}
	path := getenv("NOTIFY_SOCKET")
	if path == "" {
		return n, nil
	}
	if path[0] != '/' && path[0] != '@' || len(path) < 2 {
		return n, fmt.Errorf("%w: %q", ErrNotifyAddress, path)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return n, fmt.Errorf("systemd: notify socket: %w", err)
	}
	wait := unix.NsecToTimeval(urgentWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
		return n, errors.Join(fmt.Errorf("systemd: notify socket: %w", err), unix.Close(fd))
	}
	n.fd, n.to.Name = fd, path // an '@' stands for the zero byte of an abstract socket
	n.watchdog, err = watchdogOf(getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"), os.Getpid())
	return n, err
}

// watchdogOf is the watchdog's patience; 0: none, or meant for another process.
func watchdogOf(usec, pid string, self int) (time.Duration, error) {
	if usec == "" || pid != "" && pid != strconv.Itoa(self) {
		return 0, nil
	}
	us, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || us <= 0 {
		return 0, fmt.Errorf("systemd: WATCHDOG_USEC %q: %w", usec, ErrMalformed)
	}
	return min(time.Duration(min(us, watchdogMax.Microseconds()))*time.Microsecond, watchdogMax), nil
}

// Listening reports whether a service manager is listening at all.
func (n *Notify) Listening() bool { return n != nil && n.fd >= 0 }

// Watchdog is how long the manager waits for a Beat before it ends the process, 0
// when it does not watch. Beat at half of it or more often.
func (n *Notify) Watchdog() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog
}

// Ready reports that the process does its work: for powerd, that a safe cap is held.
// Waits at most a second.
func (n *Notify) Ready(status string) error {
	return n.send([]byte(daemon.SdNotifyReady+"\nSTATUS="+oneLine(status)), 0)
}

// Status reports in words what the process is doing; it never waits. Text that does not fit
// is cut off.
func (n *Notify) Status(status string) error {
	return n.send([]byte("STATUS="+oneLine(status)), unix.MSG_DONTWAIT)
}

// Beat resets the watchdog; it never waits and allocates nothing. Call it from
// the loop that the watchdog supervises.
func (n *Notify) Beat() error { return n.send(beat, unix.MSG_DONTWAIT) }

// Stopping reports that the process has begun to stop. Waits at most a second.
func (n *Notify) Stopping(status string) error {
	return n.send([]byte(daemon.SdNotifyStopping+"\nSTATUS="+oneLine(status)), 0)
}

// Reloading reports that the configuration is being reloaded; Ready ends it. Waits at
// most a second.
func (n *Notify) Reloading() error {
	return n.send([]byte(daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec()), 0)
}

// Extend requests more time, counted from now, to start or to stop.
func (n *Notify) Extend(d time.Duration) error {
	us := strconv.FormatInt(max(0, d.Microseconds()), 10)
	return n.send([]byte("EXTEND_TIMEOUT_USEC="+us), unix.MSG_DONTWAIT)
}

// Close closes the socket. No message may be sent afterwards.
func (n *Notify) Close() error {
	if !n.Listening() {
		return nil
	}
	return unix.Close(n.fd)
}

func (n *Notify) send(state []byte, flags int) error {
	if !n.Listening() {
		return nil
	}
	for {
		err := unix.Sendto(n.fd, state, flags|unix.MSG_NOSIGNAL, &n.to)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		}
		return fmt.Errorf("systemd: notify: %w", err)
	}
}

// oneLine makes a text safe for a notification: a line break would begin
// another assignment.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > statusMax {
		s = strings.ToValidUTF8(s[:statusMax], "")
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
