package dispatch

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"headroom/lab/traces"
)

// Ranks of events at one time: a cap comes before what starts under it.
const (
	rankCap  = 0
	rankTask = 1
)

// job is one that has arrived and has not ended.
type job struct {
	index       int
	distributor int
	arrival     float64
	mean        float64
	longest     float64
	times       []float64
	short       bool
	left        int
}

// world is what all policies share.
type world struct {
	setup  Setup
	random *rand.Rand
	now    float64
	// jobs arrive by turns at the distributors.
	jobs, tasks int
	open        int // jobs that have not ended
	first, last float64
	busy        float64
	classes     map[bool]*measured
	unused      []*job
}

// machine is a policy at work.
type machine interface {
	// arrive is called as a job arrives.
	arrive(*job)
	// step handles the next event; false if there is none up to a time.
	step(until float64) bool
}

// checkEvery is after how many jobs the context is looked at.
const checkEvery = 256

// Run simulates jobs, which are in the order of their arrivals.
func Run(ctx context.Context, setup Setup, jobs iter.Seq2[*traces.Job, error]) (Result, error) {
	if setup.Stretch == 0 {
		setup.Stretch = 1
	}
	if err := setup.check(); err != nil {
		return Result{}, err
	}
	w := newWorld(setup)
	m := w.machine()
	for t, err := range jobs {
		if err == nil && w.jobs%checkEvery == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return Result{}, err
		}
		at := t.Arrival * setup.Stretch
		for m.step(at) {
		}
		m.arrive(w.admit(t, at))
	}
	for n := 0; m.step(math.Inf(1)); n++ {
		if n%(checkEvery*checkEvery) == 0 && ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
	}
	r := w.result()
	if w.open > 0 {
		return r, fmt.Errorf("%d of %d jobs never end: no slot can run their tasks", w.open, r.Jobs)
	}
	return r, nil
}

func newWorld(s Setup) *world {
	return &world{setup: s, random: rand.New(rand.NewPCG(s.Seed, 0)), classes: map[bool]*measured{true: {}, false: {}}}
}

func (w *world) machine() machine {
	switch w.setup.Policy {
	case Sparrow:
		return newProbing(w)
	case Eagle:
		w.setup.one()
		return newProbing(w)
	case Central:
		w.setup.one()
		return newFlock(w)
	default:
		return newFlock(w)
	}
}

// admit makes a job of the trace's.
func (w *world) admit(t *traces.Job, at float64) *job {
	if w.jobs == 0 {
		w.first = at
	}
	w.now = at
	var j *job
	if n := len(w.unused); n > 0 {
		j, w.unused = w.unused[n-1], w.unused[:n-1]
	} else {
		j = &job{}
	}
	*j = job{
		index: w.jobs, distributor: w.jobs % w.setup.Distributors, arrival: at, mean: t.Mean, times: append(j.times[:0], t.Times...),
		short: t.Mean <= w.setup.Cutoff, left: len(t.Times),
	}
	for _, x := range t.Times {
		j.longest = max(j.longest, x)
	}
	w.jobs++
	w.open++
	w.tasks += len(t.Times)
	return j
}

// ended takes the result of a task that ran so long, as it arrives at its distributor, and whether its job has ended.
func (w *world) ended(j *job, ran float64) bool {
	w.busy += ran
	w.last = w.now - w.setup.Hop
	if j.left--; j.left > 0 {
		return false
	}
	w.classes[j.short].add(w.now-j.arrival, j.longest)
	if w.setup.Ended != nil {
		w.setup.Ended(Ended{Index: j.index, Tasks: len(j.times), Completion: w.now - j.arrival, Longest: j.longest})
	}
	w.unused = append(w.unused, j)
	w.open--
	return true
}

func (w *world) result() Result {
	r := Result{Short: w.classes[true].class(), Long: w.classes[false].class(), Tasks: w.tasks, Jobs: w.jobs}
	if span := w.last - w.first; span > 0 {
		r.Util = w.busy / (span * float64(w.setup.Workers))
	}
	return r
}
