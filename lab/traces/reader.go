package traces

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
)

// Bounds of a trace.
const (
	// lineMost bounds a line: forty times the longest of the published ones.
	lineMost = 4 << 20
	// tasksMost bounds the tasks of a job: more do not fit in a line.
	tasksMost = 200_000
	// jobsMost bounds the jobs: ten times the largest published month.
	jobsMost = 10_000_000
	// secondsMost is about 30 years: sums of it stay exact to a microsecond.
	secondsMost = 1e9
	// gapMost is the longest time without a job: more than in a trace of three months means that a part is missing.
	gapMost = 30 * 24 * 3600
	// bytesMost is an exbibyte.
	bytesMost = 1 << 60
)

// Error is something wrong in a trace.
type Error struct {
	File string
	Line int
	// Problem describes the error, with the rule and the numbers.
	Problem string
	// Err is what the reader of the file returned, if that failed.
	Err error
}

// Error returns file, line and problem.
func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem) }

// Unwrap returns the error of reading the file.
func (e *Error) Unwrap() error { return e.Err }

// lines reads a file line by line, and tracks its position.
type lines struct {
	file   string
	number int
	scan   *bufio.Scanner
	last   float64
	fields [][]byte
}

func newLines(r io.Reader, file string) *lines {
	l := &lines{file: file, scan: bufio.NewScanner(r)}
	l.scan.Buffer(make([]byte, 0, 64<<10), lineMost)
	return l
}

func (l *lines) bad(format string, args ...any) error {
	return &Error{File: l.file, Line: l.number, Problem: fmt.Sprintf(format, args...)}
}

// next reads a line into fields; false at the end of the file.
func (l *lines) next() (bool, error) {
	l.number++
	if !l.scan.Scan() {
		switch err := l.scan.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return false, l.bad("line is longer than %d bytes", lineMost)
		case err != nil:
			return false, &Error{File: l.file, Line: l.number, Problem: "cannot be read: " + err.Error(), Err: err}
		case l.number == 1:
			return false, l.bad("file is empty; a trace has one line a job")
		}
		return false, nil
	}
	if l.number > jobsMost {
		return false, l.bad("more than %d jobs", jobsMost)
	}
	l.fields = split(l.fields[:0], l.scan.Bytes())
	if len(l.fields) == 0 {
		return false, l.bad("line is empty; a trace has one line a job")
	}
	return true, nil
}

// split appends what is between blanks.
func split(to [][]byte, line []byte) [][]byte {
	for {
		line = bytes.TrimLeft(line, " \t\r")
		if len(line) == 0 {
			return to
		}
		end := bytes.IndexAny(line, " \t\r")
		if end < 0 {
			end = len(line)
		}
		to, line = append(to, line[:end]), line[end:]
	}
}

// seconds is field i, which is called what.
func (l *lines) seconds(i int, what string) (float64, error) {
	x, err := strconv.ParseFloat(string(l.fields[i]), 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || math.IsInf(x, 0):
		return 0, l.bad("%s is %s: must be from 0 to %g", what, short(l.fields[i]), secondsMost)
	case err != nil || math.IsNaN(x):
		return 0, l.bad("%s is %s, which is no number", what, short(l.fields[i]))
	case !(x >= 0 && x <= secondsMost):
		return 0, l.bad("%s is %v: must be from 0 to %g", what, x, secondsMost)
	}
	return x, nil
}

// whole is the same for an integer.
func (l *lines) whole(i int, what string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(string(l.fields[i]), 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, l.bad("%s is %s, which is no whole number", what, short(l.fields[i]))
	case err != nil || n < least || n > most:
		return 0, l.bad("%s is %s: must be from %d to %d", what, short(l.fields[i]), least, most)
	}
	return n, nil
}

// short is a field as an error shows it.
func short(field []byte) string {
	const most = 40
	if len(field) > most {
		return strconv.Quote(string(field[:most])) + "..."
	}
	return strconv.Quote(string(field))
}

// arrive checks an arrival against the one before.
func (l *lines) arrive(at float64) error {
	switch {
	case l.number > 1 && at < l.last:
		return l.bad("arrival %v is before %v of the line above; sort the trace by arrival", at, l.last)
	case l.number > 1 && at-l.last > gapMost:
		return l.bad("gap of %v s after the line above, more than %d s: a part of the trace is missing; split it here", at-l.last, gapMost)
	}
	l.last = at
	return nil
}

// each is what a reader yields: jobs until the end of the file or the first error.
func each[J any](l *lines, read func() (*J, error)) iter.Seq2[*J, error] {
	return func(yield func(*J, error) bool) {
		for {
			more, err := l.next()
			if err != nil {
				yield(nil, err)
				return
			}
			if !more {
				return
			}
			j, err := read()
			if !yield(j, err) || err != nil {
				return
			}
		}
	}
}
