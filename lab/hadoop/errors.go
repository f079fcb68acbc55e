package hadoop

import "errors"

var (
	// ErrUnavailable reports that this machine lacks what Hadoop needs: java, or, as
	// long as the jars are not there, Maven or the network.
	ErrUnavailable = errors.New("hadoop: not available on this machine")
	// errConfig reports a Config, Job or data set that cannot be.
	errConfig = errors.New("hadoop: bad configuration")
	// errNotFound reports an application, a daemon or a container that is not there.
	errNotFound = errors.New("hadoop: not found")
)
