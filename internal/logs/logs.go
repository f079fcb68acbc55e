// Package logs writes a program's log without ever making the program wait for
// whoever reads it.
//
// The one idea: a line is put into a bounded queue, and one goroutine writes the
// queue to the output. A reader that stalls, a full pipe or a terminal that was
// stopped blocks that goroutine only. Lines that find the queue full are dropped
// and counted, and the next line that gets through is preceded by one that says how
// many are missing.
//
// Guarantees: Handle and Write return without waiting for I/O; memory is bounded by
// the number of lines and their length; lines keep their order; Close waits for the
// output no longer than it is told to.
//
// It never retries a line that the output refused, and never changes a record.
package logs

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// CloseWait is how long a program that ends waits for the reader of its log.
const CloseWait = time.Second

const (
	// queueLines is how many lines wait for a slow reader: some minutes of a busy
	// program, 4 MiB at the very most.
	queueLines = 1024
	// lineMost bounds one line, bytes. Whatever is longer is cut, and says so.
	lineMost = 4 << 10
	// cutMark ends a line that was cut.
	cutMark = "... (cut)\n"
)

// Queue is an io.Writer that never blocks: each Write is one line. It is for any
// number of goroutines.
type Queue struct {
	lines   chan []byte
	ended   chan struct{}
	dropped atomic.Uint64
	failed  atomic.Uint64

	mu     sync.Mutex // guards closed, against a Write beside Close
	closed bool
}

// newQueue starts to write what it is given to w.
func newQueue(w io.Writer) *Queue {
	q := &Queue{lines: make(chan []byte, queueLines), ended: make(chan struct{})}
	go q.work(w)
	return q
}

// New returns a logger that writes text to w from the given level on, and the queue
// behind it, which the caller closes at its end.
func New(w io.Writer, level slog.Leveler) (*slog.Logger, *Queue) {
	q := newQueue(w)
	return slog.New(slog.NewTextHandler(q, &slog.HandlerOptions{Level: level})), q
}

// Write implements io.Writer: it takes one line and never fails. What finds the
// queue full, or closed, is dropped and counted.
func (q *Queue) Write(line []byte) (int, error) {
	kept := append(make([]byte, 0, min(len(line), lineMost)), line[:min(len(line), lineMost)]...)
	if len(line) > lineMost {
		copy(kept[lineMost-len(cutMark):], cutMark)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.dropped.Add(1)
		return len(line), nil
	}
	select {
	case q.lines <- kept:
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

// Close writes what waits, for at most this long, and reports whether all of it was
// written. A reader that does not read must not keep a program from ending.
func (q *Queue) Close(wait time.Duration) bool {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.lines)
	}
	q.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-q.ended:
		return true
	case <-late.C:
		return false
	}
}

func (q *Queue) work(w io.Writer) {
	defer close(q.ended)
	var told uint64
	for line := range q.lines {
		told = q.tellDropped(w, told)
		q.put(w, line)
	}
	q.tellDropped(w, told)
}

// tellDropped writes how many lines are missing since it last did.
func (q *Queue) tellDropped(w io.Writer, told uint64) uint64 {
	n := q.dropped.Load()
	if n > told {
		text := fmt.Sprintf("time=%s level=WARN msg=\"log lines dropped: the reader of this log did not keep up\" dropped=%d\n",
			time.Now().Format("2006-01-02T15:04:05.000Z07:00"), n-told)
		q.put(w, []byte(text))
	}
	return n
}

func (q *Queue) put(w io.Writer, line []byte) {
	if _, err := w.Write(line); err != nil {
		q.failed.Add(1)
	}
}
