package quality

import "errors"

var (
	// errProfile states that a profile, or a file of one, cannot be true.
	errProfile = errors.New("quality: bad profile")
	// errResult states that a result is not made of lines of a key, a tab and a number.
	errResult = errors.New("quality: bad result")
	// errComparison states that there is no such comparison.
	errComparison = errors.New("quality: unknown comparison")
)
