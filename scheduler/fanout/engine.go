package fanout

import (
	"context"
	"log/slog"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
	"headroom/scheduler/distributor"
)

const (
	// reportEvery is the interval of progress reports of a run.
	reportEvery = 200 * time.Millisecond
	// resultsMax bounds the results that wait to be counted.
	resultsMax = 1024
)

// Run is a run of a job.
type Run struct {
	dispatch.Plan
	Number uint32
	// High gives its tasks the priority of short jobs.
	High bool
	// Theta is its drop ratio; Draws are the random numbers that determine the dropped tasks.
	Theta float64
	Draws func() func() uint64
	// Recall returns the progress of an earlier scheduler process.
	Recall func(ctx context.Context) (dispatch.Past, error)
	// First is the number of the first attempt of each task.
	First uint32
	// Map creates an attempt of a map task, ReduceOf one of the reduce task, over the outputs of these map tasks.
	Map      func(index int, attempt uint32) *headroomv1.Task
	ReduceOf func(maps []int, attempt uint32) *headroomv1.Task
	// Drop durably records dropped map tasks.
	Drop func(ctx context.Context, indexes []int, why string) error
}

// Event is the progress of a run, or its end.
type Event struct {
	Job      string
	Number   uint32
	Progress dispatch.EngineProgress
	// Ended is whether it is over; OK whether the job is done. Outcome describes it in words.
	Ended, OK bool
	Outcome   string
}

// Engine runs jobs. Its methods may be called from any goroutine and return at once.
type Engine struct {
	distributor *distributor.Distributor
	// tell sends an event; it may block.
	tell   func(context.Context, Event)
	logger *slog.Logger

	mu      sync.Mutex
	runs    map[string]*run
	running sync.WaitGroup
	// ctx is that of Run; nil before.
	ctx    context.Context //nolint:containedctx // runs outlive the calls that start them, and end with the engine
	closed bool
	early  []*run
}

// New returns an engine over a distributor, which the engine runs.
func New(d *distributor.Distributor, tell func(context.Context, Event), logger *slog.Logger) *Engine {
	return &Engine{distributor: d, tell: tell, logger: logger, runs: make(map[string]*run)}
}

// Run serves until ctx ends. Tasks at masters continue.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.ctx = ctx
	for _, r := range e.early {
		e.launch(r)
	}
	e.early = nil
	e.mu.Unlock()
	err := e.distributor.Run(ctx)
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.running.Wait()
	return err
}

// Start starts a run, or takes over one of an earlier scheduler process.
func (e *Engine) Start(r Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := newRun(e, r)
	e.runs[r.ID] = x
	if e.ctx == nil {
		e.early = append(e.early, x)
		return
	}
	e.launch(x)
}

// launch starts a run's goroutine.
func (e *Engine) launch(x *run) {
	if !e.closed {
		e.running.Go(func() { x.serve(e.ctx) })
	}
}

// Kill ends a run; an event confirms it, also for an unknown run.
func (e *Engine) Kill(job string, number uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.runs[job]; x != nil && x.Number == number {
		x.stop()
		return
	}
	if e.ctx != nil && !e.closed {
		e.running.Go(func() { e.tell(e.ctx, Event{Job: job, Number: number, Ended: true}) })
	}
}

// Deflate raises the drop ratio of a run. It drops tasks that were not sent.
func (e *Engine) Deflate(job string, theta float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[job]
	if x == nil {
		return
	}
	select { // only the newest ratio counts
	case <-x.ratios:
	default:
	}
	x.ratios <- theta
}

// forget removes an ended run.
func (e *Engine) forget(x *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[x.ID] == x {
		delete(e.runs, x.ID)
	}
}

// Status returns the status of the groups.
func (e *Engine) Status(ctx context.Context) ([]*headroomv1.DispatchGroup, error) {
	return e.distributor.Status(ctx)
}
