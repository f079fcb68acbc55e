package consensus

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"headroom/internal/cli"
	"headroom/internal/durable"
	"headroom/internal/secure"
)

const (
	// maxEntry is the largest entry in bytes. A tick entry of 10,000 nodes is
	// below 1 MiB; four times that keeps a batch well under the log's own limit
	// of 64 MiB an entry and the transport's deadline.
	maxEntry = 4 << 20

	// MaxSnapshot is the largest snapshot in bytes that Restore reads.
	MaxSnapshot = 256 << 20

	// snapshotThreshold is the number of entries after which a snapshot is
	// taken: about an hour of ticks, replayed in well under a second.
	snapshotThreshold = 4096

	// trailingLogs is the number of entries kept behind a snapshot: a server
	// that was away for two hours catches up from the log alone.
	trailingLogs = 8192

	// snapshotInterval is how often the threshold is looked at.
	snapshotInterval = 30 * time.Second

	// snapshotsKept is two, so that a snapshot torn by a crash has one behind it.
	snapshotsKept = 2

	// segmentBytes is the size of one file of the log. It is reserved on disk
	// at once, so it is smaller than raft-wal's own 64 MiB; it exceeds maxEntry.
	segmentBytes = 16 << 20

	// checkpointEvery is the number of entries between two checksums of the
	// log. A check reads them back once: 128 is two minutes of ticks.
	checkpointEvery = 128

	// defaultWriteDeadline is far above a healthy fsync (0.5 to 20 ms) and, with
	// an election after it, far below the 10 s of a node's lease.
	defaultWriteDeadline = 2 * time.Second

	// enqueueTimeout is how long an entry waits for the log to take it.
	enqueueTimeout = time.Second

	// closeTimeout bounds Close where a disk hangs.
	closeTimeout = 3 * time.Second

	// rpcTimeout bounds one exchange of two servers and one dial.
	rpcTimeout = 2 * time.Second

	// maxServers is how many servers a group may have.
	maxServers = 9

	// maxVoters is how many of them may vote: a majority of more than seven only
	// makes every commit slower.
	maxVoters = 7

	// StableFor is how long a server must have been healthy without a break
	// before it may vote, as raft-autopilot has it.
	StableFor = 10 * time.Second

	// maxSilence is how long a healthy server may be unheard. The leader sends
	// heartbeats about ten times a second, so that is ten in a row.
	maxSilence = time.Second

	// MaxLag is how many entries a healthy server may be behind: four minutes of
	// ticks, sent in one message.
	MaxLag = 250

	// healthInterval is how often the leader looks whether servers are healthy.
	healthInterval = 250 * time.Millisecond

	// connectionsKept is the number of idle connections kept to each server.
	connectionsKept = 3
)

// Machine is the replicated state machine. Its methods are called one at a
// time, on every server in the same order with the same bytes.
type Machine interface {
	// Apply carries out one committed entry and returns its result for the
	// proposer. It must be deterministic: no clock, no rand, no I/O. data
	// belongs to the log and must not be changed or kept.
	Apply(index uint64, data []byte) any
	// Snapshot returns the whole state. It holds up Apply, so it is quick.
	Snapshot() ([]byte, error)
	// Restore replaces the whole state; on an error the state is unchanged.
	Restore(data []byte) error
}

// Server is one member of the group.
type Server struct {
	// ID names the server for ever, across changes of address.
	ID string
	// Address is host:port of its raft transport, as the others reach it.
	Address string
}

// Stores are where the log lives. Tests give stores in memory.
type Stores struct {
	// Log holds the entries.
	Log raft.LogStore
	// Stable holds the term and the vote.
	Stable raft.StableStore
	// Snapshots holds the snapshots.
	Snapshots raft.SnapshotStore
}

// Timing is how fast the group notices and decides. A zero field has its
// default.
type Timing struct {
	// Heartbeat is how long a follower waits for its leader, 500 ms; the real
	// wait is random between one and two of it.
	Heartbeat time.Duration
	// Election is how long a candidate waits for votes, 500 ms; not below Heartbeat.
	Election time.Duration
	// Lease is how long a leader goes on without a quorum, 400 ms; not above Heartbeat.
	Lease time.Duration
	// Commit is how soon followers learn what is committed when nothing else is
	// sent, 50 ms. It does not delay a proposal.
	Commit time.Duration
}

// Compaction is when the log is cut. A zero field has its default.
type Compaction struct {
	// Threshold is the number of entries between snapshots, snapshotThreshold.
	Threshold uint64
	// Trailing is the number of entries kept behind a snapshot, trailingLogs.
	Trailing uint64
	// Every is how often the threshold is looked at, 30 s.
	Every time.Duration
}

// Config says what to open.
type Config struct {
	// ID is this server's ID, one of Servers.
	ID string
	// Servers is the first configuration: 1, 3 or 5 servers, the same list on
	// every one of them. Once there is a log, its own list counts.
	Servers []Server
	// Join makes a server without a log wait until a group takes it in, instead of
	// founding one.
	Join bool
	// Dir holds the log, the vote and the snapshots. It is made when missing.
	// Empty with Stores set.
	Dir string
	// Bind is host:port that the raft transport listens on; empty stands for
	// the server's own address. Ignored with Transport set.
	Bind string
	// Transport replaces the network, for tests.
	Transport raft.Transport
	// Stores replaces the disk, for tests.
	Stores *Stores
	// Timing is how fast the group notices and decides.
	Timing Timing
	// Compaction is when the log is cut.
	Compaction Compaction
	// WriteDeadline is how long one write of the log may take, 2 s.
	WriteDeadline time.Duration
	// Fatal ends the process. It is called once, when the log can no longer be
	// trusted: a write that failed or hung, or a checksum that does not match.
	// The transport is closed by then, so that the others elect. It must not
	// return in production; where it does, the group never writes again.
	Fatal func(error)
	// Routine reports whether the proposer of an entry may be answered up to a second before the
	// server's mark holds it (see mark.go): a tick. nil: there is none.
	Routine func(data []byte) bool
	// Incarnation returns the cluster's incarnation, for the mark; nil is 0.
	Incarnation func() uint64
	// Check reports why this version cannot apply an entry; nil: it can apply all. An entry of the
	// log that it cannot apply ends Open, not the server in the middle of its start.
	Check func(data []byte) error
	// Secure, when set, wraps every connection between the servers in TLS: both
	// sides show a certificate of a server.
	Secure *secure.Keeper
	// Logger takes one line per change; nil drops them.
	Logger *slog.Logger
	// files is the file system of the mark; tests replace the real one.
	files durable.FS
}

func (c Config) withDefaults() Config {
	orDuration := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	orDuration(&c.Timing.Heartbeat, 500*time.Millisecond)
	orDuration(&c.Timing.Election, 500*time.Millisecond)
	orDuration(&c.Timing.Lease, 400*time.Millisecond)
	orDuration(&c.Timing.Commit, 50*time.Millisecond)
	orDuration(&c.Compaction.Every, snapshotInterval)
	orDuration(&c.WriteDeadline, defaultWriteDeadline)
	if c.Compaction.Threshold == 0 {
		c.Compaction.Threshold = snapshotThreshold
	}
	if c.Compaction.Trailing == 0 {
		c.Compaction.Trailing = trailingLogs
	}
	c.files = cmp.Or[durable.FS](c.files, durable.OS{})
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// check refuses what can never work.
func (c Config) check() error {
	if n := len(c.Servers); n != 1 && n != 3 && n != 5 {
		return badConfig(fmt.Sprintf("%d servers are configured", n), "list 1, 3 or 5 servers, the same list on each of them")
	}
	ids, addresses := map[string]bool{}, map[string]bool{}
	for _, s := range c.Servers {
		if s.ID == "" || s.Address == "" {
			return badConfig("a server has no id or no address", "give every server an id and host:port")
		}
		if ids[s.ID] || addresses[s.Address] {
			return badConfig(fmt.Sprintf("server %s (%s) is listed twice", s.ID, s.Address), "every server has its own id and address")
		}
		ids[s.ID], addresses[s.Address] = true, true
	}
	if !ids[c.ID] {
		return badConfig(fmt.Sprintf("server %q is not one of the configured servers", c.ID), "list this server among the servers, by the same id")
	}
	if c.Fatal == nil {
		return fmt.Errorf("consensus: open %s: Fatal is missing: %w", c.ID, errConfig)
	}
	if c.Dir == "" && c.Stores == nil {
		return badConfig("no directory for the log is configured", "name a directory on a local disk")
	}
	return nil
}

func badConfig(message, hint string) error {
	return &cli.Error{Code: "usage", Exit: cli.ExitUsage, Message: message, Hint: hint, Err: errConfig}
}

// own is the entry of this server in the list.
func (c Config) own() Server {
	for _, s := range c.Servers {
		if s.ID == c.ID {
			return s
		}
	}
	return Server{}
}

// servers is the list as raft takes it.
func (c Config) servers() raft.Configuration { return configuration(c.Servers) }

func configuration(servers []Server) raft.Configuration {
	var out raft.Configuration
	for _, s := range servers {
		out.Servers = append(out.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address)})
	}
	return out
}

func (c Config) raft(notify chan<- bool) *raft.Config {
	out := raft.DefaultConfig()
	out.LocalID = raft.ServerID(c.ID)
	out.HeartbeatTimeout = c.Timing.Heartbeat
	out.ElectionTimeout = c.Timing.Election
	out.LeaderLeaseTimeout = c.Timing.Lease
	out.CommitTimeout = c.Timing.Commit
	out.SnapshotInterval = c.Compaction.Every
	out.SnapshotThreshold = c.Compaction.Threshold
	out.TrailingLogs = c.Compaction.Trailing
	out.NotifyCh = notify
	out.NoLegacyTelemetry = true
	out.ShutdownOnRemove = false // the server stays to say that it was removed
	out.Logger = newLogger(c.Logger)
	return out
}
