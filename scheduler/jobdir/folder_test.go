// Claims: whatever a task puts into its job's folder or in its place, nothing outside is touched, nothing blocks, and a
// list of inputs is believed only with its digest; what was written is there after a power cut; submissions at the same
// time that share a folder do not refuse each other.
package jobdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"headroom/internal/durable"
	"headroom/internal/durable/durabletest"
	"headroom/internal/testkit"
)

func opened(t *testing.T, f Folder) *Dir {
	t.Helper()
	d := testkit.Need(Make(f))(t)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// within fails the test if f blocks: a pipe that a task has made must hold nobody up.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s blocks", what)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(testkit.Need(os.ReadFile(path))(t))
}

var sample = Inputs{Names: []string{"/in/a", "/in/b"}, Sizes: []int64{7, 0}}

// What stands in the place of the scheduler's files is refused, at once: pipes, links, folders, huge and torn files,
// and files of other users.
func TestForeignFilesInAFolder(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	testkit.WriteFile(t, outside, "precious")
	for name, put := range map[string]func(t *testing.T, at string){
		"pipe":     func(t *testing.T, at string) { testkit.Check(t, syscall.Mkfifo(at, 0o666)) },
		"link":     func(t *testing.T, at string) { testkit.Check(t, os.Symlink(outside, at)) },
		"dangling": func(t *testing.T, at string) { testkit.Check(t, os.Symlink("nowhere", at)) },
		"folder":   func(t *testing.T, at string) { testkit.Check(t, os.Mkdir(at, 0o750)) },
		"torn":     func(t *testing.T, at string) { testkit.WriteFile(t, at, `{"id":"j-1","inputs":["/in/a"`) },
		"another list": func(t *testing.T, at string) {
			testkit.WriteFile(t, at, `{"id":"j-1","inputs":["/etc/shadow"],"sizes":[1]}`)
		},
		"huge": func(t *testing.T, at string) {
			testkit.WriteFile(t, at, "")
			testkit.Check(t, os.Truncate(at, listMost+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := Folder{Output: t.TempDir(), ID: "j-1"}
			d := opened(t, f)
			put(t, f.Path(listName))
			put(t, f.Path("dropped"))
			within(t, "reading", func() {
				if x, err := d.ReadList(sample.Digest()); err == nil {
					t.Errorf("believed %+v", x)
				}
			})
			within(t, "the account", func() { _ = d.Account(1, DroppedTask{Index: 1}) })
			within(t, "writing the list", func() { _ = d.WriteList(sample) })
			if got := read(t, outside); got != "precious" {
				t.Errorf("outside the folder now: %q", got)
			}
		})
	}
}

// A folder that was moved away and replaced, by a link or by another folder, is not opened; what was opened before
// stays the old one.
func TestFolderReplaced(t *testing.T) {
	t.Parallel()
	output := t.TempDir()
	f, other := Folder{Output: output, ID: "j-1"}, Folder{Output: t.TempDir(), ID: "of-bob"}
	d := opened(t, f)
	opened(t, other)
	for _, name := range []string{"map-00000", "result", "dropped", ".result.0000000a.part"} {
		testkit.WriteFile(t, other.Path(name), "bob's")
	}
	testkit.Check(t, os.Rename(f.Path(""), filepath.Join(output, "gone")))
	testkit.Check(t, os.Symlink(other.Path(""), filepath.Join(output, "j-1")))
	if _, err := Make(f); !errors.Is(err, errReplaced) {
		t.Errorf("opened a link: %v", err)
	}
	testkit.Check(t, d.Discard(1, 1))
	testkit.Check(t, d.Tidy(1, 1))
	testkit.Check(t, d.WriteList(sample))
	testkit.Check(t, d.Publish(1, func(string) bool { return false }))
	var left []string
	for _, e := range testkit.Need(os.ReadDir(other.Path("")))(t) {
		left = append(left, e.Name())
	}
	if want := []string{".result.0000000a.part", "dropped", "map-00000", "result"}; !slices.Equal(left, want) {
		t.Errorf("bob's folder has %q, want %q", left, want)
	}
	if _, err := os.Stat(filepath.Join(output, "gone", listName)); err != nil {
		t.Error("the handle does not lead to the job's own folder")
	}
}

// Links on the way to an output folder count if root or the scheduler made them, and not if another user did.
func TestLinksToOutputs(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	testkit.Check(t, os.Mkdir(filepath.Join(base, "real"), 0o750))
	testkit.Check(t, os.Symlink("real", filepath.Join(base, "data")))
	testkit.Check(t, os.Symlink("round", filepath.Join(base, "round")))
	d := opened(t, Folder{Output: filepath.Join(base, "data", "new", "out"), ID: "j-1"})
	testkit.Check(t, d.WriteList(sample))
	if _, err := os.Stat(filepath.Join(base, "real", "new", "out", "j-1", listName)); err != nil {
		t.Error(err)
	}
	if _, err := Make(Folder{Output: filepath.Join(base, "round", "out"), ID: "j-1"}); err == nil {
		t.Error("a link to itself was followed")
	}
	if os.Geteuid() != 0 {
		t.Skip("not run: only root can make a link of another user")
	}
	testkit.Check(t, os.Lchown(filepath.Join(base, "data"), 64010, 64010))
	if _, err := Make(Folder{Output: filepath.Join(base, "data", "out"), ID: "j-1"}); err == nil || !strings.Contains(err.Error(), "link of another user") {
		t.Errorf("a link of another user: %v", err)
	}
	testkit.Check(t, os.Lchown(filepath.Join(base, "real", "new", "out", "j-1"), 64010, 64010))
	if _, err := Make(Folder{Output: filepath.Join(base, "real", "new", "out"), ID: "j-1"}); !errors.Is(err, errReplaced) {
		t.Errorf("a folder of another user: %v", err)
	}
}

// A crash tears a line of the account; the next line is still whole.
func TestAccountAfterATornLine(t *testing.T) {
	t.Parallel()
	f := Folder{Output: t.TempDir(), ID: "j-1"}
	d := opened(t, f)
	testkit.Check(t, d.Account(1, DroppedTask{Index: 1, Reason: "x"}))
	at := testkit.Need(os.OpenFile(f.Path("dropped"), os.O_APPEND|os.O_WRONLY, 0))(t)
	testkit.Need(at.WriteString(`{"index":2,"rea`))(t)
	testkit.Check(t, at.Close())
	testkit.Check(t, d.Account(1, DroppedTask{Index: 3, Reason: "x"}))
	if got, want := read(t, f.Path("dropped")), `{"index":1,"reason":"x"}`+"\n"+`{"index":2,"rea`+"\n"+`{"index":3,"reason":"x"}`+"\n"; got != want {
		t.Errorf("account:\n%s\nwant:\n%s", got, want)
	}
}

// The list in the folder is believed with the committed digest, and every difference changes that.
func TestListsAreBelievedByDigest(t *testing.T) {
	t.Parallel()
	d := opened(t, Folder{Output: t.TempDir(), ID: "j-1"})
	testkit.Check(t, d.WriteList(sample))
	if x, err := d.ReadList(sample.Digest()); err != nil || !slices.Equal(x.Names, sample.Names) || !slices.Equal(x.Sizes, sample.Sizes) {
		t.Errorf("read %+v, %v", x, err)
	}
	for name, x := range map[string]Inputs{
		"order":  {Names: []string{"/in/b", "/in/a"}, Sizes: []int64{0, 7}},
		"size":   {Names: []string{"/in/a", "/in/b"}, Sizes: []int64{7, 1}},
		"fewer":  {Names: []string{"/in/a"}, Sizes: []int64{7}},
		"joined": {Names: []string{"/in/a/in/b"}, Sizes: []int64{7}},
	} {
		if _, err := d.ReadList(x.Digest()); err == nil {
			t.Errorf("%s: two lists have one digest", name)
		}
	}
}

// The link to a result is replaced only if it is the scheduler's, to a job of the same user.
func TestPublish(t *testing.T) {
	t.Parallel()
	output := t.TempDir()
	nobody := func(string) bool { return false }
	one, two := opened(t, Folder{Output: output, ID: "one"}), opened(t, Folder{Output: output, ID: "two"})
	testkit.Check(t, one.Publish(1, nobody))
	testkit.Check(t, two.Publish(3, nobody))
	link := filepath.Join(output, "result")
	if got := testkit.Need(os.Readlink(link))(t); got != "two/run-3/result" {
		t.Errorf("linked to %s", got)
	}
	if err := one.Publish(1, func(job string) bool { return job == "two" }); err == nil {
		t.Error("the link to another user's result was replaced")
	}
	testkit.Check(t, os.Remove(link))
	testkit.WriteFile(t, link, "mine")
	if err := one.Publish(1, nobody); err == nil || read(t, link) != "mine" {
		t.Errorf("a foreign file was replaced: %v", err)
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
				d, err := Make(f)
				if err == nil {
					err = errors.Join(d.TakeBack(), d.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			opened(t, f)
		})
	}
	all.Wait()
	if got := testkit.Need(os.ReadDir(output))(t); len(got) != 8 {
		t.Errorf("%d folders, want 8", len(got))
	}
	d := opened(t, Folder{Output: output, ID: "j8"})
	testkit.WriteFile(t, filepath.Join(output, "j8", "by-somebody-else"), "")
	if d.TakeBack() == nil {
		t.Error("a job's own folder with a file in it was taken back")
	}
}

// A file in the place of a folder is an error, at once.
func TestNoFolderOverAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	testkit.WriteFile(t, path, "")
	if _, err := Make(Folder{Output: filepath.Join(path, "jobs"), ID: "j"}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a folder below a file: %v", err)
	}
}

// Tidying takes the unfinished outputs of tasks, and nothing else; discarding takes what a killed run has left.
func TestTidyAndDiscard(t *testing.T) {
	t.Parallel()
	for _, run := range []uint32{1, 2} {
		f := Folder{Output: t.TempDir(), ID: "words-1", Run: run}
		d := opened(t, f)
		testkit.Check(t, d.MakeRun(run))
		keep := []string{".map-00001.txt", ".part", "dropped", "map-00000", "map-00001.0000000a.part", "result"}
		for _, name := range append([]string{".map-00000.0000000a.part", ".map-00001.0001f00b.part", ".result.00020001.part"}, keep...) {
			testkit.WriteFile(t, f.Path(f.OfRun(name)), "x")
		}
		if done, reduced := d.Finished(run, 2); !slices.Equal(done, []int{0}) || !reduced {
			t.Errorf("run %d: finished %v, %t", run, done, reduced)
		}
		testkit.Check(t, d.Tidy(run, 2))
		var left []string
		for _, e := range testkit.Need(os.ReadDir(f.Path(f.OfRun(""))))(t) {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, keep) {
			t.Errorf("run %d: left %q, want %q", run, left, keep)
		}
		testkit.Check(t, d.Discard(run, 2))
		if done, reduced := d.Finished(run, 2); len(done) > 0 || reduced {
			t.Errorf("run %d: after discarding %v, %t", run, done, reduced)
		}
	}
}

// Wherever the power is cut, the scheduler's own list is the old one or the new one, and the new one once it was stored.
func TestListsSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	before, after := Inputs{Names: []string{"/in/a"}, Sizes: []int64{1}}, sample
	durabletest.EachCut(func() *durabletest.Disk {
		disk := durabletest.New()
		testkit.Check(t, Lists{Dir: "/lists", FS: disk}.Write("j-1", before))
		return disk
	}, func(disk durable.FS) error {
		return Lists{Dir: "/lists", FS: disk}.Write("j-1", after)
	}, func(disk durable.FS, done bool) {
		x, err := Lists{Dir: "/lists", FS: disk}.Read("j-1")
		if err != nil || !slices.Equal(x.Names, after.Names) && (done || !slices.Equal(x.Names, before.Names)) {
			t.Errorf("stored %t: read %+v, %v", done, x, err)
		}
	})
}
