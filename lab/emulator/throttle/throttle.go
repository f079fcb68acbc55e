// Package throttle slows an emulated node's processes down according to its frequency.
//
// The one idea: a node owns a share of the host's CPUs, and at every step its plant determines how
// much of that share its work may use. One small interface has two implementations: a cgroup's CPU
// bandwidth where the host permits it, and otherwise stop and continue signals with a token bucket
// of CPU time.
//
// Guarantees: only processes given to Hold, and their children, are slowed down. After Close no
// such process and no cgroup remains. The next start removes what a killed run left under
// the same name. The package makes no decisions about power and starts no process.
package throttle

import (
	"errors"
	"time"
)

// Throttle holds processes to a number of CPUs. It belongs to one goroutine.
type Throttle interface {
	// Kind is "cgroup" or "signals".
	Kind() string
	// String describes what slows the processes.
	String() string
	// Hold takes over these processes and everything below them, newcomers and old
	// acquaintances alike; it is called again and again (every 50 ms) with those
	// that are there now. Processes that ended meanwhile are no error.
	Hold(roots []int) error
	// Step lets dt go by: from now on the processes may use cores CPUs on average,
	// and used is the CPU time they used since the last step.
	Step(dt time.Duration, cores float64) (used time.Duration, err error)
	// Next returns the time until the throttle needs its next step; 0 for any time.
	Next() time.Duration
	// Close ends every process held (SIGKILL), stopped ones too, and removes what was set up.
	Close() error
}

// errNoCgroup reports that this host or user cannot limit CPU by cgroup.
var errNoCgroup = errors.New("throttle: no usable CPU cgroup")

// Bounds of how coarse slowing may be.
const (
	// period is the time over which a cgroup's share is dealt out: short against
	// the plant's response (40 ms), so that slowed work looks slow, not stopped.
	period = 20 * time.Millisecond
	// periodMax bounds how far the period is stretched for very small shares.
	periodMax = 100 * time.Millisecond
	// quotaMin is the least that the kernel deals out in a period (1 ms), with a
	// little air.
	quotaMin = 1100 * time.Microsecond
	// pulse is how long processes run at least before they may be stopped, and the
	// other way round: shorter, and the signals cost more than they are worth.
	pulse = 10 * time.Millisecond
	// burst is how long unused CPU time is saved by the signal throttle, so that
	// processes on a busy host catch up.
	burst = 60 * time.Millisecond
)
