package master

import (
	"net/http"
	"sync"
	"time"
)

// mailbox queues the messages of a stream: the owner puts, and never blocks; the stream's handler takes
// everything, so that messages grow with the load.
type mailbox[T any] struct {
	mu    sync.Mutex
	items []T
	spare []T
	// taken is when the handler took what it is sending now; zero while it waits.
	taken time.Time
	ready chan struct{}
}

func newMailbox[T any]() mailbox[T] { return mailbox[T]{ready: make(chan struct{}, 1)} }

// put adds items.
func (b *mailbox[T]) put(items ...T) {
	b.mu.Lock()
	b.items = append(b.items, items...)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default: // the handler has been notified
	}
}

// take returns all items, after ready. They are valid until sent.
func (b *mailbox[T]) take(now time.Time) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items, b.spare = b.spare[:0], nil
	b.taken = now
	return items
}

// sent returns the buffer of take.
func (b *mailbox[T]) sent(items []T) {
	clear(items)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare, b.taken = items[:0], time.Time{}
}

// stalled reports whether sending takes longer than most.
func (b *mailbox[T]) stalled(now time.Time, most time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.taken.IsZero() && now.Sub(b.taken) > most
}

// line is one open stream, which any goroutine may end.
type line struct {
	over chan struct{}
	once sync.Once
	why  error

	mu sync.Mutex
	// writer is nil once the handler is about to return.
	writer *http.ResponseController
}

func newLine(w *http.ResponseController) *line { return &line{over: make(chan struct{}), writer: w} }

// end lets the handler return why.
func (l *line) end(why error) {
	l.once.Do(func() {
		l.why = why
		close(l.over)
	})
}

// cut ends a stream whose peer does not read: a write that waits for it fails.
func (l *line) cut(why error) {
	l.end(why)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer != nil {
		_ = l.writer.SetWriteDeadline(time.Now()) // where it is not supported, the connection's pings find a dead peer
	}
}

// leave is called before the handler returns: its writer must not be used afterwards.
func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writer = nil
}
