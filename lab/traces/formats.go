package traces

import (
	"io"
	"iter"
	"math"
	"strconv"
	"strings"
)

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

// Tasks reads a trace in the format of Hawk, Eagle and Pigeon. file is its name in errors.
func Tasks(r io.Reader, file string) iter.Seq2[*Job, error] {
	l := newLines(r, file)
	var j Job
	return each(l, func() (*Job, error) { return &j, l.job(&j) })
}

// The columns of a line ahead of the times of the tasks.
const tasksAhead = 3

func (l *lines) job(j *Job) (err error) {
	if len(l.fields) < tasksAhead {
		return l.bad("%d fields; a line has arrival, number of tasks, mean time, and the time of each task", len(l.fields))
	}
	if j.Arrival, err = l.seconds(0, "arrival"); err != nil {
		return err
	}
	if err = l.arrive(j.Arrival); err != nil {
		return err
	}
	tasks, err := l.whole(1, "number of tasks", 1, tasksMost)
	if err != nil {
		return err
	}
	if j.Mean, err = l.seconds(2, "mean time"); err != nil {
		return err
	}
	if got := len(l.fields) - tasksAhead; got != int(tasks) {
		return l.bad("%d tasks, but the times of %d", tasks, got)
	}
	j.Times = j.Times[:0]
	for i := range int(tasks) {
		t, err := l.seconds(tasksAhead+i, "time of task "+strconv.Itoa(i+1))
		if err != nil {
			return err
		}
		j.Times = append(j.Times, t)
	}
	return nil
}

// Volume is a job of SWIM: how much it reads, moves and writes, without tasks or times.
type Volume struct {
	Name    string
	Arrival float64
	// Input, Shuffle and Output are in bytes.
	Input, Shuffle, Output int64
}

// Tasks returns how many map tasks the job has with blocks of a size, at least one.
func (v *Volume) Tasks(block int64) int {
	return int(min(tasksMost, max(1, math.Ceil(float64(v.Input)/float64(block)))))
}

// Work is how long so many map tasks of the job take together at a rate in bytes a second, each at least the time that one
// takes to start, s.
func (v *Volume) Work(tasks int, rate, start float64) float64 {
	return float64(v.Input)/rate + start*float64(tasks)
}

// Volumes reads a trace of SWIM. file is its name in errors.
func Volumes(r io.Reader, file string) iter.Seq2[*Volume, error] {
	l := newLines(r, file)
	var v Volume
	return each(l, func() (*Volume, error) { return &v, l.volume(&v) })
}

// The columns of SWIM.
const volumeFields = 6

func (l *lines) volume(v *Volume) (err error) {
	if len(l.fields) != volumeFields {
		return l.bad("%d fields; a line has name, arrival, gap, and bytes of input, shuffle and output", len(l.fields))
	}
	v.Name = string(l.fields[0])
	if want := "job" + strconv.Itoa(l.number-1); v.Name != want {
		return l.bad("name is %s, want %s: jobs are numbered without gaps, so a part of the trace is missing", short(l.fields[0]), want)
	}
	before := l.last
	if v.Arrival, err = l.seconds(1, "arrival"); err != nil {
		return err
	}
	if err = l.arrive(v.Arrival); err != nil {
		return err
	}
	gap, err := l.seconds(2, "gap")
	if err != nil {
		return err
	}
	if by := v.Arrival - before; l.number > 1 && math.Abs(by-gap) > gapSlack {
		return l.bad("gap is %v s, but it arrives %v s after the line above: a line between is missing", gap, by)
	}
	for i, to := range []*int64{&v.Input, &v.Shuffle, &v.Output} {
		if *to, err = l.whole(3+i, strings.Fields("input shuffle output")[i], 0, bytesMost); err != nil {
			return err
		}
	}
	return nil
}

// gapSlack is by how much a gap may miss the arrivals: both are rounded to whole seconds.
const gapSlack = 1
