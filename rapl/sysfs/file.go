package sysfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// File is what stands behind an attribute: a descriptor of the kernel's, a
// register that is shown as text, or a fault that a test wants to see.
type File interface {
	// Pread reads the value from its beginning and returns how many bytes of buf
	// it fills.
	Pread(buf []byte) (int, error)
	// Pwrite writes a new value and returns how many bytes of text were taken.
	Pwrite(text []byte) (int, error)
	// Close gives the file back. Reading and writing fail afterwards.
	Close() error
}

// Opener opens the file at path, for reading and writing when write is set, else for
// reading. A file that is not there gives fs.ErrNotExist.
type Opener func(path string, write bool) (File, error)

// Disk opens the files below root: what stands behind every attribute of a real
// machine. Files are opened O_RDONLY or O_RDWR, never created or truncated.
func Disk(root *os.Root) Opener {
	return func(path string, write bool) (File, error) {
		flag := os.O_RDONLY
		if write {
			flag = os.O_RDWR
		}
		f, err := root.OpenFile(path, flag, 0)
		if err != nil {
			return nil, err
		}
		return &descriptor{file: f, fd: int(f.Fd())}, nil
	}
}

// ReadInt opens, reads and closes the attribute at path.
func (open Opener) ReadInt(path string) (int64, error) {
	a, err := NewAttr(path, open)
	if err != nil {
		return 0, err
	}
	v, err := a.Int()
	return v, errors.Join(err, a.Close())
}

// ReadText opens, reads and closes the attribute at path.
func (open Opener) ReadText(path string) (string, error) {
	a, err := NewAttr(path, open)
	if err != nil {
		return "", err
	}
	v, err := a.Text()
	return v, errors.Join(err, a.Close())
}

// descriptor is a File of the kernel's. A closed one holds -1: a number kept
// after Close may already name another file.
type descriptor struct {
	file *os.File
	fd   int
}

// Pread reads the value from its beginning.
func (d *descriptor) Pread(buf []byte) (int, error) { return pread(d.fd, buf) }

// Pwrite writes a new value.
func (d *descriptor) Pwrite(text []byte) (int, error) { return pwrite(d.fd, text) }

// pread is one system call: os.File.ReadAt makes a second one to see the end of
// the file, which doubles the cost of a sample.
func pread(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, 0)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}

// pwrite is one system call.
func pwrite(fd int, text []byte) (int, error) {
	for {
		n, err := unix.Pwrite(fd, text, 0)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}

func (d *descriptor) Close() error {
	d.fd = -1
	return d.file.Close()
}
