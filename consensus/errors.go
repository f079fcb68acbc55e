package consensus

import "errors"

// ErrNotLeader means that this server does not lead (or led in another term
// than the one asked for). Nothing was done and nothing will be.
var ErrNotLeader = errors.New("not the leader")

// ErrUnknownOutcome means that the entry may have been committed or may still
// be: the caller has to look, or to repeat under the same request id.
var ErrUnknownOutcome = errors.New("outcome unknown")

// ErrBusy means that the log did not take the entry in time. Nothing was done.
var ErrBusy = errors.New("the log is busy")

// ErrTooLarge means that the entry is larger than MaxEntry. Nothing was done.
var ErrTooLarge = errors.New("entry too large")

// ErrClosed means that the group was closed before it began. Nothing was done.
var ErrClosed = errors.New("group closed")

// ErrConfig means that the configuration cannot work, whatever the disk holds.
var ErrConfig = errors.New("bad group configuration")

// ErrServersChanged means that the directory belongs to a group of other
// servers than those configured. The log is left as it is.
var ErrServersChanged = errors.New("the configured servers are not those of the log")

// ErrForeignLog means that the directory was written by another server. Two
// servers that share one vote could elect two leaders.
var ErrForeignLog = errors.New("the log belongs to another server")

// ErrInUse means that another process holds the directory.
var ErrInUse = errors.New("the directory is in use by another process")

// ErrWriteDeadline means that the disk did not take a write in time.
var ErrWriteDeadline = errors.New("log write missed its deadline")

// ErrWriteFailed means that the disk refused a write.
var ErrWriteFailed = errors.New("log write failed")

// ErrCorrupt means that the log on this disk is not what the leader wrote.
var ErrCorrupt = errors.New("log is corrupt")

// errTransportClosed answers every call over a transport that was cut.
var errTransportClosed = errors.New("raft transport closed")

// errDead answers the calls under way when the log cannot be trusted any more.
var errDead = errors.New("the log failed")
