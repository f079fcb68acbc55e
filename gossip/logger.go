package gossip

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// repeatAfter is how long a line of memberlist's stays unrepeated.
	repeatAfter = time.Minute
	// keyLength is how much of a line tells it from others; addresses follow later.
	keyLength = 28
	// maxKeys bounds the memory of said lines.
	maxKeys = 128
)

// newLogger bridges memberlist's log to ours. Its notes and debug lines are
// debug here: Gossip itself logs who comes and goes.
func newLogger(to *slog.Logger) *log.Logger {
	return log.New(&bridge{log: to, said: map[string]time.Time{}}, "", 0)
}

// newKeyLogger is newLogger that also keeps who was refused for its key.
func newKeyLogger(to *slog.Logger, f *foreign) *log.Logger {
	return log.New(&bridge{log: to, said: map[string]time.Time{}, foreign: f}, "", 0)
}

// foreign is who was last refused because it gossips with another key, or none.
type foreign struct {
	mu   sync.Mutex
	from string
	at   time.Time
}

func (f *foreign) note(text string) {
	_, from, _ := strings.Cut(text, "from=")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from, f.at = from, time.Now()
}

func (f *foreign) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from, f.at = "", time.Time{}
}

type bridge struct {
	foreign *foreign // nil where keys are not looked at
	log     *slog.Logger
	mu      sync.Mutex
	said    map[string]time.Time
}

// Write takes one line of memberlist's.
func (b *bridge) Write(line []byte) (int, error) {
	level, text := parseLine(string(line))
	if b.foreign != nil && isForeignKey(text) {
		b.foreign.note(text)
	}
	if level < slog.LevelDebug || !b.log.Enabled(context.Background(), level) || b.repeats(level, text) {
		return len(line), nil
	}
	if isForeignKey(text) {
		b.log.Warn("refused a member with another gossip key", slog.String("what", text))
	} else {
		b.log.LogAttrs(context.Background(), level, "memberlist", slog.String("what", text))
	}
	return len(line), nil
}

// parseLine sorts a line by how much it matters to an operator. What memberlist
// calls an error is one packet or one connection that failed, and retried.
func parseLine(line string) (slog.Level, string) {
	text := strings.TrimSpace(line)
	prefix, rest, ok := strings.Cut(text, " ")
	if !ok {
		return slog.LevelDebug, text
	}
	rest = strings.TrimPrefix(rest, "memberlist: ")
	switch prefix {
	case "[ERR]", "[ERROR]":
		return slog.LevelWarn, rest
	case "[WARN]", "[INFO]":
		return slog.LevelDebug, rest
	case "[DEBUG]":
		return slog.LevelDebug - 1, rest
	}
	return slog.LevelDebug, text
}

// foreignKeyTexts are memberlist's words for what our key does not open, or what
// is not encrypted at all.
var foreignKeyTexts = [...]string{"keys could decrypt", "decrypt packet failed", "too small to decrypt", "remote state is not encrypted"}

func isForeignKey(text string) bool {
	text = strings.ToLower(text)
	for _, t := range foreignKeyTexts {
		if strings.Contains(text, t) {
			return true
		}
	}
	return false
}

func (b *bridge) repeats(level slog.Level, text string) bool {
	if level < slog.LevelWarn {
		return false
	}
	key := text[:min(len(text), keyLength)]
	if isForeignKey(text) {
		key = "foreign key"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if last, ok := b.said[key]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	if len(b.said) >= maxKeys {
		clear(b.said)
	}
	b.said[key] = now
	return false
}
