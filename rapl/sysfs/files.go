package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Files opens the attributes below one root without keeping a descriptor for each: every use
// opens the attribute and closes it again. Only a path that Keep names stays open, for reading
// and writing, and whoever opens it uses that descriptor. It is for one goroutine at a time.
//
// It holds a few spare descriptors. Where the process has none left, spares are given up for
// as long as one use lasts: originals go back then too. Nothing else is kept for that,
// because descriptors of every file that may have to go back would be several for a policy.
type Files struct {
	root  *os.Root
	top   *os.File // the root itself
	kept  map[string]int
	spare []int
}

// spares is how many descriptors are held back: openSlow needs three at a time, and others
// may come first.
const spares = 8

// NewFiles opens a root. Close it before the root.
func NewFiles(root *os.Root) (*Files, error) {
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	f := &Files{root: root, top: top, kept: map[string]int{}}
	f.refill()
	return f, nil
}

// Root is the root of the files.
func (f *Files) Root() *os.Root { return f.root }

// Kept is how many attributes stay open.
func (f *Files) Kept() int { return len(f.kept) }

// Keep opens the attribute at path for reading and writing, and keeps it open until Drop.
func (f *Files) Keep(path string) error {
	fd, err := f.descriptor(path, true)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	f.Drop(path)
	f.kept[path] = fd
	return nil
}

// Drop closes an attribute that was kept.
func (f *Files) Drop(path string) {
	if fd, ok := f.kept[path]; ok {
		_ = unix.Close(fd) // nothing of it is buffered
		delete(f.kept, path)
	}
}

// Open is an Opener. A file for reading is not looked for before it is read. One for writing
// must be there and must let itself be written, now.
func (f *Files) Open(path string, write bool) (File, error) {
	var err error
	if fd, kept := f.kept[path]; kept && !present(fd) {
		err = f.Keep(path)
	} else if !kept && write {
		err = f.try(path)
	}
	if err != nil {
		return nil, err
	}
	return &visit{files: f, path: path, write: write}, nil
}

// ReadInt opens, reads and closes the attribute at path.
func (f *Files) ReadInt(path string) (int64, error) { return Opener(f.Open).ReadInt(path) }

// try opens a file for writing, and closes it.
func (f *Files) try(path string) error {
	fd, err := f.descriptor(path, true)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	f.leave(fd)
	return nil
}

// present reports whether the device behind a descriptor has not gone away: if it did, it
// may be back under the same path.
func present(fd int) bool {
	var b [1]byte
	_, err := pread(fd, b[:])
	return !errors.Is(err, unix.ENODEV)
}

// Close closes every descriptor. Nothing that was opened can be used any more.
func (f *Files) Close() error {
	for path := range f.kept {
		f.Drop(path)
	}
	f.giveUp(len(f.spare))
	return f.top.Close()
}

// Lend frees the spare descriptors until the function that it returns is called, for a use
// that opens files by itself.
func (f *Files) Lend() (takeBack func()) {
	f.giveUp(len(f.spare))
	return f.refill
}

func (f *Files) giveUp(n int) {
	for range n {
		last := len(f.spare) - 1
		_ = unix.Close(f.spare[last]) // a copy of top's
		f.spare = f.spare[:last]
	}
}

// refill takes the spare descriptors back, as many as there are to have.
func (f *Files) refill() {
	for len(f.spare) < spares {
		fd, err := unix.FcntlInt(f.top.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return
		}
		f.spare = append(f.spare, fd)
	}
}

// descriptor opens a file, on the room of spare descriptors where there is no other. Every
// one is given back with leave, unless it is kept.
func (f *Files) descriptor(path string, write bool) (int, error) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	if write {
		flags = unix.O_RDWR | unix.O_CLOEXEC
	}
	for {
		if fd, err := f.openat(path, flags); len(f.spare) == 0 || !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
			return fd, err
		}
		f.giveUp(1)
	}
}

// openat opens a file below the root by one call, which no link leads out of it. Kernels before 5.6
// do not have it, and filters of system calls may not know it.
func (f *Files) openat(path string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(f.top.Fd()), path, &how)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN):
			return f.openSlow(path, flags)
		default:
			return fd, err
		}
	}
}

func (f *Files) openSlow(path string, flags int) (int, error) {
	file, err := f.root.OpenFile(path, flags, 0)
	if err != nil {
		if bare, ok := errors.AsType[*os.PathError](err); ok {
			err = bare.Err
		}
		return -1, err
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return fd, errors.Join(err, file.Close())
}

// leave closes a descriptor after its use.
func (f *Files) leave(fd int) {
	_ = unix.Close(fd) // nothing of it is buffered
	f.refill()
}

// visit is a File that is opened for each use.
type visit struct {
	files         *Files
	path          string
	write, closed bool
}

func (v *visit) use(do func(fd int) (int, error)) (int, error) {
	if v.closed {
		return 0, fs.ErrClosed
	}
	if fd, kept := v.files.kept[v.path]; kept {
		return do(fd)
	}
	fd, err := v.files.descriptor(v.path, v.write)
	if err != nil {
		return 0, err
	}
	defer v.files.leave(fd)
	return do(fd)
}

// Pread reads the value from its beginning.
func (v *visit) Pread(buf []byte) (int, error) {
	return v.use(func(fd int) (int, error) { return pread(fd, buf) })
}

// Pwrite writes a new value.
func (v *visit) Pwrite(text []byte) (int, error) {
	if !v.write {
		return 0, fmt.Errorf("opened for reading: %w", fs.ErrPermission)
	}
	return v.use(func(fd int) (int, error) { return pwrite(fd, text) })
}

// Close ends the use; what is kept stays open.
func (v *visit) Close() error {
	if v.closed {
		return fs.ErrClosed
	}
	v.closed = true
	return nil
}
