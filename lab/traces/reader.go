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
	// secondsMost is about 30 years: sums of it stay exact to a microsecond.
	secondsMost = 1e9
	// gapMost is the longest time without a job, s: more than in a trace of three months means that a part is missing.
	gapMost = 30 * 24 * 3600
	// bytesMost is what a float64 counts exactly, 9 petabytes.
	bytesMost = 1 << 53
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

// Tasks reads a trace in the format of Hawk, Eagle and Pigeon. file is its name in errors.
func Tasks(r io.Reader, file string) iter.Seq2[*Job, error] { return read(r, file, (*line).job) }

// Volumes reads a trace of SWIM. file is its name in errors.
func Volumes(r io.Reader, file string) iter.Seq2[*Volume, error] {
	return read(r, file, (*line).volume)
}

// line is the one that is read.
type line struct {
	file   string
	number int
	last   float64 // the arrival before
	fields [][]byte
}

// read yields jobs until the end of the file or the first error.
func read[J any](r io.Reader, file string, parse func(*line, *J) error) iter.Seq2[*J, error] {
	return func(yield func(*J, error) bool) {
		l, scan, j := &line{file: file, number: 1}, bufio.NewScanner(r), new(J)
		scan.Buffer(make([]byte, 0, 64<<10), lineMost)
		for ; scan.Scan(); l.number++ {
			l.fields = bytes.Fields(scan.Bytes())
			err := l.bad("line is empty; a trace has one line a job")
			if len(l.fields) > 0 {
				err = parse(l, j)
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
		switch err := scan.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(nil, l.bad("line is longer than %d bytes", lineMost))
		case err != nil:
			yield(nil, &Error{File: l.file, Line: l.number, Problem: "cannot be read: " + err.Error(), Err: err})
		case l.number == 1:
			yield(nil, l.bad("file is empty; a trace has one line a job"))
		}
	}
}

func (l *line) bad(format string, args ...any) error {
	return &Error{File: l.file, Line: l.number, Problem: fmt.Sprintf(format, args...)}
}

// job reads the line as arrival, number of tasks, mean time, and the time of each task.
func (l *line) job(j *Job) (err error) {
	const ahead = 3
	if len(l.fields) < ahead {
		return l.bad("%d fields; a line has arrival, number of tasks, mean time, and the time of each task", len(l.fields))
	}
	if j.Arrival, err = l.arrival(0); err != nil {
		return err
	}
	tasks, err := l.whole(1, "number of tasks", 1, tasksMost)
	if err != nil {
		return err
	}
	if j.Mean, err = l.seconds(2, "mean time"); err != nil {
		return err
	}
	if got := len(l.fields) - ahead; got != int(tasks) {
		return l.bad("%v tasks, but the times of %d", tasks, got)
	}
	j.Times = j.Times[:0]
	for i := range int(tasks) {
		t, err := l.seconds(ahead+i, "time of task "+strconv.Itoa(i+1))
		if err != nil {
			return err
		}
		j.Times = append(j.Times, t)
	}
	return nil
}

// volume reads the line as name, arrival, gap, and bytes of input, shuffle and output. The gap and what follows the input are not needed.
func (l *line) volume(v *Volume) (err error) {
	if len(l.fields) != 6 {
		return l.bad("%d fields; a line has name, arrival, gap, and bytes of input, shuffle and output", len(l.fields))
	}
	if want := "job" + strconv.Itoa(l.number-1); string(l.fields[0]) != want {
		return l.bad("name is %.40q, want %s: jobs are numbered without gaps, so a part of the trace is missing", l.fields[0], want)
	}
	if v.Arrival, err = l.arrival(1); err != nil {
		return err
	}
	v.Input, err = l.whole(3, "input", 0, bytesMost)
	return err
}

// parsed is field i, which is called what.
func (l *line) parsed(i int, what string, least, most float64) (float64, error) {
	x, err := strconv.ParseFloat(string(l.fields[i]), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(x):
		return 0, l.bad("%s is %.40q, which is no number", what, l.fields[i])
	case !(x >= least && x <= most):
		return 0, l.bad("%s is %.40q: must be from %v to %v", what, l.fields[i], least, most)
	}
	return x, nil
}

func (l *line) seconds(i int, what string) (float64, error) {
	return l.parsed(i, what, 0, secondsMost)
}

func (l *line) whole(i int, what string, least, most float64) (float64, error) {
	x, err := l.parsed(i, what, least, most)
	if err == nil && x != math.Trunc(x) {
		err = l.bad("%s is %.40q, which is no whole number", what, l.fields[i])
	}
	return x, err
}

// arrival is field i, checked against the arrival before.
func (l *line) arrival(i int) (float64, error) {
	at, err := l.seconds(i, "arrival")
	switch {
	case err != nil:
		return 0, err
	case l.number > 1 && at < l.last:
		return 0, l.bad("arrival %v is before %v of the line above; sort the trace by arrival", at, l.last)
	case l.number > 1 && at-l.last > gapMost:
		return 0, l.bad("gap of %v s after the line above, more than %d s: a part of the trace is missing; split it here", at-l.last, gapMost)
	}
	l.last = at
	return at, nil
}
