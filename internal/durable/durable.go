// Package durable replaces and removes small files so that the change survives a power cut.
//
// The one idea: a file system promises nothing about what was not synced, neither about the
// content of a file nor about its name in a folder. So a file is written under another name,
// synced, renamed, and then its folder is synced.
//
// Guarantees: after an error, and wherever a power cut interrupts it, a file has its old content
// or its new one, complete. After a nil error it has the new one, also after a power cut.
//
// It never retries, and never creates a folder. Package durabletest has a file system that
// forgets, for tests.
package durable

import (
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
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	// One that was left behind may have other permissions.
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fill(fsys, temp, data, perm); err != nil {
		_ = fsys.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.Rename(temp, path); err != nil {
		_ = fsys.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// fill creates a file with this content and syncs it.
func fill(fsys FS, path string, data []byte, perm fs.FileMode) error {
	f, err := fsys.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
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

// ReadFile implements FS.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(filepath.Clean(path)) }

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
