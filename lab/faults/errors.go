package faults

import "errors"

// ErrNotPermitted reports that this machine does not permit the namespaces or the
// filters that a run needs.
var ErrNotPermitted = errors.New("faults: not permitted on this machine")
