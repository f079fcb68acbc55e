package emulator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
)

// attr is one file of the tree, its descriptor held open.
type attr struct {
	path string
	file *os.File
	size int64 // bytes that we wrote last
}

// create makes the file anew with its folders, holding value. mode is what the
// kernel shows; the descriptor stays writable for us whatever it says.
func create(root *os.Root, name, value string, mode os.FileMode) (*attr, error) {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return nil, fmt.Errorf("emulator: create %s: %w", name, err)
	}
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("emulator: create %s: %w", name, err)
	}
	a := &attr{path: name, file: file}
	if err := errors.Join(a.put(value), file.Chmod(mode)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return a, nil
}

// put makes value and a line break the content: one write, then, where the old
// content was longer, a truncation. A reader of the first line sees the old or
// the new value, never a mixture.
func (a *attr) put(value string) error {
	line := append(append(make([]byte, 0, len(value)+1), value...), '\n')
	if _, err := a.file.WriteAt(line, 0); err != nil {
		return fmt.Errorf("emulator: write %s: %w", a.path, err)
	}
	size := int64(len(line))
	if size < a.size {
		if err := a.file.Truncate(size); err != nil {
			return fmt.Errorf("emulator: write %s: %w", a.path, err)
		}
	}
	a.size = size
	return nil
}

// attrMax bounds what is read of a file: a page, as in sysfs.
const attrMax = 4096

// line is the file's first line, and how many bytes the file holds (at most a
// page).
func (a *attr) line(buf []byte) (line []byte, size int64, err error) {
	n, err := a.file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("emulator: read %s: %w", a.path, err)
	}
	line, _, _ = bytes.Cut(buf[:n], []byte{'\n'})
	return line, int64(n), nil
}

func (a *attr) close() error { return a.file.Close() }

// control is a file that others write. Each poll takes a new value over, as the
// kernel's store function would, and shows what became of it.
type control struct {
	*attr
	held  string // what the file shows when nobody has written
	empty int    // polls that met no content: a writer between truncating and writing
	// store applies text and returns what is held now; errMalformed keeps the old.
	store func(text string) (string, error)
}

// emptyPolls is how many polls an empty file is left alone.
const emptyPolls = 5

// poll reads the file once and takes over what was written to it.
func (c *control) poll(buf []byte) error {
	line, size, err := c.line(buf)
	if err != nil {
		return err
	}
	if string(line) == c.held {
		c.empty = 0
		return nil
	}
	if len(line) == 0 && c.empty < emptyPolls {
		c.empty++
		return nil
	}
	c.empty = 0
	if held, err := c.store(string(line)); err == nil {
		c.held = held
	}
	return c.show(string(line), size, buf)
}

// show writes the held value back, unless the file no longer has what was read.
func (c *control) show(read string, size int64, buf []byte) error {
	if read == c.held {
		return nil
	}
	now, _, err := c.line(buf)
	if err != nil || string(now) != read {
		return err // written again meanwhile: the next poll sees to it
	}
	c.size = size // so that put truncates what the writer left behind
	return c.put(c.held)
}

// parseUint is the kernel's kstrtoull: decimal digits, one leading plus sign
// permitted, nothing else. Values are bounded to 63 bits.
func parseUint(text string) (int64, error) {
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, 63)
	if err != nil {
		return 0, errMalformed
	}
	return int64(v), nil
}

// parseScan is the kernel's sscanf("%u") of cpufreq: leading blanks and anything
// behind the digits are ignored.
func parseScan(text string) (int64, error) {
	text = strings.TrimLeft(text, " \t")
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	v, err := strconv.ParseUint(text[:end], 10, 32)
	if err != nil {
		return 0, errMalformed
	}
	return int64(v), nil
}

// parseBool is the kernel's kstrtobool, which looks at one letter, or at two
// after an o.
func parseBool(text string) (bool, error) {
	switch {
	case text == "":
		return false, errMalformed
	case strings.ContainsAny(text[:1], "1yYtT"):
		return true, nil
	case strings.ContainsAny(text[:1], "0nNfF"):
		return false, nil
	case strings.HasPrefix(strings.ToLower(text), "on"):
		return true, nil
	case strings.HasPrefix(strings.ToLower(text), "of"):
		return false, nil
	default:
		return false, errMalformed
	}
}
