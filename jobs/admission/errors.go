package admission

import "errors"

// The errors of bad input. They come wrapped, with the numbers.
var (
	ErrPolicy   = errors.New("admission: unknown policy")
	ErrCapacity = errors.New("admission: capacity out of bounds")
	ErrJob      = errors.New("admission: job cannot be judged")
	ErrKnown    = errors.New("admission: job is there already")
	ErrUnknown  = errors.New("admission: no such job")
	ErrFull     = errors.New("admission: too many jobs")
)
