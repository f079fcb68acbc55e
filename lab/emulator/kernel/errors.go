package kernel

import "errors"

var (
	// errShape reports a machine that there is not.
	errShape = errors.New("kernel: no such machine")
	// ErrFault reports a fault that there is not, or arguments that it does not take.
	ErrFault = errors.New("kernel: no such fault")
)
