package scheduler

// Folders of Spark's jobs go with the jobs that are listed no more, and nothing else does.

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobdir"
)

// jobFolder makes the folder of a job, last touched then.
func jobFolder(t *testing.T, folders jobFolders, id string, touched time.Time) string {
	t.Helper()
	f := jobdir.Folder{Output: folders.spark, ID: id}
	testkit.Check(t, os.MkdirAll(f.Path("run-1"), 0o750))
	testkit.Check(t, folders.lists.Write(id, jobdir.Inputs{}))
	testkit.Check(t, os.Chtimes(filepath.Join(folders.lists.Dir, id+".json"), touched, touched))
	testkit.Check(t, os.Chtimes(f.Path(""), touched, touched))
	return f.Path("")
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A folder is removed when the core forgets its job; those of listed jobs stay.
func TestForgottenJobsLeaveNoFolder(t *testing.T) {
	t.Parallel()
	folders := testkit.Need(openFolders(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	queue := testkit.Need(buffers.New(buffers.Settings{Discipline: buffers.NP, Width: 1, Classes: []buffers.Class{{Name: "low"}}}))(t)
	l := &loop{Server: &Server{folders: folders}, core: dispatch.New(queue, 1, draws), records: map[string]*record{}}
	now := time.Now()
	old, listed := jobFolder(t, folders, "old", now), jobFolder(t, folders, "listed", now)
	for _, id := range []string{"old", "listed", "local"} {
		l.records[id] = &record{}
	}
	l.core.AddEnded(dispatch.Plan{ID: "listed"}, dispatch.Done, "", 1, 0, time.Second)
	l.forget()
	if there(old) || !there(listed) || len(l.records) != 1 {
		t.Errorf("old is there: %v, listed: %v, records %v", there(old), there(listed), l.records)
	}
}

// At the start only folders and lists go that no job in the log needs and that were left alone for a day.
func TestLeftFoldersGoAtTheStart(t *testing.T) {
	t.Parallel()
	folders := testkit.Need(openFolders(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	now := time.Now()
	folders.removeLeft(now, func(string) bool { return false }) // there is no folder yet
	long := now.Add(-leftFor - time.Minute)
	left, fresh, known := jobFolder(t, folders, "left", long), jobFolder(t, folders, "fresh", now), jobFolder(t, folders, "known", long)
	folders.removeLeft(now, func(id string) bool { return id == "known" })
	for id, want := range map[string]bool{left: false, fresh: true, known: true} {
		list := filepath.Join(folders.lists.Dir, filepath.Base(id)+".json")
		if there(id) != want || there(list) != want {
			t.Errorf("%s is there: %v, its list: %v", id, there(id), there(list))
		}
	}
}
