package consensus

import (
	"fmt"
	"runtime"
	"slices"
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
	err := caught(write)
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

// guardedLog is a log whose writes are watched, and marked before they are acknowledged.
type guardedLog struct {
	raft.LogStore
	snapshots raft.SnapshotStore
	guard     *guard
	mark      *mark
	// routine reports whether an entry may be marked up to markEvery later.
	routine func(*raft.Log) bool
	// leads reports whether this server leads, or led, in a term.
	leads func(term uint64) bool
}

// StoreLog appends one entry under the deadline.
func (l guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries under the deadline.
//
// A follower acknowledges them when this returns, so it waits here for the mark of what is no
// routine. A leader acknowledges by its answer to the proposer, which waits for the mark: so the
// mark is written while the entries are on their way to the followers.
func (l guardedLog) StoreLogs(logs []*raft.Log) error {
	if err := l.guard.do("append to the log", func() error { return l.LogStore.StoreLogs(logs) }); err != nil {
		return err
	}
	last := logs[len(logs)-1]
	l.mark.set(func(a *Acknowledged) { *a = a.ending(last) })
	switch {
	case !slices.ContainsFunc(logs, func(e *raft.Log) bool { return !l.routine(e) }):
	case l.leads(last.Term):
		go func() { _ = l.mark.keep() }()
	default:
		return l.mark.keep()
	}
	return nil
}

// DeleteRange cuts the log under the deadline. Entries at its end are those that a leader has
// overruled: they are no longer acknowledged, and the mark says so before they are gone.
func (l guardedLog) DeleteRange(first, last uint64) error {
	end, err := l.LastIndex()
	if err != nil {
		return err
	}
	if last >= end {
		before, err := l.before(first)
		if err != nil {
			return err
		}
		l.mark.set(func(a *Acknowledged) { *a = a.ending(&before) })
		if err := l.mark.keep(); err != nil {
			return err
		}
	}
	return l.guard.do("cut the log", func() error { return l.LogStore.DeleteRange(first, last) })
}

// before is the end of a log that is cut from an entry on.
func (l guardedLog) before(first uint64) (raft.Log, error) {
	term, index, err := newestSnapshot(l.snapshots)
	var e raft.Log
	if err == nil && first-1 > index && l.LogStore.GetLog(first-1, &e) == nil {
		return e, nil
	}
	return raft.Log{Type: raft.LogNoop, Index: index, Term: term}, err
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
