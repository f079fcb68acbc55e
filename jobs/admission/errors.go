package admission

import "errors"

// The errors of bad input. They come wrapped, with the numbers.
var (
	ErrPolicy   = errors.New("admission: unknown policy")
	ErrCapacity = errors.New("admission: capacity out of bounds")
	ErrJob      = errors.New("admission: invalid job")
	ErrKnown    = errors.New("admission: job already exists")
	ErrUnknown  = errors.New("admission: no such job")
	ErrFull     = errors.New("admission: too many jobs")
)
