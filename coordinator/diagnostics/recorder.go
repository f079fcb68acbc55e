// Package diagnostics collects what a bug report needs of a running coordinator: its newest
// log lines, an execution trace of the seconds before a late tick, and traces on demand.
//
// The one idea: it costs little until it is used. Everything is bounded in memory and on disk,
// and nothing waits for it.
//
// What it never does: delay a tick, or keep the value of an attribute that may be a secret.
package diagnostics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
)

const (
	// recordFor is how much of the past a recording holds: a missed tick and the two before.
	recordFor = 5 * time.Second
	// recordBytes bounds the memory that recording takes.
	recordBytes = 8 << 20
	// recordEvery is how often a recording is kept, at most.
	recordEvery = time.Minute
	// recordsKept bounds how many there are on disk; the oldest go.
	recordsKept = 5
	// Suffix ends the name of each; go tool trace reads them.
	Suffix = ".trace"
)

// Recorder keeps what the process did in the last seconds, and writes it down when
// a tick came too late: what held it up is over by then, and gone from every other
// log. A nil recorder is one that is off.
type Recorder struct {
	flight *trace.FlightRecorder
	dir    string
	logger *slog.Logger
	late   chan struct{}
}

// NewRecorder starts recording. The process can have one.
func NewRecorder(stateDir string, logger *slog.Logger) (*Recorder, error) {
	r := &Recorder{
		flight: trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: recordFor, MaxBytes: recordBytes}),
		dir:    Dir(stateDir), logger: logger, late: make(chan struct{}, 1),
	}
	if err := r.flight.Start(); err != nil {
		return nil, &cli.Error{
			Code: "flight-recorder", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("debug.flight_recorder: %v", err),
			Hint: "leave debug.flight_recorder out of coordinator.yaml",
		}
	}
	return r, nil
}

// Dir is where recordings are, in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "debug") }

// Missed asks for a recording. It never waits.
func (r *Recorder) Missed() {
	if r == nil {
		return
	}
	select {
	case r.late <- struct{}{}:
	default:
	}
}

// Run writes what is asked for until ctx ends, and stops recording.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.flight.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.late:
		}
		now := time.Now()
		if !last.IsZero() && now.Sub(last) < recordEvery {
			continue
		}
		last = now
		if path, err := r.save(now); err != nil {
			r.logger.Warn("tick missed; recording not written", slog.Any("error", err))
		} else {
			r.logger.Warn("tick missed; recording written", slog.String("file", path))
		}
	}
}

// save writes one recording, and removes the oldest beyond those that are kept.
func (r *Recorder) save(at time.Time) (path string, err error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return "", fmt.Errorf("coordinator: recording: %w", err)
	}
	old, err := Recordings(r.dir)
	if err != nil {
		return "", err
	}
	for _, name := range old[:max(0, len(old)-recordsKept+1)] {
		err = errors.Join(err, os.Remove(filepath.Join(r.dir, name)))
	}
	path = filepath.Join(r.dir, "tick-"+at.UTC().Format("20060102T150405.000Z")+Suffix)
	f, opened := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if opened != nil {
		return "", fmt.Errorf("coordinator: recording: %w", errors.Join(err, opened))
	}
	_, written := r.flight.WriteTo(f)
	return path, errors.Join(err, written, f.Close())
}

// Recordings are the names of those on disk, the oldest first.
func Recordings(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("coordinator: recording: %w", err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), Suffix) {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}
