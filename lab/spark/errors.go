package spark

import "errors"

var (
	// ErrUnavailable reports that this machine lacks what Spark needs: java, or, as long as
	// the release is not there, python3 with venv or the network.
	ErrUnavailable = errors.New("spark: not available on this machine")
	// errConfig reports a Config, Job or data set that cannot be.
	errConfig = errors.New("spark: bad configuration")
	// errJob reports an application that did not come to its good end.
	errJob = errors.New("spark: the application failed")
)
