package quality

import "errors"

var (
	// ErrProfile says that a profile, or a file of one, cannot be true.
	ErrProfile = errors.New("quality: bad profile")
	// ErrResult says that a result is not made of lines of a key, a tab and a number.
	ErrResult = errors.New("quality: bad result")
	// ErrComparison says that there is no such comparison.
	ErrComparison = errors.New("quality: unknown comparison")
)
