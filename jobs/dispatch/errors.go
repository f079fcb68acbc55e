package dispatch

import "errors"

// What this package refuses, one sentence each.
var (
	// ErrUnknownClass means a job whose priority class is not one of the core's.
	ErrUnknownClass = errors.New("unknown class")
	// errNotRunning means a job that does not run, or is about to end.
	errNotRunning = errors.New("job is not running")
	// errFloor means a drop ratio that would leave fewer tasks than a job's quality floor.
	errFloor = errors.New("below the quality floor")
)
