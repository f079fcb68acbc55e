package jobfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of a glob. They bound how long it takes and what it takes of memory.
const (
	// wildMax is how many levels of a glob may have wildcards: each multiplies what is searched.
	wildMax = 8
	// seenMax is how many names of files and folders a glob may look at.
	seenMax = 500_000
	// seenAtOnce is how many names are read from a folder at once.
	seenAtOnce = 1024
)

var errTooWide = errors.New("too many files to search")

// walk is the expansion of one glob.
type walk struct {
	seen, most int // names
	// each is called for every name that matches; an error ends the walk.
	each func(name string) error
}

// glob calls each for every name that matches an absolute pattern, in the order of filepath.Glob, and keeps none of
// them. It is filepath.Glob with bounds.
func glob(pattern string, each func(name string) error) error {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return err
	}
	parts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	wild := 0
	for _, p := range parts {
		if wildcard(p) {
			wild++
		}
	}
	if wild > wildMax {
		return fmt.Errorf("%w: %d levels have wildcards; the maximum is %d", errTooWide, wild, wildMax)
	}
	return (&walk{most: seenMax, each: each}).below("/", parts)
}

func wildcard(part string) bool { return strings.ContainsAny(part, `*?[\`) }

// below matches the rest of a pattern below a folder that exists.
func (w *walk) below(dir string, parts []string) error {
	for len(parts) > 0 && !wildcard(parts[0]) {
		dir, parts = filepath.Join(dir, parts[0]), parts[1:]
	}
	if len(parts) == 0 {
		if _, err := os.Lstat(dir); err != nil {
			return nil //nolint:nilerr // what is missing does not match
		}
		return w.each(dir)
	}
	names, err := w.matches(dir, parts[0])
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.below(filepath.Join(dir, name), parts[1:]); err != nil {
			return err
		}
	}
	return nil
}

// matches returns the names in a folder that match, sorted; none for what is not a folder or cannot be read.
func (w *walk) matches(dir, pattern string) (names []string, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, nil //nolint:nilerr // as filepath.Glob
	}
	defer f.Close() //nolint:errcheck // only read
	for {
		some, err := f.Readdirnames(seenAtOnce)
		if w.seen += len(some); w.seen > w.most {
			return nil, fmt.Errorf("%w: more than %d", errTooWide, w.most)
		}
		for _, name := range some {
			if ok, err := filepath.Match(pattern, name); err != nil {
				return nil, err
			} else if ok {
				names = append(names, name)
			}
		}
		if errors.Is(err, io.EOF) || (err == nil && len(some) == 0) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, nil //nolint:nilerr // as filepath.Glob
		}
	}
}
