package kernel

import "errors"

var (
	// errShape reports a machine that there is not.
	errShape = errors.New("kernel: unknown machine shape")
	// ErrFault reports a fault that there is not, or arguments that it does not take.
	ErrFault = errors.New("kernel: unknown fault")
)
