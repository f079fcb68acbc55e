// Claims: a missed tick asks for one recording, however many are missed before it is written;
// there are so many on disk at most; a recording on demand is one that go tool trace reads.
package diagnostics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strings"
	"testing"
	"time"
)

// Not parallel: a process has one flight recorder.
func TestRecordings(t *testing.T) {
	dir := t.TempDir()
	r, err := NewRecorder(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.flight.Stop()
	if _, err := NewRecorder(dir, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a second recorder in one process was taken")
	}
	at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for range recordsKept + 3 {
		at = at.Add(recordEvery)
		path, err := r.save(at)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || len(data) < 16 || string(data[:2]) != "go" {
			t.Fatalf("%s is no trace: %v, %d bytes", path, err, len(data))
		}
	}
	names, err := Recordings(Dir(dir))
	if err != nil || len(names) != recordsKept || !slices.IsSorted(names) || names[len(names)-1] != filepath.Base("tick-"+at.Format("20060102T150405.000Z")+Suffix) {
		t.Errorf("%v, %v: want the newest %d", names, err, recordsKept)
	}
}

// A recording on demand is one that go tool trace reads, beside a flight recorder;
// one at a time, and never longer than asked for. (It is the process's own: not
// beside other tests.)
func TestRecordingOnDemand(t *testing.T) { //nolint:paralleltest // a process has one recording at a time
	data, err := RecordTrace(t.Context(), 20*time.Millisecond)
	if err != nil || !strings.HasPrefix(string(data), "go 1.") {
		t.Fatalf("%.20q, %v", data, err)
	}
	if err := trace.Start(io.Discard); err != nil {
		t.Fatal(err)
	}
	_, err = RecordTrace(t.Context(), time.Millisecond)
	trace.Stop()
	if err == nil {
		t.Error("two recordings at once")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RecordTrace(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
}

// Ticks that are missed while a recording is asked for ask for no other, and wait for nobody.
func TestMissedTicksShareARecording(t *testing.T) {
	t.Parallel()
	r := &Recorder{late: make(chan struct{}, 1)}
	r.Missed()
	r.Missed()
	if n := len(r.late); n != 1 {
		t.Errorf("%d recordings asked for, want 1", n)
	}
	(*Recorder)(nil).Missed() // one that is off
}
