package yarn

import "errors"

// Errors of this package.
var (
	// ErrRefused is returned if the coordinators refuse a command permanently: a retry does not help.
	ErrRefused = errors.New("refused by the coordinators")
	// ErrHandedOver is the cause of the end of a Run after which another scheduler sets the shares.
	ErrHandedOver = errors.New("another scheduler continues")
	// errAnswer is returned for an invalid answer of Hadoop.
	errAnswer = errors.New("invalid answer")
	// errNotThere is returned if Hadoop does not have what was requested.
	errNotThere = errors.New("not found")
	// errStandby is returned if a ResourceManager is not the active one.
	errStandby = errors.New("not the active ResourceManager")
	// errQueue is returned for an unknown queue.
	errQueue = errors.New("no such queue")
	// errCapacity is returned for a configuration of the capacity scheduler that cannot be used.
	errCapacity = errors.New("cannot limit the capacity scheduler's queues")
	// errShares is returned if shares are not set.
	errShares = errors.New("cannot set shares")
	// errJob is returned if a job is not a running job of this engine.
	errJob = errors.New("not a running job of this engine")

	// errNoStop is returned for drops without an early stop or a drop ratio.
	errNoStop = errors.New("no early stop is in force")
	// errExact is returned for a job that takes no drop ratio.
	errExact = errors.New("all of its tasks must run")
	// errRequest is returned for an invalid request of a hook.
	errRequest = errors.New("invalid request")
	// errNotCommitted is returned if the coordinators did not confirm a drop in time.
	errNotCommitted = errors.New("not committed")
	// errStarting is returned until the jobs of the coordinators' log are known.
	errStarting = errors.New("jobs not yet read from the coordinators")
)
