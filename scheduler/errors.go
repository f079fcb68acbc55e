package scheduler

import "errors"

// What this package refuses, one sentence each.
var (
	// ErrUnknownClass says that a job names a priority class that the scheduler does not have.
	ErrUnknownClass = errors.New("unknown class")
	// ErrNotFraction says that a text is not a fraction above 0 and at most 1.
	ErrNotFraction = errors.New("must be above 0 and at most 1 (100%)")
	// ErrOlder says that a directive is older than one that was carried out.
	ErrOlder = errors.New("an older directive than the newest known")
	// ErrClosed says that the scheduler is ending and takes no more.
	ErrClosed = errors.New("the scheduler is ending")
)
