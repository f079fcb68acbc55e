package traces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// known is one trace of a folder.
type known struct {
	name, path string
	swim       bool
}

// layout is where a folder has which trace.
func layout() []known {
	all := []known{
		{name: "google", path: "hawk-format/GOOG_subtrace.tr"},
		{name: "yahoo1", path: "hawk-format/YH1_sub.tr"},
		{name: "yahoo2", path: "hawk-format/YH2_sub.tr"},
		{name: "facebook2009", path: "swim/FB-2009_samples_24_times_1hr_0.tsv", swim: true},
		{name: "facebook2009b", path: "swim/FB-2009_samples_24_times_1hr_1.tsv", swim: true},
		{name: "facebook2010", path: "swim/FB-2010_samples_24_times_1hr_0.tsv", swim: true},
	}
	for _, load := range []string{"50", "60", "70", "80", "90"} {
		all = append(all, known{name: "pigeon-google" + load, path: "pigeon/NGO_trace" + load})
	}
	for _, load := range []string{"50", "70", "90"} {
		all = append(all, known{name: "pigeon-yahoo" + load, path: "pigeon/NYH_trace" + load})
	}
	return all
}

// names returns the traces that a folder may have.
func names() (names []string) {
	for _, k := range layout() {
		names = append(names, k.name)
	}
	return names
}

// errUnknown is the name of a trace that no folder has.
var errUnknown = errors.New("traces: unknown trace")

// File is a trace of a folder, open for reading. Its name is the path in errors.
type File struct {
	*os.File

	// Swim reports whether Volumes reads it; Tasks does otherwise.
	Swim bool
}

// Open opens a trace of a folder that is laid out as layout. The error is fs.ErrNotExist where the folder does not have it.
func Open(dir, name string) (*File, error) {
	for _, k := range layout() {
		if k.name != name {
			continue
		}
		f, err := os.Open(filepath.Join(dir, filepath.FromSlash(k.path)))
		if err != nil {
			return nil, err
		}
		return &File{File: f, Swim: k.swim}, nil
	}
	return nil, fmt.Errorf("%w %q: must be one of %s", errUnknown, name, strings.Join(names(), ", "))
}

// CheckDir reports what is wrong with a folder: it is none, or has none of the traces.
func CheckDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s: not a folder", dir)
	}
	var paths []string
	for _, k := range layout() {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(k.path)))
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		paths = append(paths, k.path)
	}
	return fmt.Errorf("%s: none of %s: %w", dir, strings.Join(paths, ", "), fs.ErrNotExist)
}
