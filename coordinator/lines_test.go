package coordinator

import (
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// lines are the network between the servers: what one sends to another is lost or
// late, and so is the answer, each direction by itself. A nil one loses nothing.
type lines struct {
	mu   sync.Mutex
	base time.Duration               // how long each message takes at least
	cut  map[[2]string]bool          // from, to
	late map[[2]string]time.Duration // from, to
}

func newLines() *lines {
	return &lines{cut: map[[2]string]bool{}, late: map[[2]string]time.Duration{}}
}

// over is a server's transport on these lines.
func (l *lines) over(from string, t *raft.InmemTransport) raft.Transport {
	if l == nil {
		return t
	}
	return &line{InmemTransport: t, of: l, from: from}
}

func (l *lines) lost(from, to string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[[2]string{from, to}]
}

// set changes what becomes of messages from one server to another.
func (l *lines) set(from, to string, cut bool, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[[2]string{from, to}], l.late[[2]string{from, to}] = cut, late
}

// slow makes every message take so long at least.
func (l *lines) slow(base time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = base
}

// mend makes all lines good.
func (l *lines) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.cut)
	clear(l.late)
}

// carry brings a message to another server and its answer back.
func (l *lines) carry(from, to string, ask func() error) error {
	if err := l.pass(from, to); err != nil {
		return err
	}
	if err := ask(); err != nil {
		return err
	}
	return l.pass(to, from)
}

// unanswered is how long a sender waits for an answer that never comes.
const unanswered = 500 * time.Millisecond

func (l *lines) pass(from, to string) error {
	l.mu.Lock()
	cut, late := l.cut[[2]string{from, to}], max(l.base, l.late[[2]string{from, to}])
	l.mu.Unlock()
	if cut {
		time.Sleep(unanswered)
		return errNoRoute
	}
	time.Sleep(late)
	return nil
}

// line is one server's transport.
type line struct {
	*raft.InmemTransport
	of   *lines
	from string
}

// AppendEntriesPipeline sends everything one by one.
func (l *line) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries implements raft.Transport.
func (l *line) AppendEntries(id raft.ServerID, to raft.ServerAddress, a *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
	return l.of.carry(l.from, string(to), func() error { return l.InmemTransport.AppendEntries(id, to, a, r) })
}

// RequestVote implements raft.Transport.
func (l *line) RequestVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestVoteRequest, r *raft.RequestVoteResponse) error {
	return l.of.carry(l.from, string(to), func() error { return l.InmemTransport.RequestVote(id, to, a, r) })
}

// RequestPreVote implements raft.WithPreVote.
func (l *line) RequestPreVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
	return l.of.carry(l.from, string(to), func() error { return l.InmemTransport.RequestPreVote(id, to, a, r) })
}

// InstallSnapshot implements raft.Transport.
func (l *line) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, a *raft.InstallSnapshotRequest, r *raft.InstallSnapshotResponse, data io.Reader) error {
	return l.of.carry(l.from, string(to), func() error { return l.InmemTransport.InstallSnapshot(id, to, a, r, data) })
}

// TimeoutNow implements raft.Transport.
func (l *line) TimeoutNow(id raft.ServerID, to raft.ServerAddress, a *raft.TimeoutNowRequest, r *raft.TimeoutNowResponse) error {
	return l.of.carry(l.from, string(to), func() error { return l.InmemTransport.TimeoutNow(id, to, a, r) })
}
