package progress

import "errors"

var (
	// ErrPolicy says that a policy has no such name.
	ErrPolicy = errors.New("progress: unknown policy")
	// ErrNonsense says that an observation cannot be true; it was passed over.
	ErrNonsense = errors.New("progress: impossible observation")
	// ErrTimeBack says that an observation is older than the last; it was passed over.
	ErrTimeBack = errors.New("progress: observation from before the last one")
	// ErrRestarted says that a job has fewer tasks done than before: its application
	// master has restarted. What was learned stays, counting begins anew from here.
	ErrRestarted = errors.New("progress: tasks that were done are not done any more")
)
