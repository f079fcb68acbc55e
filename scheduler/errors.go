package scheduler

import (
	"errors"

	"headroom/internal/config"
)

// What this package refuses, one sentence each.
var (
	// ErrUnknownClass says that a job names a priority class that the scheduler does not have.
	ErrUnknownClass = errors.New("unknown class")
	// ErrNotFraction says that a text is not a fraction above 0 and at most 1.
	ErrNotFraction = config.ErrNotFraction
	// ErrUnknownPhase says that a task names a phase that jobs do not have.
	ErrUnknownPhase = errors.New("unknown phase")
	// ErrNoEngine says that a directive or a job is for an engine that is not configured here.
	ErrNoEngine = errors.New("this scheduler has no such engine: see the sections yarn and spark of scheduler.yaml")
	// ErrNotRunning says that a directive is for a job that does not run, or is about to end.
	ErrNotRunning = errors.New("does not run")
	// ErrFloor says that a drop ratio would leave fewer tasks than a job's quality floor.
	ErrFloor = errors.New("less than the quality floor")
	// ErrOlder says that a directive is older than one that was carried out.
	ErrOlder = errors.New("an older directive than the newest known")

	// errNoLeader says that the coordinators have no leader at the moment.
	errNoLeader = errors.New("the coordinators have no leader")
)
