// Package durabletest is a file system in memory that forgets at a power cut what was not
// synced, for tests of whatever must survive one.
//
// The one idea: the power is cut before each call that changes something, once for each, and what
// the machine then starts with is judged. A file system may also have kept more than it
// promised: so three outcomes of each cut are judged.
//
// Guarantees: content that was not synced is lost, and so are names whose folder was not synced.
// Folders themselves always exist. It never touches a disk.
package durabletest

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"headroom/internal/durable"
)

// ErrCut is the result of every call after the power cut.
var ErrCut = errors.New("the power was cut")

// Disk implements durable.FS in memory.
type Disk struct {
	mu    sync.Mutex
	names map[string]*inode // as programs see them
	kept  map[string]*inode // as they are after a power cut
	left  int               // calls until the power cut; below 0 there is none
}

type inode struct {
	data, kept []byte
}

// New returns an empty disk.
func New() *Disk {
	return &Disk{names: map[string]*inode{}, kept: map[string]*inode{}, left: -1}
}

// CutAfter cuts the power after this many more calls that change something.
func (d *Disk) CutAfter(calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = calls
}

// Survivors returns what a machine may find after a power cut now: only what was synced, or
// everything, or every name with only the synced content.
func (d *Disk) Survivors() []*Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return []*Disk{
		after(d.kept, func(x *inode) []byte { return x.kept }),
		after(d.names, func(x *inode) []byte { return x.data }),
		after(d.names, func(x *inode) []byte { return x.kept }),
	}
}

func after(names map[string]*inode, content func(*inode) []byte) *Disk {
	out := New()
	for name, x := range names {
		data := bytes.Clone(content(x))
		out.names[name] = &inode{data: data, kept: bytes.Clone(data)}
	}
	out.kept = maps.Clone(out.names)
	return out
}

// EachCut runs do on the disk that before returns, and cuts the power before each of its calls
// in turn, until it is carried out whole. judge sees every survivor, and whether do had
// returned nil by then.
func EachCut(before func() *Disk, do func(durable.FS) error, judge func(after durable.FS, done bool)) {
	for calls := 0; ; calls++ {
		d := before()
		d.CutAfter(calls)
		err := do(d)
		for _, s := range d.Survivors() {
			judge(s, err == nil)
		}
		if err == nil {
			return
		}
	}
}

// change counts one call that changes something. The caller holds the lock.
func (d *Disk) change() error {
	if d.left == 0 {
		return ErrCut
	}
	if d.left > 0 {
		d.left--
	}
	return nil
}

// ReadFile implements durable.FS.
func (d *Disk) ReadFile(path string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, ok := d.names[filepath.Clean(path)]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return bytes.Clone(x.data), nil
}

// OpenFile implements durable.FS.
func (d *Disk) OpenFile(path string, flag int, _ fs.FileMode) (durable.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path = filepath.Clean(path)
	x, ok := d.names[path]
	switch {
	case ok && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrExist}
	case !ok && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case !ok:
		if err := d.change(); err != nil {
			return nil, err
		}
		x = &inode{}
		d.names[path] = x
	case flag&os.O_TRUNC != 0:
		if err := d.change(); err != nil {
			return nil, err
		}
		x.data = nil
	}
	return &file{disk: d, inode: x}, nil
}

// Rename implements durable.FS.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, ok := d.names[filepath.Clean(from)]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if err := d.change(); err != nil {
		return err
	}
	delete(d.names, filepath.Clean(from))
	d.names[filepath.Clean(to)] = x
	return nil
}

// Remove implements durable.FS.
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.names[filepath.Clean(path)]; !ok {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	if err := d.change(); err != nil {
		return err
	}
	delete(d.names, filepath.Clean(path))
	return nil
}

// SyncDir implements durable.FS.
func (d *Disk) SyncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.change(); err != nil {
		return err
	}
	in := func(name string, _ *inode) bool { return filepath.Dir(name) == filepath.Clean(dir) }
	maps.DeleteFunc(d.kept, in)
	for name, x := range d.names {
		if in(name, x) {
			d.kept[name] = x
		}
	}
	return nil
}

type file struct {
	disk  *Disk
	inode *inode
	at    int64
}

// Write implements io.Writer.
func (f *file) Write(b []byte) (int, error) {
	n, err := f.WriteAt(b, f.at)
	f.at += int64(n)
	return n, err
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.change(); err != nil {
		return 0, err
	}
	if missing := at + int64(len(b)) - int64(len(f.inode.data)); missing > 0 {
		f.inode.data = append(f.inode.data, make([]byte, missing)...)
	}
	return copy(f.inode.data[at:], b), nil
}

// Sync implements durable.File.
func (f *file) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.change(); err != nil {
		return err
	}
	f.inode.kept = bytes.Clone(f.inode.data)
	return nil
}

// Close implements durable.File.
func (f *file) Close() error { return nil }
