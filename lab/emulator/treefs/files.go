package treefs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"headroom/lab/emulator/kernel"
)

// Files is a tree as plain files. Its methods belong to one goroutine.
type Files struct {
	tree *kernel.Tree

	moving [2][]*file // Quick and Slow
	prompt []*control
	soon   []*control
	seldom []*control
	open   []*file
	polls  int
	buf    []byte
}

// topFolders are those of the root that a tree owns whole.
func topFolders() []string { return []string{"sys", "proc", "dev"} }

// Clear removes what an earlier tree left below root. The machine id stays.
func Clear(root *os.Root) error {
	for _, old := range topFolders() {
		if err := root.RemoveAll(old); err != nil {
			return fmt.Errorf("treefs: clear %s: %w", old, err)
		}
	}
	return nil
}

// NewFiles writes the tree below root, which stays its caller's. What an earlier
// boot left there is removed first: limits do not survive a reboot.
func NewFiles(root *os.Root, tree *kernel.Tree) (*Files, error) {
	f := &Files{tree: tree, buf: make([]byte, pageSize)}
	makes := newMaker(root)
	defer makes.close()
	err := Clear(root)
	for _, a := range tree.Attrs() {
		if err == nil {
			err = f.add(a, makes)
		}
	}
	if err == nil {
		err = scaffold(root, tree)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// scaffold makes links and empty folders.
func scaffold(root *os.Root, tree *kernel.Tree) error {
	for _, dir := range tree.Dirs() {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("treefs: create %s: %w", dir, err)
		}
	}
	for from, to := range tree.Links() {
		if err := root.MkdirAll(path.Dir(from), 0o755); err != nil {
			return fmt.Errorf("treefs: create %s: %w", from, err)
		}
		if err := root.Symlink(to, from); err != nil {
			return fmt.Errorf("treefs: link %s: %w", from, err)
		}
	}
	return nil
}

// add makes the file of one attribute and puts it on the list of its pace.
func (f *Files) add(a *kernel.Attr, makes *maker) error {
	if a.Pace == kernel.Device {
		return nil // registers overlap: no plain file can hold them
	}
	text, err := f.tree.Read(a)
	if err != nil {
		return nil //nolint:nilerr // a file that cannot be read has no value to hold
	}
	made, err := makes.create(a, text)
	if err != nil {
		return err
	}
	if a.Pace == kernel.Fixed {
		return made.close()
	}
	f.open = append(f.open, made)
	c := &control{file: made}
	switch a.Pace {
	case kernel.Quick:
		f.moving[0] = append(f.moving[0], made)
	case kernel.Slow:
		f.moving[1] = append(f.moving[1], made)
	case kernel.Prompt:
		f.prompt = append(f.prompt, c)
	case kernel.Soon:
		f.soon = append(f.soon, c)
	case kernel.Seldom:
		f.seldom = append(f.seldom, c)
	case kernel.Fixed, kernel.Device:
	}
	return nil
}

// Close closes the files; they stay where they are.
func (f *Files) Close() error {
	var errs []error
	for _, a := range f.open {
		errs = append(errs, a.close())
	}
	return errors.Join(errs...)
}

// Publish writes what moves with every step.
func (f *Files) Publish() error { return f.publish(f.moving[0]) }

// Observe writes what moves more slowly.
func (f *Files) Observe() error { return f.publish(f.moving[1]) }

func (f *Files) publish(list []*file) error {
	var errs []error
	for _, a := range list {
		text, err := f.tree.Read(a.attr)
		if err == nil && text != a.text {
			errs = append(errs, a.put(text))
		}
	}
	return errors.Join(errs...)
}

// Polls of the frequency files and of those that hold nothing are spread over the
// steps of a round, so that a step costs little.
const (
	soonRound   = 2
	seldomRound = 10
)

// Poll takes over what was written since the last poll: the packages' controls at
// every step, the others when it is their turn.
func (f *Files) Poll() error {
	f.polls++
	var errs []error
	for _, c := range f.prompt {
		errs = append(errs, f.poll(c))
	}
	for i := f.polls % soonRound; i < len(f.soon); i += soonRound {
		errs = append(errs, f.poll(f.soon[i]))
	}
	for i := f.polls % seldomRound; i < len(f.seldom); i += seldomRound {
		errs = append(errs, f.poll(f.seldom[i]))
	}
	return errors.Join(errs...)
}

// file is one file of the tree, its descriptor held open.
type file struct {
	attr *kernel.Attr
	file *os.File
	text string // what we wrote last
	size int64  // bytes of it
}

// maker makes files. It keeps their folders open, as a path is walked step by step.
type maker struct {
	root *os.Root
	dirs map[string]*os.Root
}

func newMaker(root *os.Root) *maker { return &maker{root: root, dirs: make(map[string]*os.Root)} }

func (m *maker) close() {
	for _, dir := range m.dirs {
		_ = dir.Close()
	}
}

// folder is the folder of that name, made if need be.
func (m *maker) folder(name string) (*os.Root, error) {
	if dir := m.dirs[name]; dir != nil {
		return dir, nil
	}
	if err := m.root.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	dir, err := m.root.OpenRoot(name)
	if err == nil {
		m.dirs[name] = dir
	}
	return dir, err
}

// create makes the file again with its folders. The descriptor stays writable for
// us whatever the mode.
func (m *maker) create(a *kernel.Attr, text string) (*file, error) {
	dir, err := m.folder(path.Dir(a.Path))
	if err != nil {
		return nil, fmt.Errorf("treefs: create %s: %w", a.Path, err)
	}
	base := path.Base(a.Path)
	opened, err := dir.OpenFile(base, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		_ = dir.Remove(base)
		opened, err = dir.OpenFile(base, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("treefs: create %s: %w", a.Path, err)
	}
	f := &file{attr: a, file: opened}
	if err := errors.Join(f.put(text), opened.Chmod(a.Mode)); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// put makes value and a line break the content: one write, then, where the old
// content was longer, a truncation. A reader of the first line sees the old or
// the new value, never a mixture.
func (f *file) put(value string) error {
	line := append(append(make([]byte, 0, len(value)+1), value...), '\n')
	if _, err := f.file.WriteAt(line, 0); err != nil {
		return fmt.Errorf("treefs: write %s: %w", f.attr.Path, err)
	}
	size := int64(len(line))
	if size < f.size {
		if err := f.file.Truncate(size); err != nil {
			return fmt.Errorf("treefs: write %s: %w", f.attr.Path, err)
		}
	}
	f.text, f.size = value, size
	return nil
}

// pageSize bounds what is read of a file: a page, as in sysfs.
const pageSize = 4096

// line is the file's first line, and how many bytes the file holds (at most a
// page).
func (f *file) line(buf []byte) (line []byte, size int64, err error) {
	n, err := f.file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("treefs: read %s: %w", f.attr.Path, err)
	}
	line, _, _ = bytes.Cut(buf[:n], []byte{'\n'})
	return line, int64(n), nil
}

func (f *file) close() error { return f.file.Close() }

// control is a file that others write. Each poll takes a new value over, as the
// kernel's store function would, and shows what became of it.
type control struct {
	*file
	empty int // polls that met no content: a writer between truncating and writing
}

// emptyPolls is how many polls an empty file is left alone.
const emptyPolls = 5

// poll reads the file once and takes over what was written to it.
func (f *Files) poll(c *control) error {
	line, size, err := c.line(f.buf)
	if err != nil {
		return err
	}
	read := string(line)
	if read != c.text {
		if read == "" && c.empty < emptyPolls {
			c.empty++
			return nil
		}
		_ = f.tree.Write(c.attr, read) // a plain file cannot return an error
	}
	c.empty = 0
	held, err := f.tree.Read(c.attr)
	if err != nil || held == read {
		if err == nil {
			c.text, c.size = held, size
		}
		return nil //nolint:nilerr // a value that cannot be read stays as it was
	}
	return c.show(held, read, size, f.buf)
}

// show writes the held value back, unless the file no longer has what was read.
func (c *control) show(held, read string, size int64, buf []byte) error {
	now, _, err := c.line(buf)
	if err != nil || string(now) != read {
		return err // written again meanwhile: the next poll sees to it
	}
	c.size = size // so that put truncates what the writer left behind
	return c.put(held)
}
