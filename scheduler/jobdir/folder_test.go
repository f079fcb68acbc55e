// Claims: what a task leaves beside the scheduler's own records holds no scheduler up;
// submissions at the same time that share a folder do not refuse each other.
package jobdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

func TestDropsAreNoFIFO(t *testing.T) {
	t.Parallel()
	f := Folder{Output: t.TempDir(), ID: "j1"}
	at := f.Path(f.OfRun("dropped"))
	testkit.Check(t, os.MkdirAll(filepath.Dir(at), 0o750))
	testkit.Check(t, syscall.Mkfifo(at, 0o600))
	done := make(chan []int, 1)
	go func() {
		drops, _ := f.readDrops()
		done <- drops
	}()
	select {
	case drops := <-done:
		if len(drops) != 0 {
			t.Errorf("dropped %v", drops)
		}
	case <-time.After(30 * time.Second):
		t.Error("a FIFO holds the scheduler up")
		if w, err := os.OpenFile(at, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = w.Close() // let the goroutine go
		}
	}
}

func TestSubmissionsShareAFolder(t *testing.T) {
	t.Parallel()
	output := filepath.Join(t.TempDir(), "new", "jobs")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			f := Folder{Output: output, ID: fmt.Sprintf("j%d", i)}
			for range 50 { // as each submission does, to prove that its folder can be made
				made, err := MakeAll(f.Path(""))
				if err := errors.Join(err, TakeBack(f, made)); err != nil {
					t.Error(err)
					return
				}
			}
			if _, err := MakeAll(f.Path("")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := testkit.Need(os.ReadDir(output))(t); len(got) != 8 {
		t.Errorf("%d folders, want 8", len(got))
	}
	used := Folder{Output: output, ID: "j0"}
	testkit.WriteFile(t, used.Path("by-somebody-else"), "")
	if TakeBack(used, []string{used.Path("")}) == nil {
		t.Error("a job's own folder with a file in it was taken back")
	}
}

// A file in the place of a folder is an error, at once.
func TestNoFolderOverAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	testkit.WriteFile(t, path, "")
	if _, err := MakeAll(filepath.Join(path, "jobs")); err == nil {
		t.Error("a folder was made below a file")
	}
}

// Tidying takes the unfinished outputs of tasks, and nothing else.
func TestTidy(t *testing.T) {
	t.Parallel()
	for _, run := range []uint32{1, 2} {
		f := Folder{Output: t.TempDir(), ID: "words-1", Run: run}
		testkit.Need(MakeAll(f.Path(f.OfRun(""))))(t)
		keep := []string{".map-00001.txt", ".part", "dropped", "map-00000", "map-00001.0000000a.part", "result"}
		for _, name := range append([]string{".map-00000.0000000a.part", ".map-00001.0001f00b.part", ".result.00020001.part"}, keep...) {
			testkit.WriteFile(t, f.Path(f.OfRun(name)), "x")
		}
		testkit.Check(t, f.Tidy(2))
		var left []string
		for _, e := range testkit.Need(os.ReadDir(f.Path(f.OfRun(""))))(t) {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, keep) {
			t.Errorf("run %d: left %q, want %q", run, left, keep)
		}
		testkit.Check(t, Folder{Output: f.Output, ID: "gone"}.Tidy(2))
	}
}

// A job of 60000 tasks without files costs its record a few bytes, and comes back with all of them.
func TestTasksWithoutFiles(t *testing.T) {
	t.Parallel()
	f := Folder{Output: t.TempDir(), ID: "j1"}
	testkit.Check(t, os.MkdirAll(f.Path(""), 0o750))
	testkit.Check(t, f.WriteManifest(Manifest{ID: "j1", Inputs: make([]string, 60_000)}))
	info := testkit.Need(os.Stat(f.Path("job.json")))(t)
	m := testkit.Need(f.ReadManifest())(t)
	if len(m.Inputs) != 60_000 || info.Size() > 200 {
		t.Errorf("%d tasks in %d bytes", len(m.Inputs), info.Size())
	}
	testkit.WriteFile(t, f.Path("job.json"), `{"id": "j1", "tasks": 99999999999}`)
	if _, err := f.ReadManifest(); err == nil {
		t.Error("any number of tasks is believed")
	}
}
