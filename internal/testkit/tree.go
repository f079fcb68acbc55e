package testkit

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tree lists the files below dir for a golden: of each its mode and the first line, which
// show may change; of each link its target, which must be there. What skip picks is left out.
func Tree(tb testing.TB, dir string, skip func(name string) bool, show func(line string) string) string {
	tb.Helper()
	var b strings.Builder
	Check(tb, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || skip(name) {
			return err
		}
		path := filepath.Join(dir, name)
		if d.Type() == fs.ModeSymlink {
			if _, err := os.Stat(path); err != nil {
				tb.Errorf("%s leads nowhere: %v", name, err)
			}
			target, err := os.Readlink(path)
			fmt.Fprintf(&b, "%s -> %s\n", name, target)
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		line, _, _ := strings.Cut(string(text), "\n")
		fmt.Fprintf(&b, "%s %04o %s\n", name, info.Mode().Perm(), show(line))
		return err
	}))
	return b.String()
}
