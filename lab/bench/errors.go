package bench

import "errors"

var (
	// errNotYet: what was awaited did not happen in time.
	errNotYet = errors.New("not so")
	// errNotSo: an answer is not what it must be.
	errNotSo = errors.New("not what it must be")
	// errNoProcess: /proc does not tell about a process.
	errNoProcess = errors.New("the process cannot be read")
	// errLeftOut: a flag leaves it out.
	errLeftOut = errors.New("left out by --no-etcd")
	// errNotSafe: powerd says that it is ready over a limit that it has not lowered.
	errNotSafe = errors.New("not lowered")
)
