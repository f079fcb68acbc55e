// Package durable replaces and removes small files so that the change survives a power cut.
//
// The one idea: a file system promises nothing about what was not synced, neither about the
// content of a file nor about its name in a folder. So a file is written under another name,
// synced, renamed, and then its folder is synced.
//
// Guarantees: after an error, and wherever a power cut interrupts it, a file that Write replaces
// has its old content or its new one, complete. After a nil error it has the new one, also after a
// power cut. Replace promises this to other processes only: it is for files that a power cut makes
// worthless. Each file has one writer at a time.
//
// It never retries, and never creates a folder. Package durabletest has a file system that
// forgets, for tests.
package durable

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FS is what this package needs of a file system. OS is the real one.
type FS interface {
	// ReadFile returns the content of a file, or an error that is fs.ErrNotExist.
	ReadFile(path string) ([]byte, error)
	// OpenFile opens a file for writing, with the flags of package os.
	OpenFile(path string, flag int, perm fs.FileMode) (File, error)
	// Rename replaces one name by another.
	Rename(from, to string) error
	// Remove deletes a name.
	Remove(path string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
}

// File is a file opened for writing.
type File interface {
	io.Writer
	io.WriterAt
	// Sync makes the content durable; the name becomes durable by SyncDir.
	Sync() error
	Close() error
}

// Write replaces a file, or creates it.
func Write(fsys FS, path string, data []byte, perm fs.FileMode) error {
	err := swap(fsys, path, data, perm, File.Sync)
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Replace is Write without waiting for the disk: another process sees the old content or the
// new one, but a power cut may leave neither.
func Replace(fsys FS, path string, data []byte, perm fs.FileMode) error {
	if err := swap(fsys, path, data, perm, func(File) error { return nil }); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// swap fills a new file, syncs it and renames it to path.
func swap(fsys FS, path string, data []byte, perm fs.FileMode, sync func(File) error) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	// One that was left behind may have other permissions.
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = sync(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp)
	}
	return err
}

// Remove deletes a file. One that does not exist is no error.
func Remove(fsys FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// OS is the real file system.
type OS struct{}

// ErrNotRegular reports something else in the place of a file: a FIFO would hold its reader for
// ever, and a link that leads nowhere would read as no file at all.
var ErrNotRegular = errors.New("not a regular file")

// Regular is ErrNotRegular, with what stands there, unless path is a regular file or nothing.
func Regular(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil //nolint:nilerr // opening it tells the same
	}
	kinds := map[os.FileMode]string{os.ModeDir: "directory", os.ModeSymlink: "symbolic link", os.ModeNamedPipe: "FIFO"}
	return fmt.Errorf("%s is a %s: %w", path, cmp.Or(kinds[info.Mode().Type()], "device or socket"), ErrNotRegular)
}

// ReadFile implements FS. What is no regular file is ErrNotRegular.
func (OS) ReadFile(path string) ([]byte, error) {
	if err := Regular(path); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Clean(path))
}

// OpenFile implements FS.
func (OS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(filepath.Clean(path), flag, perm)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type file struct{ *os.File }

// Sync makes the content and the size durable, not the times, so that a file that is
// overwritten in place costs one write of the disk.
func (f file) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
