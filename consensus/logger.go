package consensus

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// repeatAfter is how long raft's repetitions of a line are dropped: it logs each retry,
	// ten times a second.
	repeatAfter = time.Minute
	// maxMessages bounds the remembered lines; raft has about a hundred texts.
	maxMessages = 256
	// startGrace is how long the first election and the first connections may take while
	// servers are started one after the other. Whatever fails for longer is logged again
	// by raft, and then counts.
	startGrace = 10 * time.Second
)

// startLines returns raft's warnings and errors that belong to the start of every cluster:
// there is no leader yet, and the other servers do not listen yet.
func startLines() []string {
	return []string{
		"heartbeat timeout reached, starting election", "Election timeout reached, restarting election",
		"failed to make requestVote RPC", "failed to appendEntries to", "failed to heartbeat to", "failed to contact",
		"failed to start pipeline replication to", "failed to pipeline appendEntries", "appendEntries rejected, sending older logs",
		"rejecting vote request since we have a leader", "rejecting pre-vote request since we have a leader",
		"rejecting vote request since our last term is greater", "rejecting pre-vote request since our last term is greater",
		"rejecting vote request since our last index is greater", "rejecting pre-vote request since our last index is greater",
		"failed to get previous log", "previous log term mis-match", "new leader elected, stepping down", "duplicate requestVote from",
	}
}

// newLogger bridges raft's log to ours. Debug is dropped. raft's info lines are debug here,
// because the group logs each change once, and so are its warnings that belong to the start.
func newLogger(log *slog.Logger) hclog.Logger {
	bridge := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	bridge.RegisterSink(&sink{log: log, began: time.Now(), logged: map[string]time.Time{}})
	return bridge
}

type sink struct {
	log    *slog.Logger
	began  time.Time
	mu     sync.Mutex
	logged map[string]time.Time
}

// Accept implements hclog.SinkAdapter.
func (s *sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := levelOf(level)
	if to > slog.LevelDebug && time.Since(s.began) < startGrace && slices.Contains(startLines(), msg) {
		to = slog.LevelDebug
	}
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
	if last, ok := s.logged[msg]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	if len(s.logged) >= maxMessages {
		clear(s.logged)
	}
	s.logged[msg] = now
	return false
}
