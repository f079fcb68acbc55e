package jobfile

// A glob finds what filepath.Glob finds, and gives up where it would search too much.

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"headroom/internal/testkit"
)

func expanded(pattern string, most int) (names []string, err error) {
	w := walk{most: most, each: func(name string) error { names = append(names, name); return nil }}
	return names, w.below("/", strings.Split(strings.TrimPrefix(pattern, "/"), "/"))
}

func TestGlobIsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a/b/c", "a/bb/c", "a/x", "b/b/c1", "b/[b", "c", "ab/b/c"} {
		testkit.Check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		testkit.WriteFile(t, filepath.Join(dir, name), name)
	}
	testkit.Check(t, os.Symlink("a", filepath.Join(dir, "link")))
	testkit.Check(t, os.Symlink("nothing", filepath.Join(dir, "dangling")))
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"*", "a", "b", "?", "[a-b]", "a*", `\[b`, "c*", "link", "dangling", "missing"}), 1, 4).Draw(t, "parts")
		pattern := filepath.Join(append([]string{dir}, parts...)...)
		var got []string
		if err := glob(pattern, func(name string) error { got = append(got, name); return nil }); err != nil {
			t.Fatal(err)
		}
		if want, err := filepath.Glob(pattern); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q (%v)", pattern, got, want, err)
		}
	})
}

func TestGlobIsBounded(t *testing.T) {
	t.Parallel()
	if err := glob(strings.Repeat("/*", wildMax+1), nil); !errors.Is(err, errTooWide) {
		t.Errorf("%d levels: %v", wildMax+1, err)
	}
	if err := glob("/[", nil); !errors.Is(err, filepath.ErrBadPattern) {
		t.Errorf("a bad pattern: %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		testkit.Check(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		testkit.WriteFile(t, filepath.Join(dir, name, "file"), "")
	}
	if names, err := expanded(dir+"/*/*", 6); len(names) != 3 || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := expanded(dir+"/*/none", 2); !errors.Is(err, errTooWide) {
		t.Errorf("%v", err)
	}
	stop := errors.New("stop")
	if err := glob(dir+"/*/*", func(string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("does not end with its reader: %v", err)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "a.txt"), "12345")
	testkit.Check(t, os.Mkdir(filepath.Join(dir, "b.txt"), 0o755))
	testkit.Check(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	job := func(rest string) *File {
		return testkit.Need(Parse(filepath.Join(dir, "job.yaml"), []byte("name: j\nclass: low\nslots: 1\noutput: out\n"+rest), nil))(t)
	}
	f := job(`map: {input: "*.txt", command: [cat]}`)
	found, err := f.Find()
	if err != nil || !slices.Equal(found.Inputs, []string{filepath.Join(dir, "a.txt")}) || !slices.Equal(found.Sizes, []int64{5}) || f.Check(found) != nil {
		t.Errorf("%+v, %v", found, err)
	}
	for rest, want := range map[string]string{
		`map: {input: "pi*", command: [cat]}`:        "is not a regular file",
		`map: {input: "*.txt", command: [./gone]}`:   "program cannot be run",
		`map: {tasks: 2, command: [./a.txt]}`:        "program cannot be run",
		`map: {input: "*.doc", command: [cat]}`:      "no file matches",
		`map: {input: "a.txt", command: [/bin/cat]}`: "",
	} {
		if _, err := job(rest).Find(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rest, err, want)
		}
	}
	for name, bad := range map[string]Found{
		"another folder":  {Inputs: []string{"/etc/a.txt"}},
		"relative":        {Inputs: []string{"a.txt"}},
		"too few sizes":   {Inputs: found.Inputs, Sizes: []int64{1, 2}},
		"too many":        {Inputs: slices.Repeat(found.Inputs, tasksMax+1)},
		"not a file name": {Inputs: []string{filepath.Join(dir, "\xff.txt")}},
	} {
		if f.Check(bad) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
