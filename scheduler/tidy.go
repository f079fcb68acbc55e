package scheduler

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"headroom/scheduler/jobdir"
)

// The folders of Spark's jobs, DIR/jobs/ID, hold what their drivers wrote. They stay as
// long as the job is listed: until endedMax others have ended after it. What was left by
// an earlier scheduler process goes at the start, once nothing has touched it for a day:
// a submission whose answer was lost may be tried again until then.
const leftFor = 24 * time.Hour

// jobsDir is where the folders of Spark's jobs are.
func (s *Server) jobsDir() string { return filepath.Join(s.cfg.Dir, "jobs") }

// forget drops the records and folders of jobs that the core has forgotten.
func (l *loop) forget() {
	for id := range l.records {
		if !l.core.Knows(id) {
			delete(l.records, id)
			l.tidy(id)
		}
	}
}

// tidy removes the folder of a Spark job that is listed no more. Without a record of the
// job in it, it is not ours to remove.
func (s *Server) tidy(id string) {
	dir := jobdir.Folder{Output: s.jobsDir(), ID: id}
	m, err := dir.ReadManifest()
	if m == nil && err == nil {
		return // a job of our workers keeps its files with its output
	}
	if err == nil {
		err = os.RemoveAll(dir.Path(""))
	}
	if err != nil {
		s.logger.Warn("folder of an old job is left", slog.String("job", id), slog.Any("error", err))
	}
}

// tidyLeft removes the folders of jobs that are not among known and have been left alone.
func (s *Server) tidyLeft(now time.Time, known func(id string) bool) {
	entries, err := os.ReadDir(s.jobsDir())
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.logger.Warn("folders of old jobs are left", slog.Any("error", err))
		}
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && !known(e.Name()) && now.Sub(info.ModTime()) > leftFor {
			s.tidy(e.Name())
		}
	}
}
