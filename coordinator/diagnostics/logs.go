package diagnostics

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
)

const (
	// logLines are how many of the newest log lines are remembered for a bundle.
	logLines = 1000
	// logLine bounds one of them, bytes.
	logLine = 4 << 10
)

// LogRing remembers the newest log lines.
type LogRing struct {
	mu    sync.Mutex
	lines []string
	next  int // where the next line goes, once it is full
}

// Write implements io.Writer: it takes one line.
func (r *LogRing) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := string(line[:min(len(line), logLine)])
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if len(r.lines) < logLines {
		r.lines = append(r.lines, text)
	} else {
		r.lines[r.next] = text
		r.next = (r.next + 1) % logLines
	}
	return len(line), nil
}

// Text are the lines, the oldest first.
func (r *LogRing) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines[r.next:], "") + strings.Join(r.lines[:r.next], "")
}

// secretKey names attributes whose values are never kept. None is logged today;
// this holds for one that is by mistake.
var secretKey = regexp.MustCompile(`(?i)password|passphrase|secret|token|authorization|private`)

// Keep is a logger that logs as before, and into r as well.
func (r *LogRing) Keep(logger *slog.Logger) *slog.Logger {
	text := slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if secretKey.MatchString(a.Key) {
			return slog.String(a.Key, "(not kept)")
		}
		return a
	}})
	return slog.New(both{logger.Handler(), text})
}

// both hands what the first handler takes to the second as well, which takes
// everything from info on whatever the log's level is.
type both struct{ first, second slog.Handler }

// Enabled implements slog.Handler.
func (b both) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || b.first.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (b both) Handle(ctx context.Context, r slog.Record) error {
	var err error
	if b.first.Enabled(ctx, r.Level) {
		err = b.first.Handle(ctx, r.Clone())
	}
	return errors.Join(err, b.second.Handle(ctx, r))
}

// WithAttrs implements slog.Handler.
func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b.first.WithAttrs(attrs), b.second.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (b both) WithGroup(name string) slog.Handler {
	return both{b.first.WithGroup(name), b.second.WithGroup(name)}
}
