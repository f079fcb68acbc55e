// Package traces reads published traces of clusters, job by job.
//
// The one idea: a trace is an external file, so nothing in it is trusted. Each job is checked
// before it is returned, and an error has the file, the line, the rule and the numbers.
// lab/docs/traces.md has the formats, and the public source and the checksum of each file.
//
// Guarantees: a reader holds one line at a time; lines and tasks are bounded. It stops at the
// first error, and no input makes it panic. A job is valid until the next one is read.
package traces

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// layout is where a folder has which trace.
func layout() map[string]string {
	all := map[string]string{
		"google": "hawk-format/GOOG_subtrace.tr", "yahoo1": "hawk-format/YH1_sub.tr", "yahoo2": "hawk-format/YH2_sub.tr",
		"facebook2009": "swim/FB-2009_samples_24_times_1hr_0.tsv", "facebook2009b": "swim/FB-2009_samples_24_times_1hr_1.tsv",
		"facebook2010": "swim/FB-2010_samples_24_times_1hr_0.tsv",
	}
	for _, load := range []string{"50", "60", "70", "80", "90"} {
		all["pigeon-google"+load] = "pigeon/NGO_trace" + load
	}
	for _, load := range []string{"50", "70", "90"} {
		all["pigeon-yahoo"+load] = "pigeon/NYH_trace" + load
	}
	return all
}

// File is a trace of a folder, open for reading. Its name is the path in errors.
type File struct {
	*os.File

	// Swim reports whether Volumes reads it; Tasks does otherwise.
	Swim bool
}

// Open opens a trace of a folder. The error is fs.ErrNotExist where the folder does not have it.
func Open(dir, name string) (*File, error) {
	path, known := layout()[name]
	if !known {
		return nil, fmt.Errorf("traces: unknown trace %q", name)
	}
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(path)))
	if err != nil {
		return nil, err
	}
	return &File{f, strings.HasPrefix(path, "swim/")}, nil
}

// CheckDir reports what is wrong with a folder: it has none of the traces, or is none.
func CheckDir(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	paths := slices.Sorted(maps.Values(layout()))
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(path))); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s: none of %s: %w", dir, strings.Join(paths, ", "), fs.ErrNotExist)
}

// Job is a job of a trace of tasks.
type Job struct {
	// Arrival is when it was submitted, s on the trace's clock.
	Arrival float64
	// Mean is the mean time of its tasks as the trace has it, s, and Times is that of each.
	Mean  float64
	Times []float64
}

// Work is how long all of its tasks take together, s.
func (j *Job) Work() float64 {
	sum := 0.0
	for _, t := range j.Times {
		sum += t
	}
	return sum
}

// All yields the jobs of a list, as Tasks does those of a file.
func All(jobs []Job) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		for i := range jobs {
			if !yield(&jobs[i], nil) {
				return
			}
		}
	}
}

// Volume is a job of SWIM, without tasks or times: when it arrives, s, and the bytes that it reads.
type Volume struct{ Arrival, Input float64 }

// Tasks returns how many map tasks the job has with blocks of a size, at least one.
func (v *Volume) Tasks(block int64) int {
	return int(min(tasksMost, max(1, math.Ceil(v.Input/float64(block)))))
}

// Work is how long so many map tasks of the job take together at a rate in bytes a second, each at least the time that one
// takes to start, s.
func (v *Volume) Work(tasks int, rate, start float64) float64 {
	return v.Input/rate + start*float64(tasks)
}

// Bounds of a trace.
const (
	lineMost    = 4 << 20        // forty times the longest line of the published ones
	tasksMost   = 200_000        // more do not fit in a line
	secondsMost = 1e9            // about 30 years: sums of it stay exact to a microsecond
	gapMost     = 30 * 24 * 3600 // s without a job: more means that a part is missing
	bytesMost   = 1 << 53        // what a float64 counts exactly, 9 petabytes
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
			err := parse(l, j)
			if len(l.fields) == 0 {
				err = l.bad("line is empty; a trace has one line a job")
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
