package coordinator

import "time"

// newArbiter decides nothing yet.
func newArbiter() decider { return idle{} }

type idle struct{}

func (idle) step(time.Time, seenJobs) decidedJobs { return decidedJobs{} }
