package scheduler

import "errors"

// What this package refuses, one sentence each.
var (
	// ErrUnknownClass says that a job names a priority class that the scheduler does not have.
	ErrUnknownClass = errors.New("unknown class")
	// ErrNotFraction says that a text is not a fraction above 0 and at most 1.
	ErrNotFraction = errors.New("must be above 0 and at most 1 (100%)")
	// ErrUnknownPhase says that a task names a phase that jobs do not have.
	ErrUnknownPhase = errors.New("unknown phase")
	// ErrOlder says that a directive is older than one that was carried out.
	ErrOlder = errors.New("an older directive than the newest known")

	// errNoLeader says that the coordinators have no leader at the moment.
	errNoLeader = errors.New("the coordinators have no leader")
)
