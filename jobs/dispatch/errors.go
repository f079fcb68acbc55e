package dispatch

import "errors"

// What this package refuses, one sentence each.
var (
	// ErrUnknownClass means a job whose priority class is not one of the core's.
	ErrUnknownClass = errors.New("unknown class")
	// ErrNotRunning means a job that does not run, or is about to end.
	ErrNotRunning = errors.New("does not run")
	// ErrFloor means a drop ratio that would leave fewer tasks than a job's quality floor.
	ErrFloor = errors.New("less than the quality floor")
)
