package lease

import "errors"

// Reasons for refusing a grant.
var (
	// ErrOtherProcess: the grant answers a heartbeat of another process of this node.
	ErrOtherProcess = errors.New("it answers a heartbeat of another process")
	// ErrUnknownHeartbeat: the grant answers a heartbeat that was never sent, or too long ago to be remembered.
	ErrUnknownHeartbeat = errors.New("it answers an unknown heartbeat")
	// ErrStale: a newer grant was accepted before.
	ErrStale = errors.New("a newer grant has been accepted")
	// ErrContradiction: a grant with the same stamp but another cap was accepted before.
	ErrContradiction = errors.New("a grant with the same stamp but another cap has been accepted")
	// ErrBraked: the brake was set and the log has not lifted it.
	ErrBraked = errors.New("the brake is set and not lifted")
	// ErrRanOut: the lease had expired before it arrived.
	ErrRanOut = errors.New("it had expired before it arrived")
	// ErrMalformed: the cap, fail-safe cap or duration is invalid.
	ErrMalformed = errors.New("its cap, fail-safe cap or duration is invalid")
)
