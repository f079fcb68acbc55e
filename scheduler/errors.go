package scheduler

import (
	"errors"
)

// Errors of this package.
var (
	// errUnknownPhase is returned for a task with an unknown phase.
	errUnknownPhase = errors.New("unknown phase")
	// errNoEngine is returned for a directive or a job of an engine that is not configured.
	errNoEngine = errors.New("engine not configured: see the sections yarn, spark and dispatch of scheduler.yaml")
	// errOlder is returned for a directive that is older than one that was carried out.
	errOlder = errors.New("directive is older than the newest known")

	// errNoLeader is returned while the coordinators have no leader.
	errNoLeader = errors.New("the coordinators have no leader")
)
