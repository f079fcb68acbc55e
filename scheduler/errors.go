package scheduler

import (
	"errors"
)

// What this package refuses, one sentence each.
var (
	// errUnknownPhase says that a task names a phase that jobs do not have.
	errUnknownPhase = errors.New("unknown phase")
	// errNoEngine says that a directive or a job is for an engine that is not configured here.
	errNoEngine = errors.New("engine not configured: see the sections yarn, spark and dispatch of scheduler.yaml")
	// errOlder says that a directive is older than one that was carried out.
	errOlder = errors.New("directive is older than the newest known")

	// errNoLeader says that the coordinators have no leader at the moment.
	errNoLeader = errors.New("the coordinators have no leader")
)
