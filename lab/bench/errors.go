package bench

import "errors"

var (
	// errNotYet: what was awaited did not happen in time.
	errNotYet = errors.New("condition not met")
	// errNotSo: an answer is not what it must be.
	errNotSo = errors.New("unexpected result")
	// errNoProcess: /proc does not tell about a process.
	errNoProcess = errors.New("cannot read the process")
	// errLeftOut: a flag leaves it out.
	errLeftOut = errors.New("skipped by --no-etcd")
	// errNotSafe: powerd says that it is ready over a limit that it has not lowered.
	errNotSafe = errors.New("cap not lowered")
)
