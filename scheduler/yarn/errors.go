package yarn

import "errors"

// What this package refuses, one sentence each.
var (
	// ErrRefused says that the coordinators refuse a command for good: repeating it is no use.
	ErrRefused = errors.New("refused by the coordinators")
	// errAnswer says that Hadoop answered what cannot be understood.
	errAnswer = errors.New("invalid answer")
	// errNotThere says that Hadoop does not know what was asked for.
	errNotThere = errors.New("not found")
	// errStandby says that a ResourceManager is not the active one.
	errStandby = errors.New("not the active ResourceManager")
	// errQueue says that a queue does not exist.
	errQueue = errors.New("no such queue")
	// errAllocation says that the allocation file cannot be used as it is.
	errAllocation = errors.New("invalid allocation file")
	// errCapacity says that the capacity scheduler's configuration cannot be used as it is.
	errCapacity = errors.New("cannot limit the capacity scheduler's queues")
	// errShares says that shares are not set here.
	errShares = errors.New("cannot set shares")
	// errJob says that a job is not one of this engine's running jobs.
	errJob = errors.New("not a running job of this engine")

	// errNoStop refuses drops without an early stop or a drop ratio.
	errNoStop = errors.New("no early stop is in force")
	// errExact says that a job takes no drop ratio.
	errExact = errors.New("all of its tasks must run")
	// errRequest says that a hook asked for something that makes no sense.
	errRequest = errors.New("invalid request")
	// errNotCommitted says that the coordinators did not confirm a drop in time.
	errNotCommitted = errors.New("not committed")
	// errStarting says that the jobs of the coordinators' log are not known yet.
	errStarting = errors.New("jobs not yet read from the coordinators")
)
