package bench

import "errors"

var (
	// errNoPorts: no port was free for both TCP and UDP.
	errNoPorts = errors.New("too few are free for both TCP and UDP")
	// errNotYet: what was awaited did not happen in time.
	errNotYet = errors.New("not so")
	// errNoProcess: /proc does not tell about a process.
	errNoProcess = errors.New("the process cannot be read")
	// errNotSafe: powerd says that it is ready over a limit that it has not lowered.
	errNotSafe = errors.New("not lowered")
)
