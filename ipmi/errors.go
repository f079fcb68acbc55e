package ipmi

import "errors"

var (
	// ErrConfig is returned for a configuration that cannot be started.
	ErrConfig = errors.New("ipmi: invalid configuration")
	// ErrClosed is returned by a meter that was closed.
	ErrClosed = errors.New("ipmi: meter is closed")
	// ErrAbsent is returned when there is no BMC to talk to.
	ErrAbsent = errors.New("ipmi: no BMC")
	// ErrNoReading is returned when the BMC answers but has no power reading, or not the one
	// that Config.Source selects.
	ErrNoReading = errors.New("ipmi: no power reading")
	// ErrNoAnswer is returned when the BMC did not answer in time.
	ErrNoAnswer = errors.New("ipmi: no answer from the BMC")
	// ErrDenied is returned when the BMC refuses the user, the password or the privilege.
	ErrDenied = errors.New("ipmi: user or password refused by the BMC")
	// ErrMalformed is returned for bytes that are no valid answer.
	ErrMalformed = errors.New("ipmi: malformed answer")
	// ErrRefused is returned when the BMC completes a command with an error code.
	ErrRefused = errors.New("ipmi: command refused by the BMC")
	// ErrNoLimit is returned when the BMC has no power limit to set (no DCMI).
	ErrNoLimit = errors.New("ipmi: the BMC has no power limit")
	// ErrLimitRange is returned when the BMC cannot hold a limit of that size.
	ErrLimitRange = errors.New("ipmi: power outside of the range of the BMC")
	// ErrLimitUnsafe is returned when the BMC does not show the limit with exception action
	// none and a correction time of at least our loop: it is then not left active.
	ErrLimitUnsafe = errors.New("ipmi: another limit reads back from the BMC; limit deactivated")
	// ErrLimitChanged is returned by RestoreLimit when another writer has changed the limit.
	ErrLimitChanged = errors.New("ipmi: another writer has changed the limit")
)
