package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"headroom/lease"
)

// BootTime is the time since boot, sleep included, on the clock that leases are
// counted on; 0 when the kernel does not tell.
func BootTime() time.Duration { return instant().Boot }

// instant reads both of the node's clocks, in the order that lease.Instant asks for.
func instant() lease.Instant {
	return lease.Instant{Boot: clock(unix.CLOCK_BOOTTIME), Awake: clock(unix.CLOCK_MONOTONIC)}
}

// clock reads one of the kernel's clocks; on Linux that cannot fail for these two.
func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
