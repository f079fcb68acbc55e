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
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
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
