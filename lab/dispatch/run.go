// Package dispatch simulates the dispatch of many small tasks on traces, with Pigeon and the
// policies that it is compared with.
//
// The one idea: the simulation makes no decisions. It drives the state machines of
// jobs/dispatch/pigeon, the code of real distributors and masters, and of package eagle, and adds
// time: a network delay between any two nodes, task times from the trace, and slots that are slower
// under a power cap. A centralised scheduler is a pigeon.Master that has all workers.
//
// A job ends when its last result has arrived at its distributor; its completion time counts from
// its arrival there. A task that meets an idle worker takes three hops with Pigeon, and four with
// Sparrow or Eagle. A slowdown is a percentile of completion times divided by the same percentile
// of the times of each job's longest task.
//
// Guarantees: the same Setup and jobs give the same Result. Each task of each job runs once.
package dispatch

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"headroom/lab/events"
	"headroom/lab/traces"
)

// Events at one time come by rank: a cap before what starts under it.
const rankCap, rankTask = 0, 1

// job is one that has arrived and has not ended.
type job struct {
	index, distributor     int
	arrival, mean, longest float64
	times                  []float64
	short                  bool
	bound, left            int // tasks that a worker has requested, and those that have not ended
}

// world is what all policies share.
type world struct {
	setup  Setup
	random *rand.Rand
	clock  events.Clock[float64, func()]
	// jobs arrive by turns at the distributors.
	jobs, tasks int
	open        int // jobs that have not ended
	count       int // of events
	first, last float64
	busy        float64
	classes     map[bool]*measured
}

// checkEvery is after how many events the context is checked.
const checkEvery = 1 << 16

// Run simulates jobs, which are in the order of their arrivals.
func Run(ctx context.Context, setup Setup, jobs iter.Seq2[*traces.Job, error]) (Result, error) {
	if setup.Stretch == 0 {
		setup.Stretch = 1
	}
	if err := setup.check(); err != nil {
		return Result{}, err
	}
	if setup.Policy == Eagle || setup.Policy == Central {
		setup.Reserved, setup.Groups = setup.Reserved*setup.Groups, 1
	}
	short, long := &measured{}, &measured{}
	w := &world{setup: setup, random: rand.New(rand.NewPCG(setup.Seed, 0)), classes: map[bool]*measured{true: short, false: long}}
	var arrive func(*job)
	if setup.Policy == Eagle || setup.Policy == Sparrow {
		arrive = newProbing(w).arrive
	} else {
		arrive = newFlock(w).arrive
	}
	for t, err := range jobs {
		if err != nil {
			return Result{}, err
		}
		at := t.Arrival * setup.Stretch
		if err := w.pass(ctx, at); err != nil {
			return Result{}, err
		}
		w.clock.Advance(at)
		arrive(w.admit(t, at))
	}
	if err := w.pass(ctx, math.Inf(1)); err != nil {
		return Result{}, err
	}
	if w.open > 0 {
		return Result{}, fmt.Errorf("%d of %d jobs never end: no slot can run their tasks", w.open, w.jobs)
	}
	r := Result{Short: ClassOf(short.completion, short.longest), Long: ClassOf(long.completion, long.longest), Tasks: w.tasks, Jobs: w.jobs}
	if span := w.last - w.first; span > 0 {
		r.Util = w.busy / (span * float64(setup.Workers))
	}
	return r, nil
}

func (w *world) pass(ctx context.Context, until float64) error {
	for do, ok := w.clock.Before(until); ok; do, ok = w.clock.Before(until) {
		if w.count++; w.count%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		do()
	}
	return nil
}

func (w *world) now() float64 { return w.clock.Now() }

func (w *world) hop(do func()) { w.clock.Schedule(w.now()+w.setup.Hop, rankTask, do) }

func (w *world) admit(t *traces.Job, at float64) *job {
	if w.jobs == 0 {
		w.first = at
	}
	j := &job{
		index: w.jobs, distributor: w.jobs % w.setup.Distributors, arrival: at, mean: t.Mean, times: slices.Clone(t.Times),
		short: t.Mean <= w.setup.Cutoff, left: len(t.Times), longest: slices.Max(t.Times),
	}
	w.jobs++
	w.open++
	w.tasks += len(t.Times)
	return j
}

// ended takes the result of a task that ran so long, as it arrives at its distributor, and whether its job has ended.
func (w *world) ended(j *job, ran float64) bool {
	w.busy += ran
	w.last = w.now() - w.setup.Hop
	if j.left--; j.left > 0 {
		return false
	}
	class := w.classes[j.short]
	class.completion, class.longest = append(class.completion, w.now()-j.arrival), append(class.longest, j.longest)
	if w.setup.Ended != nil {
		w.setup.Ended(Ended{Index: j.index, Tasks: len(j.times), Completion: w.now() - j.arrival, Longest: j.longest})
	}
	w.open--
	return true
}

// Result is the result of a simulation.
type Result struct {
	Short, Long Class
	Tasks, Jobs int
	// Util is the part of the workers' time that tasks took, from the first arrival to the last end.
	Util float64
}

// Class is the jobs of a class. Without jobs, all are NaN.
type Class struct {
	Jobs int
	// Completion times, s.
	P50, P90, P99, Mean float64
	// Slow99 is the slowdown at the 99th percentile.
	Slow99 float64
}

type measured struct{ completion, longest []float64 }

// ClassOf returns the class of jobs with these completion times and times of their longest tasks, which it sorts.
func ClassOf(completion, longest []float64) Class {
	c := Class{Jobs: len(completion)}
	slices.Sort(completion)
	slices.Sort(longest)
	c.P50, c.P90, c.P99 = percentile(completion, 0.5), percentile(completion, 0.9), percentile(completion, 0.99)
	c.Slow99 = c.P99 / percentile(longest, 0.99)
	for _, x := range completion {
		c.Mean += x
	}
	c.Mean /= float64(c.Jobs)
	return c
}

// percentile returns the value below which the part p of sorted values lies, interpolated linearly between the two nearest; NaN of none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
