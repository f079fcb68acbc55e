package admission

import (
	"math"
	"slices"
	"time"
)

// Run is how an earlier run of a job went.
type Run struct {
	// Slots is the most that it held at once.
	Slots int
	// Runtime is from its first task to its end, Work the time that its tasks took together, and Longest that of the
	// longest chain of tasks that wait for each other. 0 is unknown.
	Runtime, Work, Longest time.Duration
}

// least returns the shortest time in which the same tasks can run on so many slots: no faster than on more slots, than
// their longest chain, and than their work allows.
func (r Run) least(slots int) time.Duration {
	bound := r.Longest
	if slots <= r.Slots {
		bound = r.Runtime
	}
	return max(bound, r.Work/time.Duration(max(1, slots)))
}

// leastOf returns the shortest time in which a job with these earlier runs can run on so many slots; 0 while none is known.
func leastOf(earlier []Run, slots int) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, r := range earlier {
		least = min(least, r.least(slots))
	}
	if len(earlier) == 0 || slots < 1 {
		return 0
	}
	return least
}

const (
	// namesMost bounds the names that Earlier keeps: the one that ended longest ago goes first.
	namesMost = 4096
	// runsMost is how many of the newest runs of a name are kept: enough that one on a slow day is not the fastest, and few
	// enough that a job that has changed is known again soon.
	runsMost = 8
	// alike is the factor up to which the sizes of two inputs may differ.
	alike = 2
)

// Known identifies the runs of a job: nobody's runs say anything about the jobs of others.
type Known struct{ User, Name string }

// Input is how much a job reads.
type Input struct {
	// Size is in bytes, or in tasks where no bytes are known; 0 is unknown.
	Size int64
	// Part is the fraction of it that a run has read, or that a result needs at least: above 0, at most 1.
	Part float64
}

// Earlier keeps the newest runs of jobs by their names. The zero value is ready to use.
type Earlier struct {
	names map[Known]*past
	ended int
}

type past struct {
	runs []pastRun
	last int // counts the ended runs of all names
}

type pastRun struct {
	Run

	input Input
}

// Add keeps a run that has ended with a result. One without a time or an input says nothing.
func (e *Earlier) Add(k Known, in Input, r Run) {
	if k.Name == "" || in.Size <= 0 || in.Part <= 0 || r.Runtime <= 0 {
		return
	}
	if e.names == nil {
		e.names = make(map[Known]*past)
	}
	p := e.names[k]
	if p == nil {
		e.makeRoom()
		p = &past{}
		e.names[k] = p
	}
	e.ended++
	p.last = e.ended
	p.runs = append(p.runs[max(0, len(p.runs)-runsMost+1):], pastRun{r, in})
}

func (e *Earlier) makeRoom() {
	if len(e.names) < namesMost {
		return
	}
	var oldest Known
	least := math.MaxInt
	for k, p := range e.names {
		if p.last < least {
			oldest, least = k, p.last
		}
	}
	delete(e.names, oldest)
}

// Of returns the runs of a name on inputs of about the same size. Those that read more than the job needs to count for
// less, in proportion.
func (e *Earlier) Of(k Known, in Input) (runs []Run) {
	p := e.names[k]
	if p == nil || in.Size <= 0 || in.Part <= 0 {
		return nil
	}
	for _, r := range p.runs {
		if r.input.Size > alike*in.Size || in.Size > alike*r.input.Size {
			continue
		}
		part := min(1, float64(in.Size)*in.Part/(float64(r.input.Size)*r.input.Part))
		scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * part) }
		runs = append(runs, Run{r.Slots, scaled(r.Runtime), scaled(r.Work), scaled(r.Longest)})
	}
	return slices.Clip(runs)
}

// least returns the shortest time in which a job can run on so many slots by its earlier runs, s; 0 while unknown.
func (j *job) least(slots int) float64 { return leastOf(j.Earlier, slots).Seconds() }

// Hopeless refuses a job that can use so many slots if its earlier runs show that no number of them is enough for its
// deadline. It is for jobs that no controller decides about.
func Hopeless(now time.Time, in Job, slots int) (d Decision, hopeless bool) {
	slots = min(slots, in.Tasks)
	least, left := leastOf(in.Earlier, slots), in.Deadline-in.Waited
	if least <= left {
		return d, false
	}
	return Decision{
		ID: in.ID, Verdict: Refused, Limit: slots, Need: slots, Due: now.Add(left), Least: least, Runs: len(in.Earlier),
		Nearest: in.Waited + least,
	}, true
}
