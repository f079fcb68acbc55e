package jobfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Limits of a glob: wildMax is how many of its levels may have wildcards, because each multiplies what is searched;
// seenMax is how many names it may look at.
const (
	wildMax = 8
	seenMax = 500_000
)

var errTooWide = errors.New("too many files to search")

// walk is the expansion of one glob. An error of each ends it.
type walk struct {
	seen, most int // names
	each       func(name string) error
}

// glob is filepath.Glob of an absolute pattern, with bounds and without a list.
func glob(pattern string, each func(name string) error) error {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return err
	}
	parts := strings.Split(pattern[1:], "/")
	if wild := len(slices.DeleteFunc(slices.Clone(parts), literal)); wild > wildMax {
		return fmt.Errorf("%w: %d levels have wildcards; the maximum is %d", errTooWide, wild, wildMax)
	}
	return (&walk{most: seenMax, each: each}).below("/", parts)
}

func literal(part string) bool { return !strings.ContainsAny(part, `*?[\`) }

// below matches the rest of a pattern below a folder.
func (w *walk) below(dir string, parts []string) error {
	for len(parts) > 0 && literal(parts[0]) {
		dir, parts = filepath.Join(dir, parts[0]), parts[1:]
	}
	if len(parts) == 0 {
		if _, err := os.Lstat(dir); err != nil {
			return nil //nolint:nilerr // what is missing does not match
		}
		return w.each(dir)
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil //nolint:nilerr // as filepath.Glob
	}
	names, _ := f.Readdirnames(w.most - w.seen + 1)
	_ = f.Close() // only read
	if w.seen += len(names); w.seen > w.most {
		return fmt.Errorf("%w: more than %d", errTooWide, w.most)
	}
	slices.Sort(names)
	for _, name := range names {
		if ok, _ := filepath.Match(parts[0], name); !ok {
			continue
		}
		if err := w.below(filepath.Join(dir, name), parts[1:]); err != nil {
			return err
		}
	}
	return nil
}
