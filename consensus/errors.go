package consensus

import "errors"

// ErrNotLeader means that this server does not lead, or leads in another term
// than the one requested. Nothing was done and nothing will be.
var ErrNotLeader = errors.New("not the leader")

// ErrUnknownOutcome means that the entry may have been committed or may still
// be: the caller must check, or retry with the same request id.
var ErrUnknownOutcome = errors.New("outcome unknown")

// ErrBusy means that the log did not take the entry in time. Nothing was done.
var ErrBusy = errors.New("the log is busy")

// ErrTooLarge means that the entry is larger than maxEntry. Nothing was done.
var ErrTooLarge = errors.New("entry too large")

// ErrClosed means that the server was closed before the call. Nothing was done.
var ErrClosed = errors.New("group closed")

// errConfig means that the configuration cannot work, whatever the disk holds.
var errConfig = errors.New("bad group configuration")

// errServersChanged means that the configured servers match neither the initial
// members nor the members in the log. The log is left unchanged.
var errServersChanged = errors.New("the configured servers are not those of the log")

// errForeignLog means that the directory was written by another server. Two
// servers that share one vote could elect two leaders.
var errForeignLog = errors.New("the log belongs to another server")

// errLogLost means that the log does not hold what this server has acknowledged.
var errLogLost = errors.New("the log lacks what this server has acknowledged")

// errUnreadable means that the machine cannot read what is in the log or in a snapshot.
var errUnreadable = errors.New("the state cannot be read")

// ErrInUse means that another process holds the directory.
var ErrInUse = errors.New("the directory is in use by another process")

// ErrWriteDeadline means that the disk did not take a write in time.
var ErrWriteDeadline = errors.New("log write missed its deadline")

// errWriteFailed means that the disk refused a write.
var errWriteFailed = errors.New("log write failed")

// errCorrupt means that the log on this disk is not what the leader wrote.
var errCorrupt = errors.New("log is corrupt")

// ErrUnknownServer means that the cluster has no server with this id.
var ErrUnknownServer = errors.New("unknown server")

// ErrTooManyServers means that the cluster has the maximum number of servers.
var ErrTooManyServers = errors.New("too many servers")

// ErrAddressTaken means that another server of the cluster has this address.
var ErrAddressTaken = errors.New("the address is used by another server")

// ErrNotStable means that a server has not been healthy for long enough.
var ErrNotStable = errors.New("the server is not stable")

// ErrNotVoter means that leadership cannot go to a server that does not vote.
var ErrNotVoter = errors.New("the server does not vote")

// ErrLastVoter means that the change would leave no voting server.
var ErrLastVoter = errors.New("the server is the last voter")

// ErrLeads means that a server cannot be removed while it leads.
var ErrLeads = errors.New("the server leads")

// ErrLosesQuorum means that after the change the healthy servers would not be a
// majority of the voters.
var ErrLosesQuorum = errors.New("the remaining servers would have no healthy majority")

// errNoState means that there is no log to recover.
var errNoState = errors.New("there is no log")

// errNotEmpty means that the directory for a new log is not empty.
var errNotEmpty = errors.New("the directory is not empty")

// errTransportClosed is returned by every call over a closed transport.
var errTransportClosed = errors.New("raft transport closed")

// errDead is returned by calls in progress when the log can no longer be trusted.
var errDead = errors.New("the log failed")
