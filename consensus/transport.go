package consensus

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// transport wraps raft's: it can be cut at once, it remembers when each server
// last answered, and it holds replication to a server that does not answer
// until a heartbeat gets through again. Without that, raft waits up to ten
// seconds before it sends entries to a server that came back.
type transport struct {
	raft.Transport

	pump  sync.WaitGroup
	ended chan struct{} // closed when no message is taken in any more

	mu    sync.Mutex
	peers map[raft.ServerID]*peer
	gone  bool
	let   chan struct{} // closed and replaced when held calls have to end

	origin string             // of this server's log; empty is none
	adopt  func(string) error // stores the origin of the group that takes this server in; nil once it has
}

// peer is what the transport knows of another server.
type peer struct {
	contact time.Time // last answer; zero is never
	last    uint64    // last entry of its log, by its own word
	down    bool
	back    chan struct{} // closed when it answers again
}

func newTransport(inner raft.Transport) *transport {
	return &transport{Transport: inner, ended: make(chan struct{}), peers: map[raft.ServerID]*peer{}, let: make(chan struct{})}
}

func openTransport(cfg Config) (*transport, error) {
	if cfg.Transport != nil {
		return newTransport(cfg.Transport), nil
	}
	s, err := openStream(cfg.Bind, cfg.own(), cfg.Secure)
	if err != nil {
		return nil, err
	}
	return newTransport(raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: connectionsKept, Timeout: rpcTimeout, Logger: newLogger(cfg.Logger),
	})), nil
}

// seen returns when a server last answered and the last entry it named.
func (t *transport) seen(id string) (contact time.Time, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.peers[raft.ServerID(id)]; ok {
		return p.contact, p.last
	}
	return time.Time{}, 0
}

func (t *transport) peer(id raft.ServerID) *peer {
	p, ok := t.peers[id]
	if !ok {
		p = &peer{back: make(chan struct{})}
		t.peers[id] = p
	}
	return p
}

// AppendEntries sends entries or a heartbeat to one server.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.hold(id, isHeartbeat(req)); err != nil {
		return err
	}
	err := again(func() error { return t.Transport.AppendEntries(id, to, req, resp) })
	t.note(id, resp, err)
	return err
}

// isHeartbeat tells raft's heartbeats, which carry no place in the log, from
// its replication.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.LeaderCommitIndex == 0 && len(req.Entries) == 0
}

// hold waits while the server does not answer; heartbeats never wait.
func (t *transport) hold(id raft.ServerID, heartbeat bool) error {
	t.mu.Lock()
	p := t.peer(id)
	gone, down, back, let := t.gone, p.down, p.back, t.let
	t.mu.Unlock()
	if gone {
		return errTransportClosed
	}
	if heartbeat || !down {
		return nil
	}
	select {
	case <-back:
		return nil
	case <-let:
		return fmt.Errorf("consensus: server %s does not answer: %w", id, errTransportClosed)
	}
}

func (t *transport) note(id raft.ServerID, resp *raft.AppendEntriesResponse, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peer(id)
	if err != nil {
		p.down = true
		return
	}
	p.contact, p.last = time.Now(), resp.LastLog
	if p.down {
		p.down = false
		close(p.back)
		p.back = make(chan struct{})
	}
}

// forget ends the calls that are held for a server that was removed; raft ends
// its replication only between two calls.
func (t *transport) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.peers[raft.ServerID(id)]; ok {
		close(p.back)
		delete(t.peers, raft.ServerID(id))
	}
}

// letGo ends the held calls: this server no longer leads.
func (t *transport) letGo() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.let)
	t.let = make(chan struct{})
	for _, p := range t.peers {
		p.down = false
	}
}

// cut ends all traffic in both directions, for good.
func (t *transport) cut() {
	t.mu.Lock()
	if !t.gone {
		close(t.ended)
	}
	t.gone = true
	t.mu.Unlock()
	t.letGo()
	if c, ok := t.Transport.(raft.WithClose); ok {
		_ = c.Close()
	}
}

func (t *transport) isGone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// Close ends all traffic.
func (t *transport) Close() error {
	t.cut()
	return nil
}

// AppendEntriesPipeline opens a pipeline to one server.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if t.isGone() {
		return nil, errTransportClosed
	}
	return t.Transport.AppendEntriesPipeline(id, to)
}

// RequestVote asks one server for its vote.
func (t *transport) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if t.isGone() {
		return errTransportClosed
	}
	return again(func() error { return t.Transport.RequestVote(id, to, req, resp) })
}

// RequestPreVote asks one server whether it would vote.
func (t *transport) RequestPreVote(
	id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse,
) error {
	pre, ok := t.Transport.(raft.WithPreVote)
	if !ok || t.isGone() {
		return errTransportClosed
	}
	return again(func() error { return pre.RequestPreVote(id, to, req, resp) })
}

// InstallSnapshot sends a snapshot to one server.
func (t *transport) InstallSnapshot(
	id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	if t.isGone() {
		return errTransportClosed
	}
	return again(func() error { return t.Transport.InstallSnapshot(id, to, req, resp, data) })
}

// TimeoutNow asks one server to stand for election at once.
func (t *transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if t.isGone() {
		return errTransportClosed
	}
	return again(func() error { return t.Transport.TimeoutNow(id, to, req, resp) })
}

// again repeats a request on another connection while it was given one that has been replaced:
// nothing of it was sent.
func again(request func() error) error {
	err := request()
	for range connectionsKept {
		if !errors.Is(err, errMoved) {
			break
		}
		err = request()
	}
	return err
}
