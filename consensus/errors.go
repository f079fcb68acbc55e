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

// ErrTooLarge means that the entry is larger than maxEntry. Nothing was done.
var ErrTooLarge = errors.New("entry too large")

// ErrClosed means that the group was closed before it began. Nothing was done.
var ErrClosed = errors.New("group closed")

// errConfig means that the configuration cannot work, whatever the disk holds.
var errConfig = errors.New("bad group configuration")

// errServersChanged means that the configured servers are neither those that the
// group was founded with nor those of its log. The log is left as it is.
var errServersChanged = errors.New("the configured servers are not those of the log")

// errForeignLog means that the directory was written by another server. Two
// servers that share one vote could elect two leaders.
var errForeignLog = errors.New("the log belongs to another server")

// ErrInUse means that another process holds the directory.
var ErrInUse = errors.New("the directory is in use by another process")

// ErrWriteDeadline means that the disk did not take a write in time.
var ErrWriteDeadline = errors.New("log write missed its deadline")

// errWriteFailed means that the disk refused a write.
var errWriteFailed = errors.New("log write failed")

// errCorrupt means that the log on this disk is not what the leader wrote.
var errCorrupt = errors.New("log is corrupt")

// ErrUnknownServer means that the group has no server of this id.
var ErrUnknownServer = errors.New("unknown server")

// ErrTooManyServers means that the group has as many servers as it may have.
var ErrTooManyServers = errors.New("too many servers")

// ErrAddressTaken means that another server of the group has this address.
var ErrAddressTaken = errors.New("the address is used by another server")

// ErrNotStable means that a server is not, or not for long enough, healthy.
var ErrNotStable = errors.New("the server is not stable")

// ErrNotVoter means that a server that does not vote cannot lead.
var ErrNotVoter = errors.New("the server does not vote")

// ErrLastVoter means that a group cannot be without a server that votes.
var ErrLastVoter = errors.New("it is the last server that votes")

// ErrLeads means that a server cannot be removed while it leads.
var ErrLeads = errors.New("the server leads")

// ErrLosesQuorum means that the healthy servers that would be left are no
// majority of those that would vote.
var ErrLosesQuorum = errors.New("the rest would have no healthy majority")

// errNoState means that there is no log to recover.
var errNoState = errors.New("there is no log")

// errNotEmpty means that a directory that is to take a new log holds something.
var errNotEmpty = errors.New("the directory is not empty")

// errTransportClosed answers every call over a transport that was cut.
var errTransportClosed = errors.New("raft transport closed")

// errDead answers the calls under way when the log cannot be trusted any more.
var errDead = errors.New("the log failed")
