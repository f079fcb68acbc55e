package logs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// A reader that does not read keeps nobody waiting; what did not fit is counted and,
// once somebody reads, told.
func TestStalledReaderDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // without any room: the first line blocks
		log, q := New(w, slog.LevelInfo)
		began := time.Now()
		for range 2 * queueLines {
			log.Info("line")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("logging took %v", took)
		}
		if q.Dropped() < queueLines-1 {
			t.Errorf("dropped %d of %d lines", q.Dropped(), 2*queueLines)
		}
		if q.Close(time.Second) {
			t.Error("Close says that all was written")
		}
		read := make(chan string)
		go func() {
			all, _ := io.ReadAll(r)
			read <- string(all)
		}()
		if !q.Close(time.Minute) {
			t.Error("not all was written to a reader that reads")
		}
		_ = w.Close()
		text := <-read
		if !strings.Contains(text, "log lines dropped") {
			t.Error("nothing says that lines are missing")
		}
		if n := strings.Count(text, "msg=line"); n < queueLines {
			t.Errorf("%d lines got through", n)
		}
	})
}

// Lines come whole, in order and below their bound.
func TestLinesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, q := New(&out, slog.LevelInfo)
	log.Debug("below the level")
	log.Info("first")
	log.LogAttrs(context.Background(), slog.LevelInfo, "second", slog.String("long", strings.Repeat("x", 2*lineMost)))
	log.Info("third")
	if !q.Close(time.Minute) {
		t.Fatal("not written")
	}
	log.Info("after the end")
	lines := strings.SplitAfter(out.String(), "\n")
	if len(lines) != 4 || lines[3] != "" {
		t.Fatalf("%d lines:\n%s", len(lines)-1, out.String())
	}
	if !strings.Contains(lines[0], "first") || !strings.HasSuffix(lines[1], cutMark) || len(lines[1]) != lineMost || !strings.Contains(lines[2], "third") {
		t.Errorf("wrong lines:\n%s", out.String())
	}
	if q.Dropped() != 1 || q.Failed() != 0 {
		t.Errorf("dropped %d, failed %d", q.Dropped(), q.Failed())
	}
}

// An output that fails is counted and ends nothing.
func TestFailingOutput(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	_ = r.Close()
	log, q := New(w, slog.LevelInfo)
	log.Info("line")
	if !q.Close(time.Minute) || q.Failed() != 1 {
		t.Errorf("failed %d", q.Failed())
	}
}

// Dropped returns how many lines were dropped because the reader did not keep up.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// What a job, a node or a BMC is called reaches the log as escapes, never as a control sequence.
func TestLinesAreClean(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, q := New(&out, slog.LevelInfo)
	log.Info("job ended", slog.String("job", "a\x1b[2J\u202eb\u009b\r"), slog.Any("error", io.ErrNoProgress))
	if !q.Close(time.Minute) || strings.ContainsAny(out.String(), "\x1b\u202e\u009b\r") || !strings.Contains(out.String(), `\u202e`) {
		t.Errorf("%q", out.String())
	}
}

// Failed returns how many lines the output refused.
func (q *Queue) Failed() uint64 { return q.failed.Load() }
