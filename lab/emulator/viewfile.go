package emulator

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// viewSize is the constant size of run/plant.json: a reader that has it open never meets a shorter one.
const viewSize = 512

// viewFile is run/plant.json and its hidden twin, which is written; then they change names. So a reader sees all of
// one view. Making a file ten times a second would cost ten times as much on a journalling file system.
type viewFile struct {
	path          string
	shown, hidden *os.File
}

func openView(path string) (f *viewFile, err error) {
	f = &viewFile{path: path}
	for name, file := range map[string]**os.File{path: &f.shown, path + ".next": &f.hidden} {
		_ = os.Remove(name) // perhaps still read by a process that has the old one open
		if *file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// put shows a text instead of the one before.
func (f *viewFile) put(text []byte) error {
	if _, err := fmt.Fprintf(io.NewOffsetWriter(f.hidden, 0), "%-*s\n", viewSize-1, text); err != nil {
		return err
	}
	if unix.Renameat2(unix.AT_FDCWD, f.path+".next", unix.AT_FDCWD, f.path, unix.RENAME_EXCHANGE) != nil {
		return renameio.WriteFile(f.path, text, 0o644) // a file system where files cannot change names
	}
	f.shown, f.hidden = f.hidden, f.shown
	return nil
}

// Close closes both files and removes the hidden one. Of nil it does nothing.
func (f *viewFile) Close() (err error) {
	if f == nil {
		return nil
	}
	for _, file := range []*os.File{f.shown, f.hidden} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	_ = os.Remove(f.path + ".next")
	return err
}
