// Claim: a server that ends itself has written why to its log before it is gone, though the log
// is read slowly; a reader that does not read delays the end by no more than a moment.
package coordinator

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headroom/coordinator/members"
	"headroom/internal/logs"
)

// slowReader takes its time for each line.
type slowReader struct {
	pause time.Duration
	mu    sync.Mutex
	text  bytes.Buffer
}

func (r *slowReader) Write(line []byte) (int, error) {
	time.Sleep(r.pause)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

func (r *slowReader) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.text.Bytes(), []byte(text))
}

func TestTheReasonIsWrittenBeforeTheExit(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		pause   time.Duration
		written bool
	}{
		"slow":  {300 * time.Millisecond, true},
		"stuck": {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reader := &slowReader{pause: x.pause}
				logger, queue := logs.New(reader, slog.LevelInfo)
				s := newServer(Config{ID: "c1", Servers: []ServerConfig{{ID: "c1"}}}, logger)
				s.flush = func() { queue.Close(logs.CloseWait) }
				logger.Info("a line before it")
				began := time.Now()
				s.lastWords(errors.New("append to the log after 2s: log write missed its deadline"))
				if took := time.Since(began); took > logs.CloseWait+members.LastWait {
					t.Errorf("it took %v", took)
				}
				if got := reader.has("log write missed its deadline"); got != x.written {
					t.Errorf("written before the exit: %v", got)
				}
				synctest.Wait()
				time.Sleep(3 * time.Hour) // the stuck reader goes on
			})
		})
	}
}
