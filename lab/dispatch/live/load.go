package live

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/traces"
)

// load is what is replayed: jobs of a trace.
type load struct {
	// percent is the load that the trace offers to 120 workers.
	percent int
	jobs    []traces.Job
	// cutoff is the longest mean time of a short job's tasks, s.
	cutoff float64
}

// shape is how many workers there are in how many groups, how many of each are reserved for short jobs, and the distributors.
type shape struct{ groups, each, reserved, distributors int }

// figure is the set-up of Fig. 4.11.
func figure() shape { return shape{groups: 3, each: 40, reserved: 4, distributors: 10} }

func (s shape) workers() int { return s.groups * s.each }

// short is how many workers take no tasks of long jobs.
func (s shape) short() int { return s.groups * s.reserved }

// cutoff is the longest mean time of a short job's tasks, s.
const cutoff = 1

// readLoad reads the first jobs of the trace that offers a load, all where jobs is 0, with all times multiplied by scale.
func readLoad(from *papers.Traces, percent, jobs int, scale float64) (*load, error) {
	all, why, err := from.Tasks("pigeon-google"+strconv.Itoa(percent), jobs)
	if err == nil && why != "" {
		err = cli.Failed("set --traces to a folder that contains pigeon/NGO_trace"+strconv.Itoa(percent), "load %d %%: %s", percent, why)
	}
	for i := range all {
		j := &all[i]
		j.Arrival, j.Mean = j.Arrival*scale, j.Mean*scale
		for k := range j.Times {
			j.Times[k] *= scale
		}
	}
	return &load{percent: percent, jobs: all, cutoff: cutoff * scale}, err
}

// long reports whether a job is a long one.
func (l *load) long(job int) bool { return l.jobs[job].Mean > l.cutoff }

// tasks is how many there are in all jobs.
func (l *load) tasks() (n int) {
	for i := range l.jobs {
		n += len(l.jobs[i].Times)
	}
	return n
}

// takes is how long the replay takes at least: no job ends before its longest task.
func (l *load) takes() time.Duration {
	end := 0.0
	for i := range l.jobs {
		end = max(end, l.jobs[i].Arrival+slices.Max(l.jobs[i].Times))
	}
	return seconds(end)
}

// seconds is a number of seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// String names the load.
func (l *load) String() string {
	return fmt.Sprintf("%d jobs of %d tasks at %d %% load", len(l.jobs), l.tasks(), l.percent)
}
