package quality

import "errors"

var (
	// errProfile says that a profile, or a file of one, cannot be true.
	errProfile = errors.New("quality: bad profile")
	// errResult says that a result is not made of lines of a key, a tab and a number.
	errResult = errors.New("quality: bad result")
	// errComparison says that there is no such comparison.
	errComparison = errors.New("quality: unknown comparison")
)
