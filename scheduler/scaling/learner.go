package scaling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/google/renameio/v2"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/config"
	"headroom/jobs/scaling/runs"
)

const (
	// file is what is learned, in the scheduler's folder, and fileMost bounds it, bytes: a book has at most a thousand names
	// with 32 runs.
	file     = "scaling.json"
	fileMost = 16 << 20
	// endedMost is how many runs may wait to be learned from.
	endedMost = 64
)

// Learner learns scaling curves from runs of jobs. A nil Learner has no curves and learns nothing. It is safe for
// concurrent use.
type Learner struct {
	path   string
	logger *slog.Logger
	ended  chan ended
	// book is never changed once it is stored.
	book atomic.Pointer[runs.Book]
}

type ended struct {
	name string
	run  runs.Run
}

// Open reads what was learned in a folder.
func Open(dir string, logger *slog.Logger) *Learner {
	l := &Learner{path: filepath.Join(dir, file), logger: logger, ended: make(chan ended, endedMost)}
	l.book.Store(&runs.Book{})
	data, err := config.ReadFile(l.path, fileMost+1)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l
	case err == nil && len(data) > fileMost:
		err = fmt.Errorf("more than %d bytes", fileMost)
	}
	var b runs.Book
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err != nil {
		logger.Error("scaling file unreadable; starting without learned curves", slog.String("file", l.path), slog.Any("error", err))
		if err := os.Rename(l.path, l.path+".bad"); err != nil {
			logger.Warn("unreadable file not moved aside", slog.Any("error", err))
		}
		return l
	}
	l.book.Store(&b)
	return l
}

// Ended queues the run of an ended job. It never waits.
func (l *Learner) Ended(name string, r runs.Run) {
	if l == nil {
		return
	}
	select {
	case l.ended <- ended{name, r}:
	default:
		l.logger.Debug("run not learned from: queue is full", slog.String("name", name))
	}
}

// Run learns until ctx ends, and tells of each name whose curve it has fitted anew.
func (l *Learner) Run(ctx context.Context, changed func(name string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-l.ended:
			if l.learn(e) {
				changed(e.name)
			}
		}
	}
}

// learn keeps a run, and reports whether a curve was fitted.
func (l *Learner) learn(e ended) (fitted bool) {
	next := l.book.Load().Clone()
	if err := next.Note(e.name, e.run); err != nil {
		l.logger.Warn("run not learned from", slog.String("name", e.name), slog.Any("error", err))
		return false
	}
	if fitted = next.Due(e.name); fitted {
		next.Learn(e.name)
	}
	l.book.Store(next)
	data, err := json.Marshal(next)
	if err == nil {
		err = renameio.WriteFile(l.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		l.logger.Warn("scaling file not written", slog.Any("error", err))
	}
	return fitted
}

// Advise returns what is known of a name; nil for nothing. explore lets the run be held off its curve to learn from it.
func (l *Learner) Advise(name string, explore bool) *headroomv1.Scaling {
	if l == nil {
		return nil
	}
	a := l.book.Load().Advise(name, explore)
	if a == nil {
		return nil
	}
	out := &headroomv1.Scaling{Runs: uint32(a.Runs), Type: a.Type, Error: a.Error, Exploring: a.Exploring}
	for _, p := range a.Points {
		out.Points = append(out.Points, &headroomv1.ScalingPoint{Containers: uint32(p.Containers), Speedup: p.Speedup})
	}
	return out
}

// Names returns of how many names runs are known, and of how many a curve.
func (l *Learner) Names() (all, curves int) {
	if l == nil {
		return 0, 0
	}
	return l.book.Load().Names()
}
