package bench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"headroom/lab/dispatch"
	"headroom/lab/traces"
)

// Sizes of the simulation's benchmark: groups of 100 workers at a load of 90 %, nine of ten jobs short.
const (
	simulatedWorkers, simulatedGroups = 10_000, 100
	simulatedTasks                    = 1_000_000
	simulatedFan                      = 40
	simulatedLoad                     = 0.9
	simulateMost                      = 60   // s
	simulateMemory                    = 2000 // MB
)

// simulateTasks measures the simulation of powerlab solve dispatch. The peer is the same trace by Sparrow.
func simulateTasks(ctx context.Context, r *run) ([]Item, error) {
	tasks := pick(r, simulatedTasks, simulatedTasks/20)
	setup := dispatch.Setup{Policy: dispatch.Pigeon, Workers: simulatedWorkers, Groups: simulatedGroups, Reserved: 2, Cutoff: 10, Hop: dispatch.HopUsual, Distributors: dispatch.DistributorsUsual, Seed: 1}
	timed := func(policy dispatch.Policy) (float64, error) {
		setup.Policy = policy
		began := time.Now()
		_, err := dispatch.Run(ctx, setup, madeJobs(tasks))
		return time.Since(began).Seconds(), err
	}
	ours, err := timed(dispatch.Pigeon)
	if err != nil {
		return nil, err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	peer, err := timed(dispatch.Sparrow)
	if err != nil {
		return nil, err
	}
	full := float64(simulatedTasks) / float64(tasks)
	return []Item{
		newItem("simulate", "simulating Pigeon with 1 M tasks on 10,000 workers", "s").is(ours*full).against(peer*full).aim(atMost(simulateMost, "<= 60 s")).
			say("%d tasks in %.2f s, times %.0f; peer: the same by Sparrow", tasks, ours, full),
		newItem("simulate-memory", "memory that this process has had by then", "MB").is(float64(memory.Sys)/1e6).aim(atMost(simulateMemory, "<= 2 GB")).
			say("of %d tasks, and of the benchmarks before in the same run", tasks),
	}, nil
}

// madeJobs are jobs with so many tasks at a load of nearly all workers.
func madeJobs(tasks int) func(yield func(*traces.Job, error) bool) {
	return func(yield func(*traces.Job, error) bool) {
		random, at := rand.New(rand.NewPCG(1, 18)), 0.0
		var j traces.Job
		for range tasks / simulatedFan {
			j.Mean, j.Times = 2, j.Times[:0]
			if random.IntN(10) == 0 {
				j.Mean = 100
			}
			for range simulatedFan {
				j.Times = append(j.Times, j.Mean*(0.5+random.Float64()))
			}
			j.Arrival = at
			at += random.ExpFloat64() * simulatedFan * (0.9*2 + 0.1*100) / (simulatedLoad * simulatedWorkers)
			if !yield(&j, nil) {
				return
			}
		}
	}
}
