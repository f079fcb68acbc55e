package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	"headroom/internal/pause"
	"headroom/lab/traces"
)

// system is a cluster that runs jobs.
type system interface {
	// doors is how many distributors there are.
	doors() int
	// run hands a job to a distributor, counted from 0, and returns when all its tasks have ended well.
	run(ctx context.Context, distributor, job int, j *traces.Job, long bool) error
	// close ends what was started.
	close() error
}

// served is what became of one job.
type served struct {
	job int
	// late is by how much it was submitted later than the trace says, took how long it took from when the trace submits it.
	late, took time.Duration
	err        error
}

// replay submits the jobs when the trace says, to the distributors in turn, and calls ended for each job as it
// ends. It returns at the first job that fails, and when ctx ends, with how many jobs have ended.
func replay(ctx context.Context, l *load, s system, ended func(served) error) (done int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	results := make(chan served)
	running.Go(func() { submitAll(ctx, l, s, results, &running) })
	for done < len(l.jobs) {
		select {
		case <-ctx.Done():
			return done, ctx.Err()
		case r := <-results:
			if r.err != nil {
				return done, fmt.Errorf("job %d of the trace: %w", r.job+1, r.err)
			}
			done++
			if err := ended(r); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// submitAll submits the jobs at their times; each is awaited on a goroutine of its own.
func submitAll(ctx context.Context, l *load, s system, results chan<- served, running *sync.WaitGroup) {
	began := time.Now()
	for i := range l.jobs {
		due := began.Add(seconds(l.jobs[i].Arrival))
		if !pause.For(ctx, time.Until(due)) {
			return
		}
		running.Go(func() {
			r := served{job: i, late: time.Since(due)}
			r.err = s.run(ctx, i%s.doors(), i, &l.jobs[i], l.long(i))
			r.took = time.Since(due)
			select {
			case results <- r:
			case <-ctx.Done():
			}
		})
	}
}
