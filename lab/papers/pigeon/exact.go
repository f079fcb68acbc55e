package pigeon

import (
	"context"
	"math"
	"slices"

	policies "headroom/jobs/dispatch/pigeon"
	"headroom/lab/dispatch"
	"headroom/lab/report"
	"headroom/lab/traces"
)

// exact are the results of examples small enough to work out by hand; messages take no time in them.
type exact struct {
	// pigeon and central are the paper's worked example: the sum of the three jobs' completion times.
	pigeon, central float64
	// low is how many long tasks are among the first tasks of one busy worker at W = 5; strictLow the same with strict priority.
	low, strictLow float64
	// reserved is the sum of completion times where one worker of each group is reserved.
	reserved float64
}

// The setups of the examples.
type examples struct{ pigeon, central, weighted, strict, reserved setup }

const (
	// exampleCutoff is between the times of the examples' short and long tasks.
	exampleCutoff = 15
	// exampleSeed draws the groups of jobs B and C as the paper has them: B gets the first and C the second.
	exampleSeed = 8
)

func honestExamples() examples {
	return examples{
		pigeon:   setup{Policy: dispatch.Pigeon, Workers: 4, Groups: 2, Cutoff: math.MaxFloat64, Placement: policies.Block, Distributors: 1},
		central:  setup{Policy: dispatch.Central, Workers: 4, Groups: 1, Cutoff: math.MaxFloat64, Distributors: 1},
		weighted: setup{Policy: dispatch.Pigeon, Workers: 1, Groups: 1, W: 5, Cutoff: exampleCutoff, Distributors: 1},
		strict:   setup{Policy: dispatch.Pigeon, Workers: 1, Groups: 1, W: strict, Cutoff: exampleCutoff, Distributors: 1},
		reserved: setup{Policy: dispatch.Pigeon, Workers: 8, Groups: 2, Reserved: 1, Cutoff: exampleCutoff, Distributors: 1},
	}
}

// job is a job of an example: tasks of the given times.
func job(at float64, times ...float64) traces.Job {
	j := traces.Job{Arrival: at, Times: times}
	j.Mean = j.Work() / float64(len(times))
	return j
}

// work evaluates the examples.
func (x examples) work(ctx context.Context) (e exact, err error) {
	paper := []traces.Job{job(0, 20, 1, 1, 10, 10, 10), job(0, 2), job(0, 2)}
	if e.pigeon, err = x.pigeon.total(ctx, paper); err != nil {
		return e, err
	}
	if e.central, err = x.central.total(ctx, paper); err != nil {
		return e, err
	}
	if e.low, err = x.weighted.lowShare(ctx); err != nil {
		return e, err
	}
	if e.strictLow, err = x.strict.lowShare(ctx); err != nil {
		return e, err
	}
	for _, tasks := range []int{6, 8} {
		got, err := x.reserved.total(ctx, []traces.Job{job(0, slices.Repeat([]float64{20}, tasks)...), job(10, 1, 1)})
		if err != nil {
			return e, err
		}
		e.reserved += got
	}
	return e, nil
}

// total is the sum of the jobs' completion times.
func (s setup) total(ctx context.Context, jobs []traces.Job) (sum float64, err error) {
	err = s.dispatch(ctx, jobs, exampleSeed, func(_ int, took float64) { sum += took })
	return sum, err
}

// waitingEach is how many short and how many long tasks wait for one worker, and firstTasks how many of those that it runs count.
const (
	waitingEach = 60
	firstTasks  = 50
)

// lowShare is how many of the first tasks of one worker are long while both kinds wait. One more task keeps it busy meanwhile.
func (s setup) lowShare(ctx context.Context) (low float64, err error) {
	jobs := []traces.Job{job(0, 1)}
	for range waitingEach {
		jobs = append(jobs, job(0.5, 1), job(0.5, 20))
	}
	ended := 0
	err = s.dispatch(ctx, jobs, exampleSeed, func(i int, _ float64) {
		if ended++; ended > 1 && ended <= 1+firstTasks && jobs[i].Mean > exampleCutoff {
			low++
		}
	})
	return low, err
}

// targets are G1.
func (e exact) targets() []report.Target {
	target := func(id, what, unit string, got, want float64, note string) report.Target {
		return report.From(want, report.Around(want, 1e-9), report.Judge(id, what, unit, report.Once(got), math.Abs(got-want) <= 0.1*math.Abs(want), note))
	}
	return []report.Target{
		target("G1/pigeon", "worked example, two groups of two: sum of completion times", "", e.pigeon, 36, "tasks in blocks, B to the first group and C to the second"),
		target("G1/central", "worked example, one scheduler for all: sum of completion times", "", e.central, 45, ""),
		target("G1/weight", "one busy worker, W = 5: long tasks among the first 50 while both kinds wait", "", e.low, 10, "one of every five"),
		target("G1/strict", "the same with strict priority", "", e.strictLow, 0, "none"),
		target("G1/reserve", "two groups of four, one reserved: sum of completion times", "s", e.reserved, 62, "long jobs of 6 and of 8 tasks of 20 s take 20 and 40 s, two short ones of 1 s take 1 s each"),
	}
}
