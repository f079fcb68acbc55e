// Claims: Files keeps no descriptor of what it does not have to keep, and never leaves its
// root; what is kept is used by whoever opens it, and follows a file that was made anew.
package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"headroom/internal/testkit"
	"headroom/rapl/sysfs"
)

func filesWith(t *testing.T, content map[string]string) (*os.Root, *sysfs.Files) {
	t.Helper()
	root := rootWith(t, content)
	f := testkit.Need(sysfs.NewFiles(root))(t)
	t.Cleanup(func() { _ = f.Close() })
	return root, f
}

// namesOf counts the descriptors of this process that lead to a file.
func namesOf(t *testing.T, path string) (n int) {
	t.Helper()
	all := testkit.Need(os.ReadDir("/proc/self/fd"))(t)
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

func TestFilesKeepsNoDescriptor(t *testing.T) {
	t.Parallel()
	root, f := filesWith(t, map[string]string{"a/limit": "100\n"})
	path := filepath.Join(root.Name(), "a/limit")
	c := testkit.Need(sysfs.NewControl("a/limit", f.Open))(t)
	for i, kept := range []bool{false, true, false} {
		if kept {
			testkit.Check(t, f.Keep("a/limit"))
		} else {
			f.Drop("a/limit")
		}
		want := int64(200 + i)
		if got, err := c.Write(want); err != nil || got != want {
			t.Errorf("wrote %d, reads %d, %v", want, got, err)
		}
		if v, err := f.ReadInt("a/limit"); err != nil || v != want {
			t.Errorf("another reads %d, %v", v, err)
		}
		if n := namesOf(t, path); n != f.Kept() || (n == 1) != kept {
			t.Errorf("kept %v: %d descriptors, %d counted", kept, n, f.Kept())
		}
	}
	testkit.Check(t, c.Close())
	if _, err := c.Read(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed control reads: %v", err)
	}
}

func TestFilesStaysBelowItsRoot(t *testing.T) {
	t.Parallel()
	root, f := filesWith(t, map[string]string{"x": "1\n", "d/y": "2\n"})
	outside := filepath.Join(t.TempDir(), "secret")
	testkit.Check(t, os.WriteFile(outside, []byte("5\n"), 0o600))
	testkit.Check(t, os.Symlink(outside, filepath.Join(root.Name(), "link")))
	testkit.Check(t, os.Symlink("../x", filepath.Join(root.Name(), "d", "inside")))
	for _, path := range []string{"link", "../" + filepath.Base(root.Name()) + "/x", outside} {
		if v, err := f.ReadInt(path); err == nil {
			t.Errorf("%s read as %d from outside the root", path, v)
		}
		if err := f.Keep(path); err == nil {
			t.Errorf("%s is kept from outside the root", path)
		}
	}
	if v, err := f.ReadInt("d/inside"); err != nil || v != 1 {
		t.Errorf("a link inside the root reads %d, %v", v, err)
	}
	if _, err := f.Open("none", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened for writing: %v", err)
	}
	if r := testkit.Need(f.Open("x", false))(t); r != nil {
		if _, err := r.Pwrite([]byte("9\n")); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("written through a file for reading: %v", err)
		}
	}
}
