package local

// A worker's folder is its own: what somebody else can have put there is not read.

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

func TestFolderOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		testkit.Check(t, os.Mkdir(p, 0o700))
		testkit.Check(t, os.Chmod(p, mode))
		return p
	}
	link := filepath.Join(dir, "link")
	testkit.Check(t, os.Symlink(path("aim", 0o700), link))
	tmp := path("tmp", 0o700)
	testkit.Check(t, os.Mkdir(filepath.Join(tmp, "tmp"), 0o700))
	testkit.Check(t, os.Chmod(filepath.Join(tmp, "tmp"), 0o777))
	cases := map[string]struct{ dir, want string }{
		"own":             {path("own", 0o750), ""},
		"new":             {filepath.Join(dir, "some", "where"), ""},
		"none":            {"", "no folder is named"},
		"for all":         {path("all", 0o777|os.ModeSticky), "can be written by other users (mode 0777)"},
		"for its group":   {path("group", 0o770), "can be written by other users"},
		"link":            {link, "is not a folder"},
		"writable within": {tmp, "can be written by other users"},
	}
	if os.Getuid() == 0 {
		foreign := path("foreign", 0o755)
		testkit.Check(t, os.Chown(foreign, 64010, 64010))
		cases["foreign"] = struct{ dir, want string }{foreign, "belongs to another user"}
	}
	for name, c := range cases {
		_, err := New(Config{Node: "n01", Dir: c.dir, Slots: 1, Logger: slog.New(slog.DiscardHandler)})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
