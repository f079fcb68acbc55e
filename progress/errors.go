package progress

import "errors"

var (
	// errNonsense states that an observation cannot be true; it was passed over.
	errNonsense = errors.New("progress: impossible observation")
	// errTimeBack states that an observation is older than the last; it was passed over.
	errTimeBack = errors.New("progress: observation older than the last one")
	// errRestarted states that a job has fewer tasks done than before: its application
	// master has restarted. What was learned stays, counting starts again from here.
	errRestarted = errors.New("progress: number of completed tasks went down")
)
