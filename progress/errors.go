package progress

import "errors"

var (
	// errPolicy says that a policy has no such name.
	errPolicy = errors.New("progress: unknown policy")
	// errNonsense says that an observation cannot be true; it was passed over.
	errNonsense = errors.New("progress: impossible observation")
	// errTimeBack says that an observation is older than the last; it was passed over.
	errTimeBack = errors.New("progress: observation older than the last one")
	// errRestarted says that a job has fewer tasks done than before: its application
	// master has restarted. What was learned stays, counting begins anew from here.
	errRestarted = errors.New("progress: number of completed tasks went down")
)
