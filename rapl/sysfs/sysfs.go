// Package sysfs reads and writes the small text attributes of the kernel: one file, one
// value, on its first line.
//
// The one idea: an attribute that is read all the time is opened once and then read by one
// pread; an open descriptor refers to the same device when the tree around it changes. Where
// there may be thousands of them, Files opens each for its use only. The value is the first
// line only: a plain file that replaces an attribute in a test is overwritten in place and may
// keep the tail of an older, longer value.
//
// Guarantees: no path leaves the given os.Root; reading never changes the machine; a write is
// one pwrite on a descriptor opened O_RDWR (never O_CREATE, never O_TRUNC) and is read back
// at once; an unreadable value is an error that names the file and quotes the text. The
// package does not decide what to write.
package sysfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// valueMax bounds what is read of one attribute: the longest value Headroom
// reads is a list of frequencies or governors; sysfs itself allows a page.
const valueMax = 4096

// textMost is what most texts fit.
const textMost = 128

// numberMax bounds the text of a number: 20 digits of a 64-bit value, blanks
// around it and the newline fit well.
const numberMax = 64

// digitsSafe is how many digits always fit 63 bits.
const digitsSafe = 18

// ErrNotNumber reports an attribute whose first line is no whole number that
// fits 63 bits.
var ErrNotNumber = errors.New("not a whole number")

// ParseError reports an attribute whose text could not be understood.
type ParseError struct {
	File string // path below the root, as opened
	Text string // first line as read, at most 64 bytes of it
	Err  error
}

// Error returns the file, the text and the problem.
func (e *ParseError) Error() string { return fmt.Sprintf("%s: read %q: %v", e.File, e.Text, e.Err) }

// Unwrap is the cause, ErrNotNumber for numbers.
func (e *ParseError) Unwrap() error { return e.Err }

// Attr is one attribute, open for reading. It is for one goroutine at a time.
type Attr struct {
	path string
	open Opener
	file File
	buf  [numberMax]byte // reused by Int, so that a sample makes no garbage
}

// NewAttr opens the attribute at path for reading through open.
func NewAttr(path string, open Opener) (*Attr, error) {
	f, err := open(path, false)
	if err != nil {
		return nil, err
	}
	return &Attr{path: path, open: open, file: f}, nil
}

// Path is where the attribute was opened, below the root.
func (a *Attr) Path() string { return a.path }

// Reopen opens the attribute at its path again, for a device that went away and
// came back: the old descriptor names the device that is gone for ever. When it
// fails, the old descriptor stays.
func (a *Attr) Reopen() error { return a.reopen(false) }

func (a *Attr) reopen(write bool) error {
	f, err := a.open(a.path, write)
	if err != nil {
		return err
	}
	old := a.file
	a.file = f
	return old.Close()
}

// Int reads the value as a whole number, 0 or more. Another text gives a
// *ParseError; a failed read gives the system's error with the path.
func (a *Attr) Int() (int64, error) {
	n, err := a.file.Pread(a.buf[:])
	if err != nil {
		return 0, &os.PathError{Op: "read", Path: a.path, Err: err}
	}
	return ParseInt(a.path, a.buf[:n])
}

// Text reads the value as text: the first line without blanks around it, and with "?" for what
// nobody can read. Labels come from firmware in any encoding, or damaged.
func (a *Attr) Text() (string, error) {
	buf := make([]byte, textMost)
	n, err := a.file.Pread(buf)
	if err == nil && n == len(buf) {
		buf = make([]byte, valueMax)
		n, err = a.file.Pread(buf)
	}
	if err != nil {
		return "", &os.PathError{Op: "read", Path: a.path, Err: err}
	}
	return readable(firstLine(buf[:n])), nil
}

// readable is text in UTF-8, fit for messages and screens.
func readable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\t' {
			return '?'
		}
		return r
	}, string(text))
}

// Close closes the descriptors. What is read afterwards is an error.
func (a *Attr) Close() error { return a.file.Close() }

// ReadInt opens, reads and closes the attribute at path: for values that are
// read once.
func ReadInt(root *os.Root, path string) (int64, error) { return Disk(root).ReadInt(path) }

// ReadText opens, reads and closes the attribute at path.
func ReadText(root *os.Root, path string) (string, error) { return Disk(root).ReadText(path) }

// Control is one attribute that can be written. It is for one goroutine at a
// time, and whoever holds it is the only writer of the knob. Its one file serves writing and
// the reading back that follows.
type Control struct{ attr Attr }

// NewControl opens the attribute at path for writing through open, and for the
// reading back that follows each write.
func NewControl(path string, open Opener) (*Control, error) {
	f, err := open(path, true)
	if err != nil {
		return nil, err
	}
	return &Control{Attr{path: path, open: open, file: f}}, nil
}

// Reopen opens the control at its path again, as Attr.Reopen does.
func (c *Control) Reopen() error { return c.attr.reopen(true) }

// Path is where the control was opened, below the root.
func (c *Control) Path() string { return c.attr.path }

// Read reads the value that the control holds now.
func (c *Control) Read() (int64, error) { return c.attr.Int() }

// Write writes v with one pwrite and reads back what the control then holds.
// The value read back is returned even when the write failed, as far as it can
// be read: the kernel reports some refused writes as done and some done ones as
// failed, so only the value that stands there says what happened.
func (c *Control) Write(v int64) (got int64, err error) {
	text := append(strconv.AppendInt(c.attr.buf[:0], v, 10), '\n')
	n, err := c.attr.file.Pwrite(text)
	if err == nil && n != len(text) {
		err = fmt.Errorf("short write of %d of %d bytes", n, len(text))
	}
	if err != nil {
		err = &os.PathError{Op: "write", Path: c.attr.path, Err: err}
	}
	got, errRead := c.Read()
	return got, errors.Join(err, errRead)
}

// Close gives the descriptor back.
func (c *Control) Close() error { return c.attr.Close() }

// ParseInt is the number on the first line of text; file names it in the error.
func ParseInt(file string, text []byte) (int64, error) {
	line := firstLine(text)
	var v int64
	for i, d := range line {
		digit := int64(d) - '0'
		// Digits up to digitsSafe cannot overflow; asking costs a division each.
		if digit < 0 || digit > 9 || i >= digitsSafe && v > (1<<63-1-digit)/10 {
			return 0, notNumber(file, line)
		}
		v = v*10 + digit
	}
	if len(line) == 0 {
		return 0, notNumber(file, line)
	}
	return v, nil
}

func notNumber(file string, line []byte) error {
	return &ParseError{File: file, Text: string(line[:min(len(line), numberMax)]), Err: ErrNotNumber}
}

// firstLine cuts text at its first newline and takes the blanks off both ends.
func firstLine(text []byte) []byte {
	for i, b := range text {
		if b == '\n' {
			text = text[:i]
			break
		}
	}
	for len(text) > 0 && blank(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && blank(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }
