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

// examples are the setups of examples small enough to work out by hand; messages take no time in them.
type examples struct{ pigeon, central, weighted, strict, reserved dispatch.Setup }

const (
	// exampleCutoff is between the times of the examples' short and long tasks.
	exampleCutoff = 15
	// exampleSeed draws the groups of jobs B and C as the paper has them: B gets the first and C the second.
	exampleSeed = 8
	// waitingEach is how many short and how many long tasks wait for one worker, and firstTasks how many of those that it runs count.
	waitingEach = 60
	firstTasks  = 50
)

func honestExamples() examples {
	setup := func(p dispatch.Policy, workers, groups, reserved, w int, cutoff float64) dispatch.Setup {
		return dispatch.Setup{Policy: p, Workers: workers, Groups: groups, Reserved: reserved, W: w, Cutoff: cutoff, Placement: policies.Block, Distributors: 1}
	}
	return examples{
		pigeon:   setup(dispatch.Pigeon, 4, 2, 0, strict, math.MaxFloat64),
		central:  setup(dispatch.Central, 4, 1, 0, strict, math.MaxFloat64),
		weighted: setup(dispatch.Pigeon, 1, 1, 0, 5, exampleCutoff),
		strict:   setup(dispatch.Pigeon, 1, 1, 0, strict, exampleCutoff),
		reserved: setup(dispatch.Pigeon, 8, 2, 1, strict, exampleCutoff),
	}
}

// job is a job of an example: tasks of the given times.
func job(at float64, times ...float64) traces.Job {
	j := traces.Job{Arrival: at, Times: times}
	j.Mean = j.Work() / float64(len(times))
	return j
}

// targets are G1.
func (x examples) targets(ctx context.Context) (all []report.Target, err error) {
	paper := [][]traces.Job{{job(0, 20, 1, 1, 10, 10, 10), job(0, 2), job(0, 2)}}
	busy := []traces.Job{job(0, 1)} // keeps the worker busy while both kinds come
	for range waitingEach {
		busy = append(busy, job(0.5, 1), job(0.5, 20))
	}
	var reserve [][]traces.Job
	for _, tasks := range []int{6, 8} {
		reserve = append(reserve, []traces.Job{job(0, slices.Repeat([]float64{20}, tasks)...), job(10, 1, 1)})
	}
	total := func(_ int, _ *traces.Job, took float64) float64 { return took }
	low := func(ended int, j *traces.Job, _ float64) float64 {
		if ended > 1 && ended <= 1+firstTasks && j.Mean > exampleCutoff {
			return 1
		}
		return 0
	}
	for _, e := range []struct {
		id, what, unit string
		setup          dispatch.Setup
		loads          [][]traces.Job
		counts         func(ended int, j *traces.Job, took float64) float64
		want           float64
		note           string
	}{
		{"pigeon", "worked example, two groups of two: sum of completion times", "", x.pigeon, paper, total, 36, "tasks in blocks, B to the first group and C to the second"},
		{"central", "worked example, one scheduler for all: sum of completion times", "", x.central, paper, total, 45, ""},
		{"weight", "one busy worker, W = 5: long tasks among the first 50 while both kinds wait", "", x.weighted, [][]traces.Job{busy}, low, 10, "one of every five"},
		{"strict", "the same with strict priority", "", x.strict, [][]traces.Job{busy}, low, 0, "none"},
		{
			"reserve", "two groups of four, one reserved: sum of completion times", "s", x.reserved, reserve, total, 62,
			"long jobs of 6 and of 8 tasks of 20 s take 20 and 40 s, two short ones of 1 s take 1 s each",
		},
	} {
		got := 0.0
		for _, jobs := range e.loads {
			ended := 0
			err := play(ctx, e.setup, jobs, exampleSeed, func(i int, took float64) {
				ended++
				got += e.counts(ended, &jobs[i], took)
			})
			if err != nil {
				return nil, err
			}
		}
		ordered := math.Abs(got-e.want) <= 0.1*math.Abs(e.want)
		all = append(all, report.From(e.want, report.Around(e.want, 1e-9), report.Judge("G1/"+e.id, e.what, e.unit, report.Once(got), ordered, e.note)))
	}
	return all, nil
}
