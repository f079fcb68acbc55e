package lease

import "errors"

// Reasons for refusing a grant.
var (
	// ErrOtherProcess: the grant answers a heartbeat of another process of this node.
	ErrOtherProcess = errors.New("it answers another process")
	// ErrUnknownHeartbeat: the grant answers a heartbeat that was never sent, or too long ago to be remembered.
	ErrUnknownHeartbeat = errors.New("it answers an unknown heartbeat")
	// ErrStale: a newer grant was taken before.
	ErrStale = errors.New("a newer grant was taken before")
	// ErrContradiction: the same stamp was taken with another cap.
	ErrContradiction = errors.New("the same stamp was taken with another cap")
	// ErrBraked: the brake was set and the log has not lifted it.
	ErrBraked = errors.New("the brake is set and not lifted")
	// ErrRanOut: the lease had ended before it arrived.
	ErrRanOut = errors.New("it had ended before it arrived")
	// ErrMalformed: a cap, fail-safe cap or duration that makes no sense.
	ErrMalformed = errors.New("its cap, fail-safe cap or duration makes no sense")
)
