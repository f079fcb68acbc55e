package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	walmetrics "github.com/hashicorp/raft-wal/metrics"
	"github.com/hashicorp/raft-wal/verifier"
)

// checkedLog puts raft-wal's verifier around a log: every checkpointEvery
// entries the leader stores the checksum of what it wrote since the last one,
// and each server reads its own log back and compares.
//
// The verifier sums what is appended and does not know that a deposed leader's
// tail may be cut off again; its sum would then accuse a healthy disk. So a cut
// of the tail starts a new verifier, and what the old one still finds is void.
type checkedLog struct {
	raft.LogStore // the plain log

	report func(error)
	log    *slog.Logger

	mu      sync.Mutex // one writer: StoreLogs, DeleteRange, Close
	current *checker
	next    uint64 // the index that may follow; 0 is unknown
	closed  bool
}

// checker is one run of the verifier, from one cut of the tail to the next.
type checker struct {
	*verifier.LogStore
	void atomic.Bool
}

// unclosable keeps the verifier from closing the log that outlives it.
type unclosable struct{ raft.LogStore }

// IsMonotonic reports whether the log refuses gaps.
func (u unclosable) IsMonotonic() bool { return monotonic(u.LogStore) }

func newCheckedLog(store raft.LogStore, log *slog.Logger, report func(error)) *checkedLog {
	l := &checkedLog{LogStore: store, report: report, log: log}
	l.current = l.newChecker()
	return l
}

func (l *checkedLog) newChecker() *checker {
	c := &checker{}
	c.LogStore = verifier.NewLogStore(unclosable{l.LogStore}, isCheckpoint, func(r verifier.VerificationReport) {
		l.judge(c, r)
	}, &walmetrics.NoOpCollector{})
	return c
}

// isCheckpoint picks the entries that carry a checksum. Only commands do: raft
// writes its own kinds into their Extensions itself.
func isCheckpoint(e *raft.Log) (bool, error) {
	return e.Type == raft.LogCommand && e.Index%checkpointEvery == 0, nil
}

func (l *checkedLog) judge(c *checker, r verifier.VerificationReport) {
	if r.Err == nil || c.void.Load() {
		return
	}
	if mismatch, ok := errors.AsType[verifier.ErrChecksumMismatch](r.Err); ok {
		l.report(fmt.Errorf("consensus: entries %s: %w: %w", r.Range, errCorrupt, mismatch))
		return
	}
	// A range that a snapshot has cut away meanwhile cannot be read; that is no
	// finding.
	l.log.Debug("log range not verified", slog.String("range", r.Range.String()), slog.Any("reason", r.Err))
}

// StoreLog appends one entry.
func (l *checkedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs appends entries and, at a checkpoint, has them verified.
func (l *checkedLog) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != 0 && entries[0].Index != l.next {
		l.restart()
	}
	for _, e := range entries {
		addSum(e)
		if err := checkSum(e); err != nil { // damaged on its way here
			return err
		}
	}
	if err := l.current.StoreLogs(entries); err != nil {
		return err
	}
	l.next = entries[len(entries)-1].Index + 1
	return nil
}

// GetLog reads one entry and refuses it when it is not what was written.
func (l *checkedLog) GetLog(index uint64, e *raft.Log) error {
	if err := l.LogStore.GetLog(index, e); err != nil {
		return err
	}
	return checkSum(e)
}

// DeleteRange cuts entries off either end, both inclusive.
func (l *checkedLog) DeleteRange(first, last uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end, err := l.LastIndex()
	if err != nil {
		return err
	}
	if last >= end {
		l.restart()
	}
	return l.LogStore.DeleteRange(first, last)
}

// restart voids the sums so far. The caller holds the lock.
func (l *checkedLog) restart() {
	if l.closed {
		return
	}
	l.current.void.Store(true)
	_ = l.current.Close()
	l.current, l.next = l.newChecker(), 0
}

// IsMonotonic reports whether the log refuses gaps.
func (l *checkedLog) IsMonotonic() bool { return monotonic(l.LogStore) }

// Close ends the verifier and leaves the log open.
func (l *checkedLog) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.current.void.Store(true)
	_ = l.current.Close()
}
