package consensus

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatAfter is how long a line of raft's stays unrepeated. raft says the same
// thing on every retry, ten times a second.
const repeatAfter = time.Minute

// maxMessages bounds the memory of said lines; raft has about a hundred texts.
const maxMessages = 256

// newLogger bridges raft's log to ours. Debug is dropped; raft's own notes are
// debug here, because the group itself logs each change once.
func newLogger(log *slog.Logger) hclog.Logger {
	bridge := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	bridge.RegisterSink(&sink{log: log, said: map[string]time.Time{}})
	return bridge
}

type sink struct {
	log  *slog.Logger
	mu   sync.Mutex
	said map[string]time.Time
}

// Accept takes one line of raft's.
func (s *sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := levelOf(level)
	if to < slog.LevelDebug || !s.log.Enabled(context.Background(), to) || s.repeats(to, msg) {
		return
	}
	attrs := []slog.Attr{slog.String("what", msg)}
	for i := 0; i+1 < len(args); i += 2 {
		key, ok := args[i].(string)
		if !ok {
			continue
		}
		attrs = append(attrs, slog.Any(strings.ReplaceAll(key, "-", "_"), plain(args[i+1])))
	}
	s.log.LogAttrs(context.Background(), to, "raft", attrs...)
}

func levelOf(level hclog.Level) slog.Level {
	switch level {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Info:
		return slog.LevelDebug
	case hclog.NoLevel, hclog.Trace, hclog.Debug, hclog.Off:
		return slog.LevelDebug - 1
	}
	return slog.LevelDebug - 1
}

func plain(v any) any {
	switch v := v.(type) {
	case error:
		return v.Error()
	case hclog.Format:
		return v[0]
	default:
		return v
	}
}

func (s *sink) repeats(level slog.Level, msg string) bool {
	if level < slog.LevelWarn {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if last, ok := s.said[msg]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	if len(s.said) >= maxMessages {
		clear(s.said)
	}
	s.said[msg] = now
	return false
}
