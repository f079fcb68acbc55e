package emulator

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// replace writes a file beside path and renames it into place. It is no record
// that must survive a power failure, so nothing is synced.
func replace(path string, content []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return fmt.Errorf("emulator: write %s: %w", path, err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("emulator: write %s: %w", path, err)
	}
	return nil
}

// swapSize is the constant size of a swapped file: readers of an exchanged file
// never meet a shorter one. A view takes about 300 bytes.
const swapSize = 512

// swap replaces a small file ten times a second without making a new one each
// time: two files change names, the hidden one is written. Making and renaming
// costs ten times as much on a journalling file system.
type swap struct {
	path   string
	shown  *os.File
	hidden *os.File
}

// newSwap makes the file and its hidden twin, both holding content.
func newSwap(path string, content []byte) (*swap, error) {
	s := &swap{path: path}
	var err error
	for _, part := range []struct {
		name string
		file **os.File
	}{{path, &s.shown}, {path + ".next", &s.hidden}} {
		_ = os.Remove(part.name) // perhaps still read by a process that has the old one open
		if *part.file, err = os.OpenFile(part.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
			return nil, errors.Join(fmt.Errorf("emulator: make %s: %w", path, err), s.close())
		}
		if err := writePadded(*part.file, content); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// put makes content, which is text and may be padded with blanks, what readers
// of path see: all of the old or all of the new.
func (s *swap) put(content []byte) error {
	if err := writePadded(s.hidden, content); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, s.path+".next", unix.AT_FDCWD, s.path, unix.RENAME_EXCHANGE)
	if err != nil {
		return replace(s.path, content) // a file system without exchange
	}
	s.shown, s.hidden = s.hidden, s.shown
	return nil
}

func (s *swap) close() error {
	var errs []error
	for _, f := range []*os.File{s.shown, s.hidden} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	_ = os.Remove(s.path + ".next")
	return errors.Join(errs...)
}

// writePadded writes content, blanks up to swapSize and a line break at once.
func writePadded(f *os.File, content []byte) error {
	page := make([]byte, 0, swapSize)
	page = append(page, content...)
	for len(page) < swapSize-1 {
		page = append(page, ' ')
	}
	if _, err := f.WriteAt(append(page, '\n'), 0); err != nil {
		return fmt.Errorf("emulator: write %s: %w", f.Name(), err)
	}
	return nil
}
