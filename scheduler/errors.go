package scheduler

import (
	"errors"
)

// What this package refuses, one sentence each.
var (
	// ErrUnknownPhase says that a task names a phase that jobs do not have.
	ErrUnknownPhase = errors.New("unknown phase")
	// ErrNoEngine says that a directive or a job is for an engine that is not configured here.
	ErrNoEngine = errors.New("this scheduler has no such engine: see the sections yarn and spark of scheduler.yaml")
	// ErrOlder says that a directive is older than one that was carried out.
	ErrOlder = errors.New("an older directive than the newest known")

	// errNoLeader says that the coordinators have no leader at the moment.
	errNoLeader = errors.New("the coordinators have no leader")
)
