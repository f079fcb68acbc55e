package scheduler

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
)

// The folders of Spark's jobs, DIR/jobs/ID, contain the output of their drivers. They are kept while the job is listed:
// until endedMax others have ended after it. Folders of an earlier scheduler process are removed at the start, once
// they have not changed for a day, because a submission whose answer was lost may be retried until then.
const leftFor = 24 * time.Hour

// jobFolders are the folders of jobs.
type jobFolders struct {
	// spark is the folder of Spark's jobs.
	spark  string
	logger *slog.Logger
}

// of returns the folder of a job's files: a Spark application has no output folder of its own.
func (f jobFolders) of(file *jobfile.File, id string) jobdir.Folder {
	if file.Spark != nil {
		return jobdir.Folder{Output: f.spark, ID: id}
	}
	return jobdir.Folder{Output: file.Output, ID: id}
}

// forget removes the records and folders of jobs that the core has forgotten.
func (l *loop) forget() {
	for id := range l.records {
		if !l.core.Knows(id) {
			delete(l.records, id)
			l.folders.remove(id)
		}
	}
}

// remove removes the folder of a Spark job that is no longer listed. Without a record of the job in it, the folder is
// not ours.
func (f jobFolders) remove(id string) {
	dir := jobdir.Folder{Output: f.spark, ID: id}
	m, err := dir.ReadManifest()
	if m == nil && err == nil {
		return // a job of our workers keeps its files with its output
	}
	if err == nil {
		err = os.RemoveAll(dir.Path(""))
	}
	if err != nil {
		f.logger.Warn("folder of an old job not removed", slog.String("job", id), slog.Any("error", err))
	}
}

// removeLeft removes old folders of jobs that are not among known.
func (f jobFolders) removeLeft(now time.Time, known func(id string) bool) {
	entries, err := os.ReadDir(f.spark)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.logger.Warn("folders of old jobs not removed", slog.Any("error", err))
		}
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && !known(e.Name()) && now.Sub(info.ModTime()) > leftFor {
			f.remove(e.Name())
		}
	}
}
