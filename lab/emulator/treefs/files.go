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
	tree   *kernel.Tree
	byPace map[kernel.Pace][]*file // but for those that never change
	polls  int
	buf    []byte
}

// Clear removes what an earlier tree left below root. The machine id stays.
func Clear(root *os.Root) error {
	return errors.Join(root.RemoveAll("sys"), root.RemoveAll("proc"))
}

// NewFiles writes the tree below root, which stays its caller's. What an earlier
// boot left there is removed first: limits do not survive a reboot.
func NewFiles(root *os.Root, tree *kernel.Tree) (*Files, error) {
	f := &Files{tree: tree, byPace: map[kernel.Pace][]*file{}, buf: make([]byte, pageSize)}
	if err := f.write(root); err != nil {
		return nil, errors.Join(fmt.Errorf("treefs: %w", err), f.Close())
	}
	return f, nil
}

// write makes files, links and empty folders.
func (f *Files) write(root *os.Root) error {
	if err := Clear(root); err != nil {
		return err
	}
	for _, a := range f.tree.Attrs() {
		if err := f.add(root, a); err != nil {
			return err
		}
	}
	for _, dir := range f.tree.Dirs() {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for from, to := range f.tree.Links() {
		if err := errors.Join(root.MkdirAll(path.Dir(from), 0o755), root.Symlink(to, from)); err != nil {
			return err
		}
	}
	return nil
}

// add makes the file of one attribute. Its descriptor stays writable for us whatever the mode.
func (f *Files) add(root *os.Root, a *kernel.Attr) error {
	text, err := f.tree.Read(a)
	if err != nil {
		return nil //nolint:nilerr // a file that cannot be read has no value to hold
	}
	if err := root.MkdirAll(path.Dir(a.Path), 0o755); err != nil {
		return err
	}
	_ = root.Remove(a.Path)
	opened, err := root.OpenFile(a.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	made := &file{attr: a, file: opened}
	err = errors.Join(made.put(text), opened.Chmod(a.Mode))
	if a.Pace == kernel.Fixed {
		return errors.Join(err, opened.Close())
	}
	f.byPace[a.Pace] = append(f.byPace[a.Pace], made)
	return err
}

// Close closes the files; they stay where they are.
func (f *Files) Close() error {
	var errs []error
	for _, files := range f.byPace {
		for _, a := range files {
			errs = append(errs, a.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Publish writes what moves with every step.
func (f *Files) Publish() error { return f.publish(kernel.Quick) }

// Observe writes what moves more slowly.
func (f *Files) Observe() error { return f.publish(kernel.Slow) }

func (f *Files) publish(pace kernel.Pace) error {
	var errs []error
	for _, a := range f.byPace[pace] {
		text, err := f.tree.Read(a.attr)
		if err == nil && text != a.text {
			errs = append(errs, a.put(text))
		}
	}
	return errors.Join(errs...)
}

// Poll takes over what was written since the last poll: the packages' controls at every step.
// Those of the frequency files and of files that hold nothing are spread over the steps of a
// round, so that a step costs little.
func (f *Files) Poll() error {
	f.polls++
	var errs []error
	for pace, round := range map[kernel.Pace]int{kernel.Prompt: 1, kernel.Soon: 2, kernel.Seldom: 10} {
		for i := f.polls % round; i < len(f.byPace[pace]); i += round {
			errs = append(errs, f.poll(f.byPace[pace][i]))
		}
	}
	return errors.Join(errs...)
}

// file is one file of the tree, its descriptor held open.
type file struct {
	attr  *kernel.Attr
	file  *os.File
	text  string // what we wrote last
	size  int64  // bytes of it
	empty int    // polls that met no content: a writer between truncating and writing
}

// put makes value and a line break the content: one write, then, where the old
// content was longer, a truncation. A reader of the first line sees the old or
// the new value, never a mixture.
func (f *file) put(value string) error {
	line := []byte(value + "\n")
	if _, err := f.file.WriteAt(line, 0); err != nil {
		return fmt.Errorf("treefs: %w", err)
	}
	size := int64(len(line))
	if size < f.size {
		if err := f.file.Truncate(size); err != nil {
			return fmt.Errorf("treefs: %w", err)
		}
	}
	f.text, f.size = value, size
	return nil
}

// pageSize bounds what is read of a file: a page, as in sysfs.
const pageSize = 4096

// line is the file's first line, and how many bytes the file holds (at most a
// page).
func (f *file) line(buf []byte) (line string, size int64, err error) {
	n, err := f.file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", 0, fmt.Errorf("treefs: %w", err)
	}
	first, _, _ := bytes.Cut(buf[:n], []byte{'\n'})
	return string(first), int64(n), nil
}

// emptyPolls is how many polls an empty file is left alone.
const emptyPolls = 5

// poll reads a file that others write. It takes a new value over, as the kernel's store function
// would, and shows what became of it, unless the file was written again meanwhile.
func (f *Files) poll(c *file) error {
	read, size, err := c.line(f.buf)
	if err != nil {
		return err
	}
	if read != c.text {
		if read == "" && c.empty < emptyPolls {
			c.empty++
			return nil
		}
		_ = f.tree.Write(c.attr, read) // a plain file cannot return an error
	}
	c.empty = 0
	held, err := f.tree.Read(c.attr)
	if err != nil {
		return nil //nolint:nilerr // a value that cannot be read stays as it was
	}
	if held == read {
		c.text, c.size = held, size
		return nil
	}
	if now, _, err := c.line(f.buf); err != nil || now != read {
		return err
	}
	c.size = size // so that put truncates what the writer left behind
	return c.put(held)
}
