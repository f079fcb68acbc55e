package fanout

import (
	"context"
	"slices"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
	"headroom/scheduler/distributor"
	"headroom/scheduler/local"
)

type state uint8

const (
	pending state = iota
	done
	dropped
)

// run is a run in progress. Its goroutine owns all fields without another comment.
type run struct {
	Run
	engine *Engine
	// killed is closed when the run is to end; ratios are new drop ratios.
	killed chan struct{}
	stop   func()
	ratios chan float64

	tasks         []state
	done, dropped int
	// reduced is whether the output of the reduce task existed before.
	reduced bool
	// failures counts failures of tasks, which are few; causes are their last ones.
	failures map[int]int
	causes   map[int]string
	// failed are tasks to be retried, spent those that have failed max_attempts times.
	failed, spent []int
	// tries counts the attempts of each task; the last is the reduce task. The distributor's goroutine owns it.
	tries   []uint16
	flights []*flight
	results chan result
	// forwarding are the goroutines that forward the flights' results.
	forwarding sync.WaitGroup
}

// flight is a set of tasks that were submitted together.
type flight struct {
	*distributor.Flight
	// indexes are its tasks; nil is the reduce task.
	indexes []int
}

// result is the end of a task; reduce is whether it is the reduce task.
type result struct {
	index  int
	reduce bool
	cause  string
	// stopped is whether it was killed, which is no failure.
	stopped bool
}

// verdict is the end of a run.
type verdict struct {
	ok      bool
	outcome string
}

func newRun(e *Engine, r Run) *run {
	x := &run{
		Run: r, engine: e, killed: make(chan struct{}), ratios: make(chan float64, 1), tasks: make([]state, r.Tasks),
		failures: make(map[int]int), causes: make(map[int]string), tries: make([]uint16, r.Tasks+1), results: make(chan result, resultsMax),
	}
	x.stop = sync.OnceFunc(func() { close(x.killed) })
	return x
}

// recall restores the progress of an earlier scheduler process.
func (x *run) recall(ctx context.Context) error {
	past, err := x.Recall(ctx)
	if err != nil {
		return err
	}
	x.reduced = past.ReduceDone
	for _, i := range past.Done {
		x.settle(i, done)
	}
	for _, i := range past.Dropped { // a dropped task stays dropped, even if its output was written late
		if i >= 0 && i < len(x.tasks) && x.tasks[i] == done {
			x.tasks[i] = pending
			x.done--
		}
		x.settle(i, dropped)
	}
	return nil
}

// settle ends a task that was pending.
func (x *run) settle(i int, s state) {
	if i < 0 || i >= len(x.tasks) || x.tasks[i] != pending {
		return
	}
	x.tasks[i] = s
	if s == done {
		x.done++
	} else {
		x.dropped++
	}
}

// serve runs the job to its end, unless ctx ends first: then the next scheduler process resumes it.
func (x *run) serve(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	v, over := x.drive(ctx)
	for _, f := range x.flights {
		f.Cancel(ctx)
	}
	x.report(ctx)
	cancel()
	x.forwarding.Wait()
	x.engine.forget(x)
	if over {
		x.engine.tell(parent, Event{Job: x.ID, Number: x.Number, Ended: true, OK: v.ok, Outcome: v.outcome})
	}
}

// drive runs the map tasks and then the reduce task; over is false when ctx ended first.
func (x *run) drive(ctx context.Context) (v verdict, over bool) {
	if err := x.recall(ctx); err != nil {
		return verdict{false, "progress of the run unreadable: " + err.Error()}, true
	}
	if err := x.dropTo(ctx, x.Theta); err != nil {
		return unrecorded(err), true
	}
	x.report(ctx) // what was done before is reported at once
	if err := x.submit(ctx, x.pending()); err != nil {
		return x.refused(ctx, err)
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		if v, over, err := x.step(ctx); err != nil {
			return x.refused(ctx, err)
		} else if over {
			return v, true
		}
		select {
		case <-ctx.Done():
			return verdict{}, false
		case <-x.killed:
			return verdict{}, true
		case r := <-x.results:
			x.count(r)
			if r.reduce && r.cause == "" && !r.stopped {
				return verdict{true, x.Summary(x.done, x.dropped)}, true
			}
		case theta := <-x.ratios:
			if err := x.deflate(ctx, theta); err != nil {
				return unrecorded(err), true
			}
		case <-tick.C:
			x.report(ctx)
		}
	}
}

// step acts on the results so far.
func (x *run) step(ctx context.Context) (v verdict, over bool, err error) {
	if len(x.results) > 0 {
		return v, false, nil // arrived results are counted first
	}
	if v, over := x.exhaust(ctx); over {
		return v, true, nil
	}
	if why := x.Enough(time.Now(), x.done, x.dropped); why != "" {
		if err := x.giveUp(ctx, x.pending(), why); err != nil {
			return unrecorded(err), true, nil
		}
		for _, f := range x.flights {
			f.Cancel(ctx)
		}
		x.flights = nil
	}
	if x.done+x.dropped < x.Tasks {
		again := slices.DeleteFunc(x.failed, func(i int) bool { return x.tasks[i] != pending })
		x.failed = nil
		return v, false, x.submit(ctx, again)
	}
	if !x.Reduce || x.reduced {
		return verdict{true, x.Summary(x.done, x.dropped)}, true, nil
	}
	return v, false, x.reduce(ctx)
}

// refused returns the end of a run whose tasks the distributor refuses.
func (x *run) refused(ctx context.Context, err error) (verdict, bool) {
	if ctx.Err() != nil {
		return verdict{}, false
	}
	return verdict{false, "tasks not dispatched: " + err.Error()}, true
}

func unrecorded(err error) verdict {
	return verdict{false, "dropped tasks not recorded: " + err.Error()}
}

// pending returns the map tasks that are neither done nor dropped.
func (x *run) pending() []int {
	all := make([]int, 0, x.Tasks-x.done-x.dropped)
	for i, s := range x.tasks {
		if s == pending {
			all = append(all, i)
		}
	}
	return all
}

// submit submits map tasks to the distributor.
func (x *run) submit(ctx context.Context, indexes []int) error {
	if len(indexes) == 0 {
		return nil
	}
	return x.fly(ctx, indexes, len(indexes), func(i, _ int) *headroomv1.Task { return x.Map(indexes[i], x.attempt(indexes[i])) })
}

// reduce submits the reduce task, unless it is in progress.
func (x *run) reduce(ctx context.Context) error {
	for _, f := range x.flights {
		if f.indexes == nil {
			return nil
		}
	}
	var maps []int
	for i, s := range x.tasks {
		if s == done {
			maps = append(maps, i)
		}
	}
	return x.fly(ctx, nil, 1, func(int, int) *headroomv1.Task { return x.ReduceOf(maps, x.attempt(x.Tasks)) })
}

// attempt returns the number of a task's next attempt.
func (x *run) attempt(task int) uint32 {
	n := x.tries[task]
	x.tries[task] = (n + 1) & dispatch.AttemptMask
	return x.First | uint32(n)
}

// fly submits tasks, and forwards their results.
func (x *run) fly(ctx context.Context, indexes []int, tasks int, make func(index, attempt int) *headroomv1.Task) error {
	sent, err := x.engine.distributor.Submit(ctx, distributor.Job{Tasks: tasks, High: x.High, Task: make})
	if err != nil {
		return err
	}
	f := &flight{sent, indexes}
	x.flights = append(x.flights, f)
	x.forwarding.Go(func() {
		for {
			select {
			case r, more := <-f.Results():
				if !more {
					return
				}
				out := result{reduce: indexes == nil, cause: local.Failure(r.TaskResult), stopped: r.GetError() == local.Stopped}
				if indexes != nil {
					out.index = indexes[r.Index]
				}
				select {
				case x.results <- out:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// count counts a result.
func (x *run) count(r result) {
	if r.reduce {
		x.flights = slices.DeleteFunc(x.flights, func(f *flight) bool { return f.indexes == nil })
		if r.cause != "" && !r.stopped {
			x.fail(x.Tasks, r.cause)
		}
		return
	}
	switch {
	case x.tasks[r.index] != pending:
	case r.cause == "":
		x.settle(r.index, done)
	default:
		x.failed = append(x.failed, r.index)
		if !r.stopped {
			x.fail(r.index, r.cause)
		}
	}
}
