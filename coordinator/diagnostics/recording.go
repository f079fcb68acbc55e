package diagnostics

import (
	"bytes"
	"context"
	"fmt"
	"runtime/trace"
	"sync"
	"time"
)

const (
	// traceBytes ends one that grows beyond what a bug report can carry.
	traceBytes = 64 << 20
	// tracePoll is how often its size is looked at.
	tracePoll = 50 * time.Millisecond
)

// RecordTrace records this process until the time is over, ctx ends or it has
// grown too large. The process has one recording on demand at a time, beside the
// flight recorder's.
func RecordTrace(ctx context.Context, d time.Duration) ([]byte, error) {
	var b lockedBuffer
	if err := trace.Start(&b); err != nil {
		return nil, fmt.Errorf("coordinator: recording: %w", err)
	}
	end, look := time.NewTimer(d), time.NewTicker(tracePoll)
	defer end.Stop()
	defer look.Stop()
	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case <-end.C:
			running = false
		case <-look.C:
			running = b.size() < traceBytes
		}
	}
	trace.Stop()
	return b.bytes(), ctx.Err()
}

// lockedBuffer is written by the runtime and looked at by us.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Len()
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Bytes()
}
