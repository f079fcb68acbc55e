package consensus

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// tripwire ends a server whose log can no longer be trusted, once.
type tripwire struct {
	once    sync.Once
	tripped atomic.Bool
	// end closes the transport and then ends the process.
	end func(error)
}

func (t *tripwire) trip(err error) {
	t.tripped.Store(true)
	t.once.Do(func() { t.end(err) })
}

// guard watches every write. raft on its own keeps a leader whose disk hangs,
// because heartbeats do not touch the disk; it panics when the term cannot be
// stored, and steps down and tries again when an entry cannot be. Here a write
// that fails or misses its deadline trips the wire, and the goroutine that
// asked for it goes no further, whether Fatal returned or not.
type guard struct {
	wire     *tripwire
	deadline time.Duration
	pace     pace
	// armed is set once raft's own goroutines do the writing. Before, errors go
	// back to Open.
	armed atomic.Bool
}

func (g *guard) do(what string, write func() error) error {
	g.halt()
	late := time.AfterFunc(g.deadline, func() {
		g.wire.trip(fmt.Errorf("consensus: %s after %v: %w", what, g.deadline, ErrWriteDeadline))
	})
	done := g.pace.begin()
	err := write()
	done()
	late.Stop()
	if err == nil {
		g.halt()
		return nil
	}
	err = fmt.Errorf("consensus: %s: %w: %w", what, errWriteFailed, err)
	if g.armed.Load() {
		g.wire.trip(err)
		g.halt()
	}
	return err
}

// halt ends the calling goroutine when the wire has tripped.
func (g *guard) halt() {
	if g.armed.Load() && g.wire.tripped.Load() {
		runtime.Goexit()
	}
}

// guardedLog is a log whose writes are watched.
type guardedLog struct {
	raft.LogStore
	guard *guard
}

// StoreLog appends one entry under the deadline.
func (l guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries under the deadline.
func (l guardedLog) StoreLogs(logs []*raft.Log) error {
	return l.guard.do("append to the log", func() error { return l.LogStore.StoreLogs(logs) })
}

// DeleteRange cuts the log under the deadline.
func (l guardedLog) DeleteRange(first, last uint64) error {
	return l.guard.do("cut the log", func() error { return l.LogStore.DeleteRange(first, last) })
}

// GetLog reads one entry. Once raft runs, a damaged one trips the wire: raft
// would panic on it without a word of which.
func (l guardedLog) GetLog(index uint64, log *raft.Log) error {
	err := l.LogStore.GetLog(index, log)
	if err != nil && isDamage(err) && l.guard.armed.Load() {
		l.guard.wire.trip(err)
	}
	return err
}

// IsMonotonic reports whether the log refuses gaps.
func (l guardedLog) IsMonotonic() bool { return monotonic(l.LogStore) }

func monotonic(s raft.LogStore) bool {
	m, ok := s.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// guardedStable is the store of term and vote with watched writes.
type guardedStable struct {
	raft.StableStore
	guard *guard
}

// Set stores a value under the deadline.
func (s guardedStable) Set(key, val []byte) error {
	return s.guard.do("store the vote", func() error { return s.StableStore.Set(key, val) })
}

// SetUint64 stores a number under the deadline.
func (s guardedStable) SetUint64(key []byte, val uint64) error {
	return s.guard.do("store the term", func() error { return s.StableStore.SetUint64(key, val) })
}
